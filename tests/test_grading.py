"""A made-up class hands in one lesson, nbgrader grades it, and every score is what it should be.

The commands are those of nbs/instructors.md, run on a copy of the course with short time limits.
"""
import ast
import asyncio
import builtins
import copy
import csv
import math
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
import types

import nbformat
import numpy as np
import pytest

pytest.importorskip("nbgrader", reason="the extra 'course' is not installed")

import zmq.asyncio
from traitlets.config import Config

from tests import THREADS, lessons as L
from tests.lessons import cell_named, copied
from tests.misconceptions import Right, Wrong
from tests.misconceptions.runner import with_answer
from tests.test_misconceptions import bank
from tinytorch.grading import (
    CHANGED, COPIED, DELETED, EDITED, MOVED, NOT_REACHED, LessonExecute, LimitedExecute, Originals, defined, definitions,
    error_output, failure, handed_out, kernel_environment, restore, result_of, sentence, stub_reached, title, troubles,
    without_hidden_tests, words,
)

pytestmark = [pytest.mark.notebook, pytest.mark.filterwarnings("default")]

LESSON = "02_layers"
POINTS = {"softmax": 2, "cross_entropy": 3, "rms_norm": 3, "swiglu": 2, "linear": 2, "modules": 1, "modules-shared": 1}    # of each check
EXERCISES = [name for name in POINTS if "-" not in name]
SHORT = "c.Execute.timeout = 15\nc.LessonExecute.lesson_timeout = 120\n"


def source():
    return L.read(L.SOURCE / LESSON / f"{LESSON}.ipynb")


def first(kind, exercise):
    return next(answer.body for answer in bank(L.SOURCE / LESSON / f"{LESSON}.ipynb")
                if isinstance(answer, kind) and answer.exercise == exercise)


class Class:
    """Notebooks that are handed in, and the points that each check must give."""

    def __init__(self, release):
        self.release, self.notebooks, self.expected = release, {}, {}

    def hand_in(self, student, change=lambda nb: None, lost=()):
        """A release notebook with all the reference's answers, changed; the checks in `lost` give no points."""
        nb, answers = nbformat.from_dict(self.release), source()
        for cell in nb.cells:
            if L.is_exercise(cell):
                cell.source = cell_named(answers, L.grading(cell)["grade_id"]).source
        change(nb)
        self.notebooks[student] = nb
        self.expected[student] = {name: 0 if name in lost else points for name, points in POINTS.items()}

    def answer(self, student, exercise, body, lost=()):
        """One exercise is answered by `body`."""
        def change(nb):
            cell = cell_named(nb, exercise)
            cell.source = with_answer(cell.source, body)
        self.hand_in(student, change, lost)


def delete(*names):
    def change(nb):
        nb.cells = [cell for cell in nb.cells if L.grading(cell).get("grade_id") not in names]
    return change


# Ways to the reference that are open to anyone who knows Python a little; each raises.
WAYS_TO_THE_ANSWER = {
    "softmax": "from tinytorch.core.layers import softmax",
    "modules": """
import sys
finder = sys.meta_path.pop(0)
try:
    from tinytorch.core.layers import Module
finally:
    sys.meta_path.insert(0, finder)
""",
    "cross_entropy": """
import subprocess, sys
show = "import inspect, tinytorch.core.layers as layers; print(inspect.getsource(layers))"
exec(subprocess.run([sys.executable, "-c", show], cwd="/", text=True, capture_output=True, check=True).stdout)
""",
    "rms_norm": """
import tinytorch.core.tensor as tensor
exec(open(tensor.__file__.replace("tensor.py", "layers.py")).read())
""",
    "swiglu": """
import importlib, sys
for name in [name for name in sys.modules if name.startswith("tinytorch")]:
    del sys.modules[name]
swiglu = importlib.import_module("tinytorch.core.layers").swiglu
""",
    "linear": """
import os, sys
sys.path[:] = [path for path in sys.path if path != os.getcwd()] + [""]
from tinytorch.core.layers import Linear
""",
}


def made_up_class(release):
    group = Class(release)
    group.hand_in("all_right")

    def another_way(nb):
        for name in EXERCISES:
            cell = cell_named(nb, name)
            cell.source = with_answer(cell.source, first(Right, name))
    group.hand_in("another_way", another_way)

    for name in EXERCISES:
        group.answer(f"wrong_{name}", name, first(Wrong, name), lost={check for check in POINTS if check.split("-")[0] == name})
    group.answer("shares_nothing", "modules", next(answer.body for answer in bank(L.SOURCE / LESSON / f"{LESSON}.ipynb")
                                                   if answer.name == "shared weight twice"), lost={"modules-shared"})

    group.answer("raises", "rms_norm", {0: "raise ValueError('no idea' * 100_000)"}, lost={"rms_norm"})
    group.answer("stub_left", "cross_entropy", {0: "raise NotImplementedError('Write this exercise here.')"},
                 lost={"cross_entropy"})
    group.answer("syntax_error", "cross_entropy", {0: "return ("}, lost={"cross_entropy"})
    group.answer("endless_loop", "swiglu", {0: "while True:\n    pass"}, lost={"swiglu"})
    # cannot be interrupted, so the kernel is given up: what was earned before stays
    group.answer("stubborn_loop", "swiglu", {0: """
while True:
    try:
        while True:
            pass
    except KeyboardInterrupt:
        pass
"""}, lost={"swiglu", "linear", "modules", "modules-shared"})
    group.answer("os_exit", "swiglu", {0: "import os\nos._exit(0)"}, lost={"swiglu", "linear", "modules", "modules-shared"})
    group.answer("sys_exit", "swiglu", {0: "import sys\nsys.exit(0)"}, lost={"swiglu"})
    group.hand_in("exit", lambda nb: nb.cells.insert(nb.cells.index(cell_named(nb, "swiglu")), nbformat.v4.new_code_cell("exit()")))

    def same_names(nb):
        """Cells of one's own that use the names of the lesson's helpers, and a given cell that was changed."""
        next(cell for cell in nb.cells if "def results(tensor)" in cell.source).source = "def results(tensor):\n    return []"
        helpers = "\n".join(cell.source for cell in nb.cells if str(L.grading(cell).get("grade_id")).startswith("check_tools"))
        names = {node.name for node in ast.parse(helpers).body if isinstance(node, ast.FunctionDef)}
        cell = nbformat.v4.new_code_cell("\n".join(f"def {name}(*arguments):\n    return 0" for name in sorted(names)))
        nb.cells.insert(nb.cells.index(cell_named(nb, "softmax")), cell)
    group.hand_in("same_names", same_names)

    def replaces_numpy(nb):
        for name in "softmax", "swiglu":
            cell = cell_named(nb, name)
            cell.source = with_answer(cell.source, first(Wrong, name))
        cell_named(nb, "softmax").source += "\nnp.allclose = lambda *arguments, **options: True"
        cell = cell_named(nb, "swiglu")
        cell.source = cell.source.replace("### BEGIN SOLUTION", "np.allclose = lambda *a, **k: True\n    ### BEGIN SOLUTION", 1)
    group.hand_in("replaces_numpy", replaces_numpy, lost={"softmax", "swiglu"})
    group.answer("prints_for_ever", "swiglu", {0: "while True:\n    print('x' * 1000)"}, lost={"swiglu"})

    def megabyte(nb):
        cell = cell_named(nb, "softmax")
        cell.source = cell.source.replace("### BEGIN SOLUTION", "print('x' * 1_000_000)\n    ### BEGIN SOLUTION", 1)
    group.hand_in("prints_a_megabyte", megabyte)

    def warns(nb):
        cell = cell_named(nb, "modules")
        indent = next(line for line in cell.source.split("\n") if L.BEGIN in line).split("#")[0]
        cell.source = cell.source.replace(
            "### BEGIN SOLUTION", f"np.log(np.zeros(1))  # NumPy warns\n{indent}### BEGIN SOLUTION", 1)
    group.hand_in("warns", warns)

    def edited_check(nb):
        cell_named(nb, "check_softmax").source = "print('softmax is right')"
        cell = cell_named(nb, "softmax")
        cell.source = with_answer(cell.source, first(Wrong, "softmax"))
    group.hand_in("edited_check", edited_check, lost={"softmax"})

    def tagged_check(nb):
        edited_check(nb)
        cell_named(nb, "check_softmax").metadata["tags"] = ["skip-execution", "measure"]
    group.hand_in("tagged_check", tagged_check, lost={"softmax"})

    group.hand_in("deleted_checks", delete("check_linear", "check_tools"))      # they come back, and the answer is right
    group.hand_in("deleted_exercise", delete("swiglu", "check_swiglu"), lost={"swiglu"})

    def imports(nb):
        for name, source in WAYS_TO_THE_ANSWER.items():
            cell_named(nb, name).source = source
        nb.cells.append(copied(cell_named(nb, "check_modules")))
    group.hand_in("imports_the_answer", imports, lost=set(POINTS))

    def copies(nb):
        """What Jupyter's commands for copying, splitting and changing the type of cells make of a notebook."""
        answer, check = cell_named(nb, "softmax"), cell_named(nb, "check_softmax")
        nb.cells.insert(nb.cells.index(answer) + 1, copied(answer))
        nb.cells[nb.cells.index(answer) + 1].source = "second_half = True"
        nb.cells.insert(1, copied(check))
        nb.cells.append(copied(check))
        cell_named(nb, "rms_norm").metadata["nbgrader"]["schema_version"] = 99
        cell_named(nb, "check_rms_norm").metadata["nbgrader"] = {}
        nb.cells.append(nbformat.v4.new_code_cell("1", metadata={"nbgrader": "?"}))
        linear = nb.cells.index(cell_named(nb, "linear"))
        nb.cells[linear] = nbformat.v4.new_markdown_cell(nb.cells[linear].source, metadata=nb.cells[linear].metadata)
    group.hand_in("copies_cells", copies)
    return group


def graded_ids(nb):
    return [name for cell in nb.cells if isinstance(name := L.grading(cell).get("grade_id"), str)]


def test_the_cells_of_a_lesson_are_put_in_order():
    """Whatever a notebook looks like: each locked cell is there once, and nothing else has marks."""
    original, before = handed_out(LESSON), copy.deepcopy(handed_out(LESSON))
    ids, fixed = graded_ids(original), [name for name in graded_ids(original) if name.startswith("check_")]

    def after(change):
        nb = copy.deepcopy(original)
        change(nb)
        found = restore(nb, original)
        assert all(cell.metadata == cell_named(original, L.grading(cell)["grade_id"]).metadata
                   for cell in nb.cells if "nbgrader" in cell.metadata)
        assert original == before                   # it serves the next student, too
        return found, nb

    found, nb = after(lambda nb: None)
    assert (found, nb) == ({}, original)

    def copy_check(nb):
        check = cell_named(nb, "check_softmax")
        nb.cells = [copied(check), *nb.cells, copied(check)]
    found, nb = after(copy_check)
    assert found == {"check_softmax": COPIED} and graded_ids(nb) == ids
    assert L.grading(nb.cells[1]) == L.grading(nb.cells[-1]) == {}
    assert all("The cell `check_softmax` is in the notebook more than once" in nb.cells[index].source for index in (0, -2))

    def change_a_copy(nb):
        check = cell_named(nb, "check_softmax")
        nb.cells.insert(nb.cells.index(check), copied(check))
        nb.cells[nb.cells.index(check) - 1].source = "mine = 1"
    found, nb = after(change_a_copy)
    assert found == {"check_softmax": COPIED} and graded_ids(nb) == ids
    assert [cell.source for cell in nb.cells if cell.cell_type == "code"].count("mine = 1") == 1         # it runs, as a plain cell

    def code(nb):
        return [cell.source for cell in nb.cells if cell.cell_type == "code"]

    def spoil_checks(nb):
        """Changed, above everything, below everything, and worth more."""
        cell_named(nb, "check_rms_norm").source = "print('right')"
        first, last = (nb.cells.pop(nb.cells.index(cell_named(nb, name))) for name in ("check_linear", "check_softmax"))
        nb.cells = [first, *nb.cells, last]
        cell_named(nb, "check_swiglu").metadata["nbgrader"]["points"] = 100
        cell_named(nb, "check_modules").cell_type = "raw"
    found, nb = after(spoil_checks)
    assert found == {"check_rms_norm": CHANGED, "check_modules": CHANGED, "check_linear": MOVED, "check_softmax": MOVED}
    assert [cell.source for cell in nb.cells if not cell.source.startswith("**Note:**")] == [cell.source for cell in original.cells]

    def move_a_section(nb):
        """An exercise together with its check: that is the student's business."""
        at = nb.cells.index(cell_named(nb, "linear"))
        section = nb.cells[at:at + 2]
        del nb.cells[at:at + 2]
        at = nb.cells.index(cell_named(nb, "swiglu"))
        nb.cells[at:at] = section
    found, nb = after(move_a_section)
    assert found == {} and graded_ids(nb).index("check_linear") < graded_ids(nb).index("swiglu")

    def delete_what_is_not_run(nb):
        """What only measures, and what stands below the last check. An answer in text keeps its pictures."""
        last = nb.cells.index(cell_named(nb, graded_ids(nb)[-1]))
        nb.cells = [cell for index, cell in enumerate(nb.cells)
                    if cell.cell_type != "code" or index <= last and not L.is_measuring(cell) or L.grading(cell)]
        next(cell for cell in nb.cells if L.is_question(cell))["attachments"] = {"a.png": {"image/png": "AAAA"}}
    found, nb = after(delete_what_is_not_run)
    assert found == {} and len(code(nb)) < len(code(original)) and sum("attachments" in cell for cell in nb.cells) == 1

    def copy_answers(nb):
        """The first one counts that stands where the lesson has it, also where a later exercise was begun above an earlier one."""
        first, second = cell_named(nb, "softmax"), cell_named(nb, "cross_entropy")
        at = nb.cells.index(first)
        nb.cells[at:at + 1] = [copied(second), first, copied(first)]
        nb.cells[at].source, first.source, second.source = "draft = 1", "first = 1", "second = 1"
    found, nb = after(copy_answers)
    assert found == {"softmax": COPIED, "cross_entropy": COPIED} and graded_ids(nb) == ids
    assert [cell_named(nb, name).source for name in ("softmax", "cross_entropy")] == ["first = 1", "second = 1"]
    assert {"draft = 1", cell_named(original, "softmax").source} <= set(code(nb)) and len(code(nb)) == len(code(original)) + 2

    def draft_on_top(nb):
        """A copy above everything is not in its place, and nothing below it has moved."""
        answer = cell_named(nb, "softmax")
        nb.cells.insert(0, copied(answer))
        nb.cells[0].source, answer.source = "draft = 1", "answer = 1"
    found, nb = after(draft_on_top)
    assert found == {"softmax": COPIED} and graded_ids(nb) == ids and cell_named(nb, "softmax").source == "answer = 1"
    assert "draft = 1" in code(nb) and len(code(nb)) == len(code(original)) + 1

    for marks in ["?"], {"grade_id": ["softmax"], "grade": True}, {"grade_id": "softmax of another lesson"}, {}, None:
        def mark_all(nb):
            for cell in nb.cells:
                cell.metadata["nbgrader"] = marks
        found, nb = after(mark_all)
        assert set(found.values()) == {DELETED} and graded_ids(nb) == fixed

    found, nb = after(lambda nb: nb.cells.clear())
    assert set(found.values()) == {DELETED} and set(fixed) <= set(found) and graded_ids(nb) == fixed

    last = max(index for index, cell in enumerate(original.cells) if L.is_check(cell))
    for index, cell in enumerate(original.cells[:last + 1]):
        if cell.cell_type == "code" and not L.is_exercise(cell) and not L.is_measuring(cell):
            found, nb = after(lambda nb: nb.cells.pop(index))
            assert list(found.values()) == [DELETED] and code(nb) == code(original), cell.source

    def change_given(nb):
        """Changed, deleted, of another type, and above what stood before it."""
        module, embedding, silu, import_math = (
            next(cell for cell in nb.cells if text in cell.source) for text in ("class Module:", "def embedding", "def silu", "import math"))
        module.source += "\nimport json"
        nb.cells.remove(embedding)
        silu.cell_type = "raw"
        nb.cells.insert(0, nb.cells.pop(nb.cells.index(import_math)))
    found, nb = after(change_given)
    assert found == {"that begins with 'def silu(x):'": EDITED, "that begins with 'def embedding(weight, ids):'": DELETED,
                     "that begins with 'class Module:'": EDITED}
    assert f"**Note:** The cell that begins with 'def silu(x):' {EDITED}." in [cell.source for cell in nb.cells]
    edited = next(text for text in code(nb) if text.endswith("import json"))
    wanted = sorted(code(original), key=lambda text: "import math" not in text)             # that one may stay where it is
    wanted.insert(wanted.index(edited.removesuffix("\nimport json")), edited)
    assert code(nb) == wanted

    def move_up_and_delete_the_next(nb):
        """What is put back stands behind the other cells above it, wherever the student has moved one of them."""
        at = nb.cells.index(next(cell for cell in nb.cells if "def embedding" in cell.source))
        del nb.cells[at + 1]
        nb.cells.insert(0, nb.cells.pop(at))
    found, nb = after(move_up_and_delete_the_next)
    assert list(found.values()) == [DELETED]
    assert code(nb) == sorted(code(original), key=lambda text: "def embedding" not in text)

    def move_changed(nb):
        """Below exercises that need it, where it does not count."""
        module = next(cell for cell in nb.cells if "class Module:" in cell.source)
        nb.cells.append(nb.cells.pop(nb.cells.index(module)))
        module.source += "\nimport json"
    found, nb = after(move_changed)
    assert found == {"that begins with 'class Module:'": DELETED} and code(nb)[:-1] == code(original)

    lesson = copy.deepcopy(original)
    measuring = next(cell for cell in lesson.cells if "def silu" in cell.source)
    measuring.metadata["tags"] = ["measure"]
    lesson.cells.append(nbformat.v4.new_code_cell("below = 'the last check'"))
    nb = copy.deepcopy(lesson)
    nb.cells = [cell for cell in nb.cells if cell.source not in (measuring.source, "below = 'the last check'")]
    assert restore(nb, lesson) == {}                                                        # nobody needs these two
    next(cell for cell in nb.cells if "def embedding" in cell.source).metadata["tags"] = ["measure"]
    assert restore(nb, lesson) == {"that begins with 'def embedding(weight, ids):'": EDITED}        # it would not be run


@pytest.mark.parametrize("source, name", [
    ("#| export\n\n@add_to_class(C)\n    def f(): pass", "def f(): pass"), ("#| export", "#| export"), ("x" * 70, "x" * 60)])
def test_what_a_cell_is_called(source, name):
    assert title(nbformat.v4.new_code_cell(source)) == f"that begins with {name!r}"


@pytest.mark.parametrize("name, message, says", [
    ("AssertionError", "\x1b[31mtoo\nlarge\x1b[0m", "too large"), ("ValueError", "too large", "ValueError: too large"),
    ("CellTimeoutError", "still running", "still running"), ("SyntaxError", "bad (123.py, line 2)", "SyntaxError: bad (line 2)"),
    ("AssertionError", "", "AssertionError: no message"),
    ("ModuleNotFoundError", "No module named 'tinytorch.mine'", "ModuleNotFoundError: No module named 'tinytorch.mine'"),
    ("ModuleNotFoundError", "No module named 'mine'", "ModuleNotFoundError: No module named 'mine'. A file beside the notebook is not "
     "there while it is checked: put its code into a cell")])
def test_what_an_error_says(name, message, says):
    assert words(error_output(name, message)) == says


@pytest.mark.parametrize("message, traceback, number", [
    ("other", ["Cell In[3], line 1", "ValueError: other"], None),
    ("Write this exercise here.", ["NotImplementedError: Write this exercise here."], 0),
    ("It raised NotImplementedError('Write this exercise here.')", ["Cell In[5], line 1"], 5),
    ("It must raise Diverged.", ["Cell In[3], line 1", "NotImplementedError: Write this exercise here.", "Cell In[5], line 1"], 3)])
def test_the_cell_whose_stub_ended_a_check(message, traceback, number):
    """Also where the check turned the error into another one."""
    assert stub_reached(nbformat.v4.new_output("error", ename="E", evalue=message, traceback=traceback)) == number


def test_a_given_cell_that_fails_is_named_unless_an_exercise_above_is_open_or_fails():
    nb = source()
    answer = cell_named(nb, "softmax")
    cell = next(cell for cell in nb.cells if "def embedding" in cell.source)
    cell.outputs = [error_output("NameError", "name 'np' is not defined")]
    assert troubles(nb, LESSON) == [f"the cell {title(cell)} fails: NameError: name 'np' is not defined"]
    for change in {"source": "raise NotImplementedError('Write this exercise here.')"}, {"source": "1 / 0", "outputs": cell.outputs}:
        answer.update(change)
        assert troubles(nb, LESSON) == []


@pytest.mark.parametrize("cell, answer, state, message", [
    (3, "raise NotImplementedError('Write this exercise here.')", "to do", ""), (4, "mine = 1", "to do", ""),
    (3, "mine = 1", "not reached", "waits for softmax, which is still to do")])
def test_what_is_to_do_itself_waits_for_nothing(cell, answer, state, message):
    """cell: the number of the cell whose stub ended the check; softmax has 3, and cross_entropy has 4."""
    nb = source()
    check = cell_named(nb, "check_cross_entropy")
    check.outputs = [error_output("NotImplementedError", "Write this exercise here.")]
    check.outputs[0].traceback.insert(0, f"Cell In[{cell}], line 1")
    answers = {name: nbformat.v4.new_code_cell(answer, execution_count=number) for number, name in ((3, "softmax"), (4, "cross_entropy"))}
    result = result_of(check, answers, {}, [])
    assert (result.state, result.message) == (state, message)


@pytest.mark.parametrize("text, full", [("Why", "Why."), ("So.", "So."), ("Why?", "Why?"), ("ValueError: ", "ValueError.")])
def test_a_sentence_ends_once(text, full):
    assert sentence(text) == full


def test_hidden_tests_are_no_change():
    source = "a\n\n### BEGIN HIDDEN TESTS\nb\n### END HIDDEN TESTS\n{}# BEGIN HIDDEN TESTS\nd\n# END HIDDEN TESTS"
    assert [without_hidden_tests(source.format(text)) for text in ("", "c\n", "\n")] == ["a", "a\n\nc", "a"]


def test_the_names_that_code_defines():
    assert defined("import a.b, c as d\ne = f\ng(h)\ndef i(j): k = 1\nfor l in m: pass") == {"a", "d", "e", "i", "l"}
    assert defined("def f(:") == defined("a = '\0'") == set()
    code = "a = b.c = 1\nclass D:\n    def e(self): pass\n@add_to_class(D)\ndef f(self): pass\n%magic\ng[0] = h"
    assert definitions(code) == ["D", "D.f", "a", "b.c"]


def test_what_checks_rely_on_is_put_back(monkeypatch):
    """Functions, classes, modules and constants of the lesson; NumPy, math and Python itself; the code of functions, too."""
    def given(x=1, *, y=2):
        return x + y

    def other():
        return 7
    first = {"given": given, "Kind": Class, "method": "text".upper, "bound": Class.hand_in.__get__(1), "math": math, "LIMIT": 3, "total": 4}
    space, left_alone = {**first, "loose": given, "open": given}, ("exit", "quit", "input", "get_ipython")
    monkeypatch.setattr(builtins, "get_ipython", given, raising=False)
    originals = Originals(space, {"sum"})                       # a name that the lesson defines, though it is one of Python's
    for name in first:
        originals.keep(name)
    space.update(dict.fromkeys([*space, "list", "sum", "sqrt"], 5))
    assert originals.put_back(False) == set() and set(space.values()) == {5}
    assert originals.put_back(True) == {*first, "list"} - {"total"}
    assert space == {**first, "total": 5, "loose": 5, "open": 5, "sum": 5, "sqrt": 5} and originals.put_back(True) == set()
    for name, value in (("__code__", other.__code__), ("__defaults__", (5,)), ("__kwdefaults__", {"y": 5})):
        setattr(given, name, value)
        assert originals.put_back(True) == {"given"} and given() == 3
    sqrt, norm, code = math.sqrt, np.linalg.norm, np.allclose.__wrapped__.__code__
    monkeypatch.setattr(np.allclose.__wrapped__, "__code__", other.__code__)
    for owner, name in ((math, "sqrt"), (math, "pi"), (np.linalg, "norm"), (np.random, "default_rng"), (np, "random"),
                        (np.testing, "assert_allclose"), *((builtins, name) for name in left_alone)):
        monkeypatch.setattr(owner, name, other)
    assert originals.put_back(False) == {"math.sqrt", "math.pi", "numpy.linalg.norm", "numpy.random.default_rng", "numpy.random",
                                         "numpy.testing.assert_allclose", "numpy.allclose"}
    assert (math.sqrt, np.linalg.norm, np.allclose.__wrapped__.__code__) == (sqrt, norm, code)
    assert all(getattr(builtins, name) is other for name in left_alone)
    space["given"] = 5
    originals.keep("given")                                     # from now on the lesson's name is a number's, and free
    space["given"] = 6
    assert originals.put_back(True) == set() and space["given"] == 6


@pytest.mark.parametrize("path", L.lessons(), ids=lambda path: path.stem)
def test_checks_read_no_variable_that_a_student_may_overwrite(path):
    """Of what given cells define, functions, classes, modules and constants in capitals are put back before a check, and nothing else."""
    variables = set()
    for cell in L.read(path).cells:
        if cell.cell_type == "code" and not L.is_exercise(cell):
            tree = ast.parse(cell.source)
            names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
            own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
            if L.grading(cell):
                read = {node.id for node in names} - own
                assert not {name for name in read & variables if not name.isupper()}, title(cell)
            variables |= {node.id for statement in tree.body if isinstance(statement, ast.Assign) for target in statement.targets
                          for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def test_a_notebook_that_is_no_lesson_is_run_too(tmp_path):
    """An assignment of the instructor's own. It also comes to an end."""
    sources = ["print(1 + 1)", "import os\nos._exit(0)", "print(3)"]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("Text"), *map(nbformat.v4.new_code_cell, sources)],
                                  metadata=source().metadata)
    LessonExecute().preprocess(nb, {"nbgrader": {"notebook": "mine"}, "metadata": {"path": str(tmp_path)}})
    assert nb.cells[1].outputs[0].text == "2\n"
    assert failure(nb.cells[3]).ename == NOT_REACHED


def test_nobody_is_told_what_pyzmq_does_on_windows(tmp_path, monkeypatch, recwarn):
    """There it warns that asyncio's usual loop lacks something, and adds it. Here it is told that our loop is that one.

    Nor is anybody told that IPython cannot write into a folder and takes another one.
    """
    monkeypatch.setenv("IPYTHONDIR", os.path.join(os.devnull, "ipython"))
    monkeypatch.setattr(asyncio, "ProactorEventLoop", asyncio.SelectorEventLoop, raising=False)
    monkeypatch.setattr(zmq.asyncio, "_get_selector", zmq.asyncio._get_selector_windows)
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1 + 1)")], metadata=source().metadata)
    LessonExecute().preprocess(nb, {"nbgrader": {"notebook": "mine"}, "metadata": {"path": str(tmp_path)}})
    assert nb.cells[0].outputs[0].text == "2\n"
    assert not [warning for warning in recwarn if re.search("Proactor|IPython", str(warning.message))]


@pytest.mark.parametrize("reply, says", [
    (None, None), ({"status": "error"}, "While the check ran, get_ipython was replaced."),
    ({"user_expressions": {"it": {"status": "ok", "data": {"text/plain": "([], [])"}}}}, None)])
def test_a_kernel_that_does_not_answer_is_no_fault_of_a_check(monkeypatch, reply, says):
    """It may have died behind a check that had passed. What comes next is not reached."""
    run, check = LessonExecute(), nbformat.v4.new_code_cell()
    run.lost, run.replaced, run.kc = None, [], types.SimpleNamespace(execute=lambda *code, **options: "the message")
    monkeypatch.setattr(run, "reply_to", lambda message, seconds: reply)
    run.look_after(check)
    assert (failure(check) and failure(check).evalue) == says
    assert run.lost == (None if reply else "the kernel does not answer any more")


@pytest.mark.parametrize("timeout, hurry, left, expected", [
    (30, False, 100, 30), (30, True, 100, 3), (30, False, 20, 20), (60, True, 4, 4), (4, True, 100, 1), (30, False, -1, 1),
    (None, False, 100, 100), (-1, False, 100, 100), (None, True, 60, 6)])
def test_how_long_a_cell_may_run(timeout, hurry, left, expected):
    """Its own limit, a tenth of it behind a check that ran too long, and never more than the notebook has left."""
    run = LimitedExecute(timeout=timeout)
    run.hurry, run.deadline = hurry, time.monotonic() + left
    assert run.seconds_for(None) == expected
    assert run.error_on_timeout["evalue"].startswith(f"still running after {expected} seconds;")


def test_numpy_gets_one_thread_unless_the_user_says_more(monkeypatch):
    """In the kernels of nbgrader and of the student's checks."""
    monkeypatch.setattr("os.environ", {"PATH": "", "MKL_NUM_THREADS": "3"})
    monkeypatch.setattr("sys.path", list(sys.path))
    wanted = {**dict.fromkeys(THREADS, "1"), "MKL_NUM_THREADS": "3"}
    assert kernel_environment("folder").items() >= wanted.items() and "OMP_NUM_THREADS" not in os.environ
    runpy.run_path(str(L.ROOT / "nbgrader_config.py"), {"get_config": Config})
    assert os.environ.items() >= wanted.items()


def nbgrader(folder, *arguments):
    """Run an nbgrader command in the course; returns its exit code and what it printed."""
    done = subprocess.run([sys.executable, "-c", "from nbgrader.apps.nbgraderapp import main; main()", *arguments],
                          cwd=folder, text=True, encoding="utf-8", errors="replace", timeout=600,
                          env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The class is graded: the folder of the course, the class, and what autograde printed."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(L.ROOT / "tinytorch", folder / "tinytorch", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(L.SOURCE / LESSON, folder / "modules" / "source" / LESSON)
    config = (L.ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    (folder / "nbgrader_config.py").write_text(config + SHORT, encoding="utf-8")
    code, said = nbgrader(folder, "generate_assignment", LESSON)
    assert code == 0, said
    group = made_up_class(L.read(folder / "modules" / "release" / LESSON / f"{LESSON}.ipynb"))
    for student, nb in group.notebooks.items():
        path = folder / "modules" / "submitted" / student / LESSON / f"{LESSON}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(nb, path)
    unreadable = folder / "modules" / "submitted" / "unreadable" / LESSON / f"{LESSON}.ipynb"
    unreadable.parent.mkdir(parents=True)
    unreadable.write_text("{", encoding="utf-8")
    return folder, group, nbgrader(folder, "autograde", LESSON)


def scores(folder):
    """Points of every submission in the gradebook: {student: {check: points}}."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder / 'modules' / 'gradebook.db'}") as gradebook:
        return {submission.student.id: {grade.name.removeprefix("check_"): grade.auto_score
                                        for notebook in submission.notebooks for grade in notebook.grades
                                        if grade.name.startswith("check_")}
                for submission in gradebook.assignment_submissions(LESSON)}


def test_nbgrader_hands_out_what_a_workspace_holds(course):
    assert L.read(course[0] / "modules" / "release" / LESSON / f"{LESSON}.ipynb") == handed_out(LESSON)


def test_every_score(course):
    folder, group, (code, said) = course
    found = scores(folder)
    unreadable = found.pop("unreadable", {})
    assert not any(unreadable.values())
    wrong = {student: (found.get(student), expected) for student, expected in group.expected.items()
             if found.get(student) != expected}
    assert not wrong, "\n".join([f"{student}: got {got}, expected {expected}" for student, (got, expected) in wrong.items()] +
                               [line for line in said.split("\n") if any(student in line for student in wrong)])
    assert code != 0 and said.count("There was an error processing assignment '02_layers'") == 1
    assert "for student 'unreadable'" in said              # the instructor is told of the one that has no grade
    assert "The cell check_softmax is in the notebook more than once" in said
    assert "The notebook gives numpy.allclose another meaning; checks use the original." in said


def test_feedback_and_grades(course):
    """What a student and the instructor get: the message of a failed check, and a table of scores."""
    folder, group, _ = course
    code, said = nbgrader(folder, "generate_feedback", LESSON, "--student=imports_the_answer")
    assert code == 0, said
    page = folder / "modules" / "feedback" / "imports_the_answer" / LESSON / f"{LESSON}.html"
    page = page.read_text(encoding="utf-8")
    assert f"{LESSON} builds tinytorch.core.layers itself" in page
    assert "check_modules</code> is in the notebook more than once" in page
    code, said = nbgrader(folder, "export")
    assert code == 0, said
    with open(folder / "grades.csv", encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    total = sum(POINTS.values())
    for student, expected in group.expected.items():
        assert float(rows[student]["score"]) == sum(expected.values()), student
        assert float(rows[student]["max_score"]) == total


def test_what_a_grader_keeps_is_small(course):
    folder, _, _ = course
    for student in "prints_a_megabyte", "prints_for_ever", "raises":
        assert (folder / "modules" / "autograded" / student / LESSON / f"{LESSON}.ipynb").stat().st_size < 400_000


def test_the_sources_pass_and_the_release_fails(course):
    """nbgrader validate, as an instructor runs it before handing out."""
    folder, _, _ = course
    for kind, says in ("source", "Success"), ("release", "failed"):
        _, said = nbgrader(folder, "validate", f"modules/{kind}/{LESSON}/{LESSON}.ipynb")
        assert says in said
