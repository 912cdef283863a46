"""Settings that hold for every test."""
import os
import signal

import pytest

os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # Jupyter warns when it has to choose


@pytest.fixture
def ctrl_c():
    """Children heed Ctrl-C, also where a shell that ignores it has started the tests, as a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_terminal_summary(terminalreporter, config):
    """Show what the self-checks caught: a row for each exercise with -rA or -v, else one line."""
    rows = [row for reports in terminalreporter.stats.values() for report in reports
            if getattr(report, "when", None) == "call"
            for name, value in report.user_properties if name == "misconceptions" for row in value]
    rows.sort(key=lambda row: row[0])  # by lesson; within it the order stays
    if not rows:
        return
    terminalreporter.section("wrong answers and self-checks")
    if config.option.verbose > 0 or "A" in config.option.reportchars:
        layout = "{:16} {:24} {:>5} {:>6} {:>5} {:>8}  {}"
        terminalreporter.write_line(
            layout.format("lesson", "exercise", "wrong", "caught", "right", "accepted", "caught by"))
        for *row, checks in rows:
            by = ", ".join(f"{check} {caught}" for check, caught in checks.items())
            terminalreporter.write_line(layout.format(*row, by))
    wrong, caught, right, accepted = (sum(row[i] for row in rows) for i in range(2, 6))
    terminalreporter.write_line(
        f"{len(rows)} exercises: {caught} of {wrong} wrong answers caught, {accepted} of {right} right ones accepted")
