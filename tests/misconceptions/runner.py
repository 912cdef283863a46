"""Try every answer of a bank in its notebook.

The notebook runs once, in this plain process. Before each exercise the process forks, once for every answer: the
child puts the answer in place of the solution, runs that cell and those up to and including the exercise's last check,
and reports what happened. So an answer costs a few cells, not a notebook. The results are a JSON list with one object
for each answer: exercise, kind, name, fault (null if all is as the bank says), by (the check that refused it).
"""
from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import linecache
import os
import signal
import sys
import tempfile
import textwrap
import traceback
import types
from pathlib import Path

from tests.lessons import exercise_of, grading, is_check, is_exercise, is_measuring, is_run, last_check, read, regions
from tests.misconceptions import Answer, Right

SECONDS = 60  # for one answer
ACCEPTED = "its checks accept it"


def with_answer(source: str, body: str | dict[int, str]) -> str:
    """The cell with `body` in place of its solution."""
    found = regions(source)
    if isinstance(body, str):
        if len(found) != 1:
            raise ValueError(f"the exercise has {len(found)} solution regions, so body must be a dict {{region: code}}")
        body = {0: body}
    if not body or not set(body) <= set(range(len(found))):
        raise ValueError(f"body names the regions {sorted(body)}, the exercise has 0 to {len(found) - 1}")
    lines = source.split("\n")
    for number in sorted(body, reverse=True):
        region = found[number]
        marker = lines[region.start - 1]
        indent = marker[:len(marker) - len(marker.lstrip())]
        code = textwrap.dedent(body[number].strip("\n")).rstrip()
        lines[region.start:region.end] = textwrap.indent(code, indent).split("\n")
    return "\n".join(lines)


def new_namespace() -> dict:
    """An empty `__main__`, where classes and functions of a notebook live; without IPython, display shows nothing."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    module.display = lambda *objects, **options: None
    return module.__dict__


def run_cell(source: str, label: str, namespace: dict) -> str:
    """Run a cell, its prints unseen; returns what it wrote to stderr."""
    filename = f"<{label}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)  # for tracebacks
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        exec(compile(source, filename, "exec"), namespace)
    return errors.getvalue()


def judge(answer: Answer, cells: list, namespace: dict) -> tuple[str | None, str | None]:
    """Run the cells from the exercise to its last check with this answer, until one fails.

    What is not as the bank says, or None; and the name of the check that refused the answer, or None.
    """
    try:
        source = with_answer(cells[0].source, answer.body)
    except ValueError as error:
        return f"bank: {error}", None
    for number, cell in enumerate(cells):
        label = grading(cell).get("grade_id", "a cell before the check")
        try:
            warned = run_cell(source if number == 0 else cell.source, label, namespace)
        except BaseException as error:  # SystemExit too: nothing may leave the child
            what = f"{label} raises {type(error).__name__}: {error}"
            if not is_check(cell) or exercise_of(cell) != answer.exercise:
                return f"bank: it fails before a check can look at it. {what}", None
            if isinstance(answer, Right):
                return f"a right answer is refused: {what}", label
            if not isinstance(error, AssertionError):
                return f"the check breaks where it should name the mistake: {what}", label
            if answer.says not in str(error):
                return f"the message lacks {answer.says!r}: {what}", label
            return None, label
        if isinstance(answer, Right) and is_check(cell) and warned:
            return f"a right answer gets no points, for {label} writes to stderr: {warned}", None
    return None if isinstance(answer, Right) else ACCEPTED, None


class Lost(RuntimeError):
    """A child gave no result; what happened to it."""


def in_child(function, seconds: int):
    """The function's result (anything that JSON can hold) from a fork of this process, which it cannot alter. Lost if it gives none."""
    with tempfile.TemporaryFile() as box:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(seconds)  # unanswered, this signal ends the process, even inside C code
                box.write(json.dumps([function()]).encode())
                box.flush()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        box.seek(0)
        result = box.read()
    if result:
        return json.loads(result)[0]
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    raise Lost(f"it ran for more than {seconds} seconds" if late else f"its process died (status {status})")


def verdict(answer: Answer, cells: list, namespace: dict, seconds: int) -> tuple[str | None, str | None]:
    """What `judge` says in a child; an answer that leads it astray is at fault."""
    try:
        return tuple(in_child(lambda: judge(answer, cells, namespace), seconds))
    except Lost as error:
        return str(error), None


def try_answers(notebook: Path, answers: list[Answer]) -> list[dict]:
    cells = [cell for cell in read(notebook).cells if is_run(cell) and not is_measuring(cell)]
    namespace = new_namespace()
    wanted = {answer.exercise for answer in answers}
    results = []
    for start, cell in enumerate(cells):
        name = grading(cell).get("grade_id", "a cell")
        if is_exercise(cell) and name in wanted:
            own = cells[start:last_check(cells, name) + 1]
            for answer in answers:
                if answer.exercise == name:
                    fault, by = verdict(answer, own, namespace, SECONDS)
                    results.append({"exercise": name, "kind": type(answer).__name__, "name": answer.name,
                                    "fault": fault, "by": by})
        warned = run_cell(cell.source, name, namespace)
        if is_check(cell) and warned:
            raise RuntimeError(f"{name} writes to stderr with the solution itself: {warned}")
        if len(results) == len(answers) and is_check(cell):
            break
    return results


def main(notebook: str, bank: str, results: str) -> None:
    sys.path.insert(0, os.getcwd())
    answers = importlib.import_module(bank).ANSWERS
    try:
        found = try_answers(Path(notebook), answers)
    except Exception:
        found = {"error": f"the notebook itself fails:\n{traceback.format_exc()}"}
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.misconceptions.runner", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", help="the path of a lesson")
    parser.add_argument("bank", help="the module of its answers, such as tests.misconceptions.02_layers")
    parser.add_argument("results", help="the file to write")
    main(**vars(parser.parse_args()))
