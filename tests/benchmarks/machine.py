"""What every benchmark has to say about the machine it ran on."""
import platform
from pathlib import Path

import numpy as np
import psutil
from threadpoolctl import threadpool_info


def processor():
    """The processor's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe_machine():
    """One line: processor, NumPy, and which BLAS with which kernel and how many threads."""
    blas = ", ".join(f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture', '')} {pool['num_threads']} threads"
                     for pool in threadpool_info() if pool["user_api"] == "blas")
    return f"{processor()}, {psutil.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__}; {blas}"


def other_load(seconds=1.0):
    """Share of the processor used while this process sleeps: by others, then."""
    return psutil.cpu_percent(interval=seconds) / 100
