"""What the tests know about a lesson: where it is, its exercises, how to run it."""
from __future__ import annotations

import configparser
import copy
import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "modules" / "source"
BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"


def notebooks(folder: Path) -> list[Path]:
    """All notebooks below a folder, without the copies that an editor keeps."""
    return sorted(path for path in folder.rglob("*.ipynb")
                  if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts))


def modules() -> list[Path]:
    """The source notebook of every module."""
    return notebooks(SOURCE)


def lessons() -> list[Path]:
    """The modules that are lessons; from 90 on they only export."""
    return [path for path in modules() if path.stem < "90"]


def read(path: Path):
    return nbformat.read(path, as_version=4)


def grading(cell) -> dict:
    """The nbgrader metadata of a cell; an empty dict if it has none."""
    return cell.metadata.get("nbgrader", {})


def cell_named(nb, name: str):
    """The cell with this name in its nbgrader metadata; of several the first."""
    return next(cell for cell in nb.cells if grading(cell).get("grade_id") == name)


def copied(cell):
    """As Jupyter copies a code cell: the metadata goes with it, the id is new."""
    return nbformat.v4.new_code_cell(cell.source, metadata=copy.deepcopy(cell.metadata))


def is_exercise(cell) -> bool:
    return cell.cell_type == "code" and bool(grading(cell).get("solution"))


def is_check(cell) -> bool:
    return cell.cell_type == "code" and bool(grading(cell).get("grade"))


def exercise_of(check) -> str:
    """The exercise that a check belongs to: `heads` for check_heads and for check_heads-gradients."""
    return grading(check)["grade_id"].removeprefix("check_").partition("-")[0]


def last_check(cells, exercise: str) -> int:
    """The index of the last check of an exercise."""
    return max(index for index, cell in enumerate(cells) if is_check(cell) and exercise_of(cell) == exercise)


def is_question(cell) -> bool:
    return cell.cell_type == "markdown" and bool(grading(cell).get("solution"))


@dataclass(frozen=True)
class Region:
    """Lines between two solution markers: `lines[start:end]` of a cell, markers not included."""
    start: int
    end: int
    lines: tuple[str, ...]


def regions(source: str) -> list[Region]:
    """The solution regions of a cell. Markers that do not pair up raise ValueError."""
    found, start = [], None
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if BEGIN in line:
            if start is not None:
                raise ValueError("a solution region begins inside another one")
            start = number + 1
        elif END in line:
            if start is None:
                raise ValueError("a solution region ends that never began")
            found.append(Region(start, number, tuple(lines[start:number])))
            start = None
    if start is not None:
        raise ValueError("a solution region never ends")
    return found


def outside(source: str) -> list[str]:
    """The lines of a cell that a student is given: all but solutions and hidden tests, and their markers."""
    lines = source.split("\n")
    for region in reversed(regions(source)):
        del lines[region.start - 1:region.end + 1]
    while hidden := [i for i, line in enumerate(lines) if "HIDDEN TESTS" in line][:2]:
        first, last = hidden
        del lines[first:last + 1]
    return lines


def directives(cell) -> dict[str, str]:
    """nbdev's comments at the head of a cell: `#| eval: false` gives {"eval": "false"}."""
    found = {}
    for line in cell.source.split("\n"):
        if not line.replace(" ", "").startswith("#|"):
            break
        name, _, value = line.split("|", 1)[1].strip().replace(":", " ").partition(" ")
        found[name] = value.strip().lower()
    return found


@functools.cache
def _test_flags() -> set[str]:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    return set(settings["DEFAULT"]["tst_flags"].split())


def is_run(cell) -> bool:
    """Whether a test runs this cell: code that is neither `#| eval: false` nor flagged in settings.ini."""
    found = directives(cell)
    return cell.cell_type == "code" and found.get("eval") != "false" and not _test_flags() & set(found)


def is_measuring(cell) -> bool:
    """Whether the cell is tagged as one that only measures time or memory."""
    return "measure" in cell.metadata.get("tags", [])


def execute(nb, folder: Path, seconds: float, keep_going: bool = False, skip=lambda cell: False):
    """Run a notebook in a real kernel with `folder` as its working directory; returns `nb` with fresh outputs.

    The kernel is a process of its own. `seconds` is the time for the whole notebook; whoever passes it raises
    CellTimeoutError. A cell that fails raises CellExecutionError, which shows the cell and its traceback, unless
    `keep_going`. Cells that tests do not run, and those that `skip` names, keep no outputs.

    Why not nbdev_test: it has no time limit, it throws the outputs away, so that a check that writes to stderr
    passes although nbgrader gives it no points, and it is not the kernel that a student uses.
    """
    from nbclient import NotebookClient

    class Client(NotebookClient):
        async def async_execute_cell(self, cell, cell_index, **kwargs):
            if cell.cell_type == "code" and (not is_run(cell) or skip(cell)):
                return cell
            return await super().async_execute_cell(cell, cell_index, **kwargs)

    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    deadline = time.monotonic() + seconds
    client = Client(
        nb,
        allow_errors=keep_going,
        timeout_func=lambda cell: max(1, int(deadline - time.monotonic())),
        startup_timeout=120,
        kernel_name="python3",
        coalesce_streams=True,                  # the kernel may send one printed line in two pieces
        resources={"metadata": {"path": str(folder)}},
    )
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return client.execute(env={**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(folder / ".ipython")})
