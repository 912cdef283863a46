"""What has to be said before NumPy is imported or a test starts a process of its own."""
import os

# One thread for each process: tests run side by side, and small matrices gain nothing from more. Where a process forks, threads
# would not come along: Apple's BLAS, whose name for them is the last one, crashes in the child then.
THREADS = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
for _name in THREADS:
    os.environ.setdefault(_name, "1")
os.environ.setdefault("PYTHONIOENCODING", "utf-8")      # tests read what a process prints as UTF-8; on Windows it would be another
