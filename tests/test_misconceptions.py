"""Every wrong answer in the bank is caught by a check of its exercise, with words that name the mistake; every right one passes.

    python -m pytest tests/test_misconceptions.py -rA

prints a table: exercise, wrong answers, caught, by which of its checks. tests/misconceptions/ says how to write a bank.
"""
import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests import lessons as L
from tests.misconceptions import Right, Wrong
from tests.misconceptions.changes import changes
from tests.misconceptions.runner import with_answer

BANKS = L.ROOT / "tests" / "misconceptions"
LESSONS = L.lessons()

pytestmark = pytest.mark.notebook


def name(path):
    return path.stem


def bank(path):
    """The answers of a lesson's bank."""
    assert (BANKS / f"{path.stem}.py").exists(), f"no bank of wrong answers: write tests/misconceptions/{path.stem}.py"
    return importlib.import_module(f"tests.misconceptions.{path.stem}").ANSWERS


def exercises(path):
    """The source of each exercise, by its id, in the order of the lesson."""
    return {L.grading(cell)["grade_id"]: cell.source for cell in L.read(path).cells if L.is_exercise(cell)}


def code(source):
    """What the code does, whatever its comments and spaces; sources that Python cannot read stand for themselves."""
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return source


def test_every_bank_belongs_to_a_lesson():
    banks = {path.stem for path in BANKS.glob("[0-9]*.py")}
    assert banks <= {path.stem for path in LESSONS}


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_bank_is_complete(path):
    answers, given = bank(path), exercises(path)
    assert {answer.exercise for answer in answers} <= set(given), "the bank names an exercise that is not there"
    for exercise, solution in given.items():
        wrong = [answer for answer in answers if answer.exercise == exercise and isinstance(answer, Wrong)]
        right = [answer for answer in answers if answer.exercise == exercise and isinstance(answer, Right)]
        assert len(wrong) >= 4 and right, f"{exercise}: {len(wrong)} wrong answers and {len(right)} right ones"
        assert all(answer.says.strip() for answer in wrong), f"{exercise}: says is empty"
        for kind, counts in (
            ("name", Counter(answer.name for answer in wrong + right)),
            ("code", Counter([code(solution), *(code(with_answer(solution, answer.body)) for answer in wrong + right)])),
        ):
            twice = [item for item, count in counts.items() if count > 1]
            assert not twice, f"{exercise}: two answers, or an answer and the solution, have the same {kind}: {twice}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_checks_tell_wrong_from_right(path, tmp_path, record_property):
    answers = bank(path)
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork a process")
    done = subprocess.run(
        [sys.executable, "-m", "tests.misconceptions.runner", path, f"tests.misconceptions.{path.stem}",
         tmp_path / "results.json"],
        cwd=L.ROOT, env={**os.environ, "MPLBACKEND": "Agg"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stdout
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert isinstance(results, list), results["error"]
    record_property("misconceptions", table(path, results))
    faults = [f"{result['exercise']} / {result['name']} ({result['kind']}): {result['fault']}"
              for result in results if result["fault"]]
    assert not faults, "\n".join(["", *faults])
    assert len(results) == len(answers)


def test_changes_are_one_step_away():
    assert set(changes("if a < 1:\n    return x[:n]\nreturn np.max(a, axis=0)")) == {
        *(f"{first}:\n    return x[:n]\nreturn np.max(a, axis=0)"
          for first in ("if False", "if True", "if a <= 1", "if a > 1", "if a < 2", "if a < 0")),
        *(f"if a < 1:\n    return {part}\nreturn np.max(a, axis=0)" for part in ("x[:]", "x[:n + 1]")),
        *(f"if a < 1:\n    return x[:n]\nreturn {last}"
          for last in ("np.max(a)", "np.min(a, axis=0)", "np.max(a, axis=1)", "np.max(a, axis=-1)"))}


def test_changes_that_mean_the_same_are_accepted_and_others_are_not():
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork a process")
    done = subprocess.run([sys.executable, "-m", "tests.misconceptions.changes", "02", "softmax"], cwd=L.ROOT, text=True,
                          encoding="utf-8", capture_output=True, timeout=300)
    *accepted, counts = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert "    +shift = np.maximum(limits.min, x.data.max(axis=axis, keepdims=True))" in accepted      # arguments exchanged
    assert not any(".min(axis" in line or ".mean(" in line for line in accepted)
    assert re.fullmatch(r"softmax: \d\d changes, \d accepted", counts)


def table(path, results):
    """One row for each exercise: lesson, exercise, wrong answers, caught, right answers, accepted, {check: how many it caught}."""
    rows = []
    for exercise in exercises(path):
        row = [path.stem, exercise]
        for kind in "Wrong", "Right":
            faults = [result["fault"] for result in results
                      if (result["exercise"], result["kind"]) == (exercise, kind)]
            row += [len(faults), faults.count(None)]
        caught = Counter(result["by"] for result in results
                         if (result["exercise"], result["kind"], result["fault"]) == (exercise, "Wrong", None))
        rows.append([*row, dict(caught)])
    return rows
