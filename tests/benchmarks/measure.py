"""Measuring in turns, what others do to the machine meanwhile, and the limit that memory sets."""
import importlib.metadata
import math
import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

PAUSE = 0.05            # seconds between two measurements: the last library's waiting threads fall asleep meanwhile
DISTURBED = 0.2         # processors in use by others; above that no conclusion is drawn


# --- times and ratios ------------------------------------------------------------------------------------------------

def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_turns(functions, rounds, tick=lambda: None, pause=PAUSE, warm_up=True):
    """{name: [seconds of each round]} for {name: function that measures itself and returns seconds}.

    Every round calls each function once, beginning with another one each time. With warm_up, a round that does not count
    comes before them.
    """
    names, times = list(functions), {name: [] for name in functions}
    for turn in range(0 if warm_up else 1, rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(pause)
            taken = functions[name]()
            if turn:
                times[name].append(taken)
            tick()
    return times


class Spread(NamedTuple):
    """The median of several numbers and the quartiles below and above it."""
    median: float
    low: float
    high: float


def spread(numbers):
    low, median, high = np.percentile(numbers, [25, 50, 75])
    return Spread(float(median), float(low), float(high))


def ratios(above, below):
    """Spread of above[i] / below[i], two lists measured in the same rounds: what slows a round down slows both."""
    return spread(np.divide(above, below))


# --- the machine -----------------------------------------------------------------------------------------------------

class Others:
    """How many processors other processes keep busy, from the moment this is made.

    All time that is neither idle nor ours counts, also what a host of virtual machines takes away.
    """

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        import psutil
        system, own = psutil.cpu_times(), psutil.Process().cpu_times()
        ours = own.user + own.system + own.children_user + own.children_system
        return np.array([time.perf_counter(), system.idle + getattr(system, "iowait", 0.0), ours])

    def processors(self):
        elapsed, idle, ours = self.now() - self.before
        return max(0.0, float((os.cpu_count() * elapsed - idle - ours) / elapsed))


def least_busy(seconds):
    """How many processors others use in the quietest of so many seconds; ends with the first that is quiet enough."""
    least = math.inf
    for _ in range(seconds):
        others = Others()
        time.sleep(1)
        least = min(least, others.processors())
        if least <= DISTURBED:
            break
    return least


def processor():
    """The processor's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine():
    """Processor, BLAS kernels and versions, as {name: text}."""
    from threadpoolctl import threadpool_info
    blas = {f"{pool['internal_api']} {pool.get('version')}, kernel {pool.get('architecture', 'unknown')}"
            for pool in threadpool_info() if pool["user_api"] == "blas"}
    versions = [f"Python {platform.python_version()}"]
    for package in ("numpy", "torch", "transformers", "llama-cpp-python"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return {"processor": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
            "blas": "; ".join(sorted(blas)) or "a BLAS whose threads cannot be set, such as Apple's", "versions": ", ".join(versions)}


class Threads:
    """Sets the threads of NumPy's BLAS and of every peer; `with Threads(2, peers):`."""

    def __init__(self, n, peers=()):
        self.n, self.peers = n, peers

    def __enter__(self):
        from threadpoolctl import threadpool_limits
        for peer in self.peers:
            peer.set_threads(self.n)
        self.limits = threadpool_limits(self.n)

    def __exit__(self, *exception):
        self.limits.restore_original_limits()


class Memory:
    """How fast float32 weights can be read: products of vectors with 1 GB of matrices, far more than any cache holds."""
    nbytes = 1 << 30

    def __init__(self):
        self.matrices = np.full((16, 4096, 4096), 0.001, np.float32)
        self.x = np.ones(4096, np.float32)
        # Which side the vector stands on decides about the speed, on every machine otherwise.
        self.product = min(self.row_times_matrix, self.matrix_times_column, key=lambda f: min(seconds(f) for _ in range(3)))

    def row_times_matrix(self):
        for matrix in self.matrices:
            np.dot(self.x, matrix)

    def matrix_times_column(self):
        for matrix in self.matrices:
            np.dot(matrix, self.x)

    def seconds_per_byte(self):
        return min(seconds(self.product) for _ in range(3)) / self.nbytes       # a limit is what was possible
