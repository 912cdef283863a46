"""The tables of nbs/instructors.md, worked out from the lessons, in some minutes.

What an exercise is built on is tried, not typed: its solution is taken out, the notebook runs to its end, and the checks
that fail are those that need it.
"""
from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests import lessons as L
from tests.misconceptions.runner import in_child, new_namespace, run_cell, with_answer
from tinytorch.course import STUB, built_by, minutes

PAGE = L.ROOT / "nbs" / "instructors.md"


def exercises(nb):
    return [cell for cell in nb.cells if L.is_exercise(cell)]


def name_of(cell):
    return L.grading(cell)["grade_id"]


def points(nb):
    """The points of each exercise, those of all its checks together."""
    found = Counter()
    for cell in filter(L.is_check, nb.cells):
        found[L.exercise_of(cell)] += L.grading(cell)["points"]
    return found


def needs(nb):
    """The lessons that a lesson imports from."""
    number, found = built_by(), set()
    for cell in nb.cells:
        if cell.cell_type == "code":
            found |= {number[node.module] for node in ast.walk(ast.parse(cell.source))
                      if isinstance(node, ast.ImportFrom) and node.module in number}
    return sorted(name[:2] for name in found if name < "90")


def failing_without(cells, namespace):
    """Run cells, the first of which is an exercise whose answer is taken out; the exercises whose checks fail."""
    failed = []
    first = with_answer(cells[0].source, {i: STUB for i in range(len(L.regions(cells[0].source)))})
    for source, cell in zip([first, *(cell.source for cell in cells[1:])], cells):
        try:
            run_cell(source, "a cell", namespace)
        except Exception:
            if L.is_check(cell):
                failed.append(L.exercise_of(cell))
    return failed


def needed_by(path):
    """For each exercise those whose checks fail without it, itself among them."""
    cells = [cell for cell in L.read(path).cells if L.is_run(cell) and not L.is_measuring(cell)]
    last = max(i for i, cell in enumerate(cells) if L.is_check(cell))
    namespace, found = new_namespace(), {}
    for i, cell in enumerate(cells[:last + 1]):
        if L.is_exercise(cell):
            found[name_of(cell)] = in_child(lambda: failing_without(cells[i:last + 1], namespace), 120)
        run_cell(cell.source, "a cell", namespace)
    return found


def built_on(path):
    """For each exercise of a lesson the earlier ones that its check needs; found out in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "tests.course_table", "--needed-by", str(path)], cwd=L.ROOT, text=True, encoding="utf-8",
                          env={**os.environ, "MPLBACKEND": "Agg"}, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    return {name: [other for other in found if other != name and name in found[other]] for name in found}


def lesson_row(path):
    nb = L.read(path)
    modules = ", ".join(f"`{module}`" for module, notebook in built_by().items() if notebook == path.stem)
    return (f"| `{path.stem}` | {modules} | {len(exercises(nb))} | {sum(points(nb).values())} | {minutes(path)} "
            f"| {', '.join(needs(nb)) or '-'} |")


def exercise_rows(path):
    on, worth = built_on(path), points(L.read(path))
    return [f"| `{path.stem}` | `{name}` | {worth[name]} | {', '.join(f'`{other}`' for other in on[name]) or '-'} |"
            for name in on]


def lesson_table():
    return "\n".join(["| Lesson | Builds | Exercises | Points | Minutes | Needs lessons |", "|---|---|---|---|---|---|",
                      *map(lesson_row, L.lessons())])


def exercise_table():
    return "\n".join(["| Lesson | Exercise | Points | Built on |", "|---|---|---|---|",
                      *(row for path in L.lessons() for row in exercise_rows(path))])


def write_page():
    text = PAGE.read_text(encoding="utf-8")
    for name, table in ("lessons", lesson_table()), ("exercises", exercise_table()):
        text, count = re.subn(rf"(<!-- {name}: .*?-->\n).*?(<!-- end -->)", lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text,
                              flags=re.DOTALL)
        assert count == 1, name
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.course_table", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="bring the page up to date instead of printing the tables")
    parser.add_argument("--needed-by", metavar="NOTEBOOK", type=Path, help="print what each exercise of one lesson is needed by, as JSON")
    options = parser.parse_args()
    if options.needed_by:
        print(json.dumps(needed_by(options.needed_by)))
    elif options.write:
        write_page()
    else:
        print(lesson_table(), exercise_table(), sep="\n\n")
