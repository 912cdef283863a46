"""What a student gets holds no answer, and what a student has not done fails.

The release notebooks are those of `tinytorch course start`; tests/test_grading.py says that nbgrader makes the same ones.
"""
import dis
import itertools
import keyword
import re
from types import CodeType

import pytest

pytest.importorskip("nbgrader", reason="the extra 'course' is not installed")

from tests import lessons as L
from tests.misconceptions.runner import with_answer
from tinytorch.grading import release

LESSONS = L.lessons()

pytestmark = [
    pytest.mark.notebook,
    # Jupyter's own libraries warn about each other; a lesson's warnings are looked for in its outputs.
    pytest.mark.filterwarnings("default"),
]


def name(path):
    return path.stem


def all_lines(value):
    """Every line of every text in a notebook: sources, outputs, metadata, attachments; stripped."""
    if isinstance(value, str):
        yield from (line.strip() for line in value.splitlines())
    elif isinstance(value, dict):
        for item in value.values():
            yield from all_lines(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from all_lines(item)


def tells(line):
    """Whether a line says something: at least two different names, numbers or words that are not Python keywords.

    `out = a + b` does. `else:`, `)` and `return out` do not; they stand in any program.
    """
    return len(set(re.findall(r"\w+", line)) - set(keyword.kwlist)) >= 2


def solution_lines(cell):
    return {line.strip() for region in L.regions(cell.source) for line in region.lines if tells(line)}


def given_lines(nb):
    """The lines of the source notebook that stand outside its solutions, so a student is meant to see them."""
    return {line.strip() for cell in nb.cells for line in L.outside(cell.source)}


def solutions(nb):
    """The telling lines of each exercise and question, by its id."""
    return {L.grading(cell)["grade_id"]: solution_lines(cell) for cell in nb.cells if L.grading(cell).get("solution")}


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_release_holds_no_solution_line(path):
    nb = L.read(path)
    secret = set().union(*solutions(nb).values()) - given_lines(nb)
    assert secret
    leaked = secret & set(all_lines(release(L.read(path))))
    assert not leaked, "\n".join(sorted(leaked))


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_answers_are_not_given_elsewhere_in_the_lesson(path):
    """Lines that repeat outside are no secret, so an answer must mostly consist of lines that do not."""
    nb = L.read(path)
    given = given_lines(nb)
    for exercise, lines in solutions(nb).items():
        shown = lines & given
        assert len(shown) <= len(lines) / 2, f"{exercise}: the lesson shows these lines of its answer: {shown}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_the_words_that_make_an_instructor_look_stand_in_no_lesson(path):
    page = (L.ROOT / "nbs" / "instructors.md").read_text(encoding="utf-8")
    words = re.search(r'grep -lE "(.+)" modules/submitted', page)[1]
    assert re.search(words, "exec(code)")
    found = [line for line in all_lines(L.read(path)) if re.search(words, line)]
    assert not found


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_release_has_no_markers_and_no_outputs(path):
    nb = release(L.read(path))
    text = "\n".join(all_lines(nb))
    for marker in (L.BEGIN, L.END, "BEGIN HIDDEN TESTS", "END HIDDEN TESTS", "BEGIN MARK SCHEME", "END MARK SCHEME"):
        assert marker not in text
    for cell in nb.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None, cell.source
        assert not cell.get("attachments"), f"draw pictures with code:\n{cell.source}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_release_keeps_what_is_given_and_puts_a_stub_in_every_region(path):
    for source, cell in zip(L.read(path).cells, release(L.read(path)).cells, strict=True):
        stub = "raise NotImplementedError(" if L.is_exercise(cell) else "Write your answer"
        lines = cell.source.split("\n")
        kept = [line for line in lines if stub not in line]
        assert kept == L.outside(source.source)
        assert len(lines) - len(kept) == len(L.regions(source.source))
        if cell.cell_type == "code" and not cell.source.lstrip().startswith("%"):
            compile(cell.source, "a cell", "exec")


def instructions(code, path=()):
    """(path, instruction) of everything in some code; the path has the names of the functions and classes around it."""
    yield from ((path, instruction) for instruction in dis.get_instructions(code))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from instructions(inner, (*path, inner.co_name))


def globals_read(source):
    """(path, name) for every name that a function reads as a global one."""
    return {(path, found.argval) for path, found in instructions(compile(source, "a cell", "exec"))
            if found.opname == "LOAD_GLOBAL"}


def globals_set(source):
    """The names that a cell leaves behind: assigned, imported, defined, or counted by a loop."""
    return {found.argval for path, found in instructions(compile(source, "a cell", "exec"))
            if found.opname == "STORE_GLOBAL" or found.opname == "STORE_NAME" and not path}


def test_names_that_a_cell_leaves_behind_are_found():
    source = """
import numpy.linalg, os.path as places
from math import pi as half_turn
with open(places) as (file, [other]):
    for i, (j, *rest) in enumerate([k for k in file]):
        first = second = (walrus := i)
try:
    pass
except OSError as error:
    pass
class Box:
    inside: int = 1
    def method(self):
        local = half_turn
        def inner():
            global declared
            declared = local + after
            return [x for x in local]
        return inner
"""
    assert globals_set(source) == {"numpy", "places", "half_turn", "file", "other", "i", "j", "rest", "first", "second",
                                   "walrus", "error", "Box", "declared"}
    assert globals_read(source) == {(("Box", "method"), "half_turn"), (("Box", "method", "inner"), "after")}


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_no_global_stands_in_for_a_name_that_an_answer_forgets(path):
    """What the given lines of an exercise read, and only the answer assigns, no other cell may leave in the notebook."""
    cells = [cell for cell in L.read(path).cells if cell.cell_type == "code"]
    for exercise in filter(L.is_exercise, cells):
        blank = with_answer(exercise.source, {i: "pass" for i in range(len(L.regions(exercise.source)))})
        wanted = {name for _, name in globals_read(blank) - globals_read(exercise.source)}
        for cell in cells:
            if cell is not exercise:
                taken = wanted & globals_set(cell.source)
                assert not taken, f"{L.grading(exercise)['grade_id']} sets {taken}, and so does this cell:\n{cell.source}"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_every_check_of_the_release_fails(path, tmp_path):
    """As `nbgrader validate` sees it: no point for work that was not done."""
    from nbgrader.utils import determine_grade

    nb = L.execute(release(L.read(path)), tmp_path, seconds=600, keep_going=True, skip=L.is_measuring)
    for cell in itertools.takewhile(lambda cell: not L.is_exercise(cell), nb.cells):
        failed = [output.ename for output in cell.get("outputs", []) if output.output_type == "error"]
        assert not failed, f"{failed} before the first exercise:\n{cell.source}"
    scores = {L.grading(cell)["grade_id"]: determine_grade(cell)[0] for cell in nb.cells if L.is_check(cell)}
    assert scores, "no checks"
    assert not any(scores.values()), f"points for nothing: {scores}"
    errors = [output.ename for cell in nb.cells if L.is_check(cell) for output in cell.outputs
              if output.output_type == "error"]
    assert errors[0] == "NotImplementedError", f"the first check must find the stub, but it found {errors[0]}"
