"""One thread for each process, which has to be said before NumPy is imported.

Tests run side by side, and small matrices gain nothing from more. Where a process forks, threads would not come along:
Apple's BLAS, whose name for them is the last one, crashes in the child then.
"""
import os

THREADS = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
for _name in THREADS:
    os.environ.setdefault(_name, "1")
