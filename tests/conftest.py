"""Settings that hold for every test."""
import os

# One thread for each process: tests run side by side, and small matrices gain nothing from more.
# This has to come before NumPy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # Jupyter warns when it has to choose


def pytest_terminal_summary(terminalreporter):
    """Show what each bank of wrong answers caught."""
    lines = [line for reports in terminalreporter.stats.values() for report in reports
             if getattr(report, "when", None) == "call"
             for name, value in report.user_properties if name == "misconceptions" for line in value]
    if lines:
        terminalreporter.section("wrong answers caught")
        for line in lines:
            terminalreporter.write_line(line)
