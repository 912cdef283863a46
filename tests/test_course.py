"""A student's workspace: made, checked, solved, and run on the student's own package."""
import ast
import contextlib
import copy
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest

for _package in "nbgrader", "nbdev":
    pytest.importorskip(_package, reason="the extra 'course' is not installed")

from nbclient import NotebookClient

from tests import course_table, lessons as L
from tests.lessons import cell_named, copied
from tests.misconceptions import Wrong
from tests.misconceptions.runner import with_answer
from tests.test_misconceptions import bank
from tinytorch import course
from tinytorch.cli import main
from tinytorch.course import (
    MARK, STUB, ImportTable, Refused, Workspace, built_by, digest, earlier_lessons, faults_of_package, file_of, find_lesson,
    import_fault, import_table, is_open, is_solved, lessons, minutes, need, wrapped, write_package,
)
from tinytorch.grading import EDITED, handed_out, is_exported, passed_on, restore

pytestmark = [pytest.mark.notebook, pytest.mark.filterwarnings("default")]

LESSON = "03_attention"
EXERCISES = ["apply_rotary", "visible", "grouped_attention", "heads", "attention"]
CHECKS = sum(L.is_check(cell) for cell in L.read(lessons()[LESSON]).cells)


def tinytorch(folder, *arguments, package=None):
    """Run the command in a folder; returns exit code, standard output, standard error.

    In this process, because importing Jupyter takes seconds; with `package`, the folder that holds it, in a new one.
    """
    arguments = [str(argument) for argument in arguments]
    if package is not None:
        code = "import sys; sys.path.remove(''); from tinytorch.cli import main; sys.exit(main())"
        done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, text=True, encoding="utf-8",
                              capture_output=True, timeout=300, env={**os.environ, "PYTHONPATH": str(package)})
        return done.returncode, done.stdout, done.stderr
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(arguments)
    finally:
        os.chdir(before)
    return code, out.getvalue(), err.getvalue()


def python(folder, code, package=L.ROOT, **environment):
    """Run code in a folder, which comes first in the search for modules, as in a kernel; the installed package is `package`."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, text=True, encoding="utf-8", capture_output=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(package), **environment})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A new workspace in which the lessons before LESSON are solved."""
    folder = tmp_path_factory.mktemp("student") / "work"
    code, out, err = tinytorch(folder.parent, "course", "start", "work", "--from", LESSON[:2])
    assert (code, err) == (0, ""), out + err
    assert LESSON in out
    return folder


@pytest.fixture
def workspace(made, tmp_path):
    """A copy of that workspace, for one test."""
    return shutil.copytree(made, tmp_path / "work")


def edit(path, change):
    nb = L.read(path)
    change(nb)
    nbformat.write(nb, path)


def split_cell(nb, name, rest):
    """Split a cell, as Jupyter does it: both halves have the metadata."""
    cell = cell_named(nb, name)
    nb.cells.insert(nb.cells.index(cell) + 1, copied(cell))
    nb.cells[nb.cells.index(cell) + 1].source = rest


def imports(nb):
    """The modules of tinytorch that the cells of a notebook import."""
    return {node.module for cell in nb.cells if cell.cell_type == "code" for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.ImportFrom) and node.module.startswith("tinytorch.")}


def solution(name, lesson=LESSON):
    return cell_named(L.read(lessons()[lesson]), name).source


def give(answers, lesson=LESSON):
    """A change that writes the sources {cell: text} into a notebook."""
    def change(nb):
        for name, text in answers.items():
            cell_named(nb, name).source = text
    return change


def all_right():
    return {name: solution(name) for name in EXERCISES}


def lines(out):
    """What check said of each exercise: {exercise: (state, message)}."""
    found = {}
    for line in out.splitlines():
        words = line.split()
        for name in EXERCISES:
            if name in words[:3]:
                state, _, message = line.partition(name)
                found[name] = state.strip(), message.strip()
    return found


@pytest.mark.parametrize("arguments, text", [(["start", "more"], "Making the lessons"), (["check", "01"], "Checking 01_tensor")])
def test_what_takes_seconds_has_a_bar_on_a_terminal(workspace, monkeypatch, arguments, text):
    monkeypatch.setenv("FORCE_COLOR", "1")                      # rich takes that for a terminal
    monkeypatch.setenv("TERM", "xterm")
    out, err = tinytorch(workspace, "course", *arguments)[1:]
    assert text in err and text not in out


def test_start_makes_release_notebooks_and_a_package(made):
    for lesson, path in lessons().items():
        text = (made / f"{lesson}.ipynb").read_text(encoding="utf-8")
        if lesson < LESSON:
            assert text == path.read_text(encoding="utf-8")
        else:
            nb = nbformat.reads(text, as_version=4)
            assert all(STUB in cell.source for cell in nb.cells if L.is_exercise(cell))
            assert L.BEGIN not in text
    assert (made / "README.md").is_file()
    built = {path.relative_to(made).as_posix() for path in (made / "tinytorch").rglob("*.py")}
    assert {module.replace(".", "/") + ".py" for module, notebook in built_by().items() if notebook < "90"} <= built
    modules = set().union(*(imports(L.read(path)) for path in lessons().values()))
    code, out, err = python(made, f"import {', '.join(sorted(modules))}")     # what a notebook imports, a kernel finds there
    assert code == 0, err
    code, out, err = python(made, "from importlib import resources; print(resources.files('tinytorch.models') / 'tiny.safetensors')")
    assert out.strip() == str(made / "tinytorch" / "models" / "tiny.safetensors"), err


def test_start_refuses_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("mine", encoding="utf-8")
    code, out, err = tinytorch(tmp_path, "course", "start", "work")
    assert (code, out) == (2, "") and "no empty folder" in err and err.count("\n") == 1
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["notes.txt"]
    assert "no empty folder" in tinytorch(tmp_path, "course", "start", "work/notes.txt")[2]


def test_start_takes_an_empty_folder(tmp_path):
    (tmp_path / "my work").mkdir()
    code, out, err = tinytorch(tmp_path, "course", "start", "my work", "--from", "8")
    assert (code, err) == (0, "")
    assert out.endswith('Start with 08_pretrained.ipynb:\n    cd "my work"\n    jupyter lab 08_pretrained.ipynb\n')


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_start_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, error):
    """What is half made would be no empty folder for the next start."""
    def fail(package):
        assert (package.parent / f"{LESSON}.ipynb").is_file()
        raise error
    monkeypatch.setattr(course, "copy_weights", fail)
    code, out, err = tinytorch(tmp_path, "course", "start", "work")
    assert (code, out) == ((2, "") if isinstance(error, OSError) else (130, ""))
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("arguments, says", [
    (["check", "03"], "no workspace"), (["status"], "no workspace"), (["solve", "03"], "no workspace"),
    (["start", "work", "--from", "77"], "no lesson '77'"), (["start", "work", "--from", ""], "no lesson ''"),
    (["start", os.devnull + "/work"], "Choose another place"),
])
def test_errors_are_sentences(tmp_path, arguments, says):
    code, out, err = tinytorch(tmp_path, "course", *arguments)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["6", "06", "kv_cache", "06_kv_cache", "06_kv_cache.ipynb", "work/06_kv_cache.ipynb"])
def test_a_lesson_has_several_names(text):
    assert find_lesson(text) == "06_kv_cache"


def test_a_lesson_is_a_notebook_with_the_name_of_its_folder(tmp_path, monkeypatch):
    """In a clone; an installed package has its own, which come first."""
    monkeypatch.setattr(course, "PACKAGE", tmp_path / "tinytorch")
    for folder, names, found in (("modules/source", ["02_b/02_b", "02_b/notes", "01_a/01_a", "90_c/90_c"], ["01_a", "02_b"]),
                                 ("tinytorch/_lessons", ["03_d/03_d"], ["03_d"])):
        for path in (tmp_path / folder / f"{name}.ipynb" for name in names):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        assert lessons() == {name: tmp_path / folder / name / f"{name}.ipynb" for name in found} and list(lessons()) == found


def test_what_the_installation_lacks_is_named(tmp_path, monkeypatch):
    with pytest.raises(Refused, match="needs more packages .No module named 'no_such'.. Install them: pip install"):
        need("no_such")
    monkeypatch.setattr(course, "PACKAGE", tmp_path / "tinytorch")
    with pytest.raises(Refused, match="lacks the notebooks of its lessons"):
        lessons()


@pytest.mark.parametrize("damage, says", [(lambda path: path.write_text("{", encoding="utf-8"), "cannot be read"),
                                          (lambda path: path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig"),
                                           "without a byte order mark"),
                                          (lambda path: path.unlink(), "is missing")])
def test_a_notebook_that_cannot_be_run(workspace, damage, says):
    damage(workspace / f"{LESSON}.ipynb")
    code, out, err = tinytorch(workspace, "course", "check", LESSON)
    assert code == 2 and says in err and err.count("\n") == 1 and "passed" not in out


def test_notebooks_import_the_students_package(workspace):
    """In a kernel as Jupyter starts it. Where a lesson is not solved, the reference stands in, also after nbdev_export."""
    edit(workspace / "02_layers.ipynb", give({"softmax": f"#| export\ndef softmax(x, axis=-1):\n    {STUB}"}))
    assert python(workspace, "from nbdev.doclinks import nbdev_export; nbdev_export()")[0] == 0
    assert STUB in (workspace / "tinytorch" / "core" / "layers.py").read_text(encoding="utf-8")
    cells = ("from tinytorch.core import tensor, layers\nprint(tensor.__file__, layers.__file__, sep='\\n')\n"
             "print(layers.softmax(tensor.Tensor([0.0, 0.0])).data)")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cells)])
    client = NotebookClient(nb, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(workspace)}})
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    client.execute(env={**environment, "JPY_SESSION_NAME": f"{LESSON}.ipynb"})
    said = {output.name: output.text for output in nb.cells[0].outputs}
    assert said["stdout"].split("\n")[:3] == [str(workspace / "tinytorch" / "core" / "tensor.py"),
                                             str(L.ROOT / "tinytorch" / "core" / "layers.py"), "[0.5 0.5]"]
    assert said["stderr"] == "Notice: 02_layers is not solved yet; the reference stands in for it.\n"


def test_where_modules_come_from(workspace):
    """Solved lessons from the workspace, what is no lesson from the reference; a lesson's checks get neither it nor later ones."""
    package, numbers = workspace / "tinytorch", built_by()
    mine = {module for module, notebook in numbers.items() if notebook < LESSON}
    later = {module: notebook for module, notebook in numbers.items() if LESSON <= notebook < "90"}
    for lesson, withheld, stand_ins in (LESSON, later, {}), (None, {}, later):
        table = import_table(lesson, package)
        assert table.withheld.keys() == withheld.keys() and table.stand_ins == stand_ins
        assert table.files == {module: file_of(module, package if module in mine else course.PACKAGE)
                               for module in numbers.keys() - withheld.keys()}
    assert import_table(LESSON) == ImportTable({module: file_of(module, course.PACKAGE) for module in numbers.keys() - later.keys()},
                                               import_table(LESSON, package).withheld, {})


def test_in_jupyter_too_a_lesson_does_not_get_its_own_answer(workspace):
    code = "from tinytorch.core.layers import softmax\nprint('an earlier lesson')\nfrom tinytorch.{} import *\nprint('answer')"
    for module, says in ("core.attention", "builds tinytorch.core.attention itself"), ("models.transformer", "comes later"):
        status, out, err = python(workspace, code.format(module), JPY_SESSION_NAME=f"somewhere/{LESSON}.ipynb")
        assert status == 1 and out == "an earlier lesson\n" and says in err
        status, out, _ = python(workspace, code.format(module), JPY_SESSION_NAME="notes.ipynb")
        assert status == 0 and "answer" in out


def test_a_workspace_without_its_reference_still_imports(workspace):
    """Because the installed package has moved, say. What is not solved then fails by its own sentence."""
    init = workspace / "tinytorch" / "__init__.py"
    init.write_text(init.read_text(encoding="utf-8").replace(repr(str(L.ROOT / "tinytorch")), "'/nowhere'"), encoding="utf-8")
    code, out, err = python(workspace, "import sys\n"      # without the hook by which an editable installation is found anywhere
                            "sys.meta_path[:] = [f for f in sys.meta_path if '__editable__' not in getattr(f, '__module__', '')]\n"
                            "from tinytorch.core import attention\nprint('imported')\nattention.visible(None, None)")
    assert code == 1 and out == "imported\n" and "NotImplementedError: Write this exercise here." in err
    tinytorch(workspace, "course", "solve", LESSON)
    assert repr(str(L.ROOT / "tinytorch")) in init.read_text(encoding="utf-8")


def test_nbdev_export_builds_the_students_package(workspace):
    """By the command, as the README says; what was kept by `solve` is not exported."""
    edit(workspace / f"{LESSON}.ipynb", lambda nb: nb.cells.append(
        nbformat.v4.new_code_cell("#| export\nmine = 1")))
    code, out, _ = tinytorch(workspace, "course", "solve", LESSON)
    assert code == 0 and f"_{LESSON}_mine_1.ipynb" in out
    assert "mine = 1" in (workspace / f"_{LESSON}_mine_1.ipynb").read_text(encoding="utf-8")
    code, _, err = python(workspace, "from nbdev.doclinks import nbdev_export; nbdev_export()")
    assert code == 0, err
    built = (workspace / "tinytorch" / "core" / "attention.py").read_text(encoding="utf-8")
    assert STUB not in built and "mine = 1" not in built
    code, _, err = tinytorch(workspace, "course", "solve", LESSON)
    assert code == 2 and "already" in err


def test_solve_keeps_every_notebook_of_the_student(workspace):
    path = workspace / f"{LESSON}.ipynb"
    for text in "first", "second":
        edit(path, append(text))
        assert tinytorch(workspace, "course", "solve", LESSON)[0] == 0
    assert [L.read(workspace / f"_{LESSON}_mine_{i}.ipynb").cells[-1].source for i in (1, 2)] == ["first", "second"]
    path.write_text("damaged", encoding="utf-8")
    assert tinytorch(workspace, "course", "solve", LESSON)[0] == 0
    assert (workspace / f"_{LESSON}_mine_3.ipynb").read_text(encoding="utf-8") == "damaged"
    path.unlink()
    assert tinytorch(workspace, "course", "solve", LESSON) == (0, f"{path.name} now holds the reference solution.\n", "")
    assert path.read_bytes() == lessons()[LESSON].read_bytes()


def test_the_package_follows_the_notebooks_by_content(workspace):
    """An older notebook that is put back by hand counts, whatever the time stamps say."""
    notebook, built = workspace / f"{LESSON}.ipynb", workspace / "tinytorch" / "core" / "attention.py"
    assert tinytorch(workspace, "course", "solve", LESSON)[0] == 0
    assert STUB not in built.read_text(encoding="utf-8")
    (workspace / f"_{LESSON}_mine_1.ipynb").replace(notebook)
    os.utime(notebook, (1, 1))
    assert tinytorch(workspace, "course", "check", "02")[0] == 0
    assert STUB in built.read_text(encoding="utf-8")
    notebook.unlink()
    assert tinytorch(workspace, "course", "solve", "04")[0] == 0
    assert built.read_text(encoding="utf-8") == STUB


def test_check_passes_right_answers_and_status_remembers(workspace):
    edit(workspace / f"{LESSON}.ipynb", give(all_right()))
    code, out, err = tinytorch(workspace, "course", "check", "attention")
    assert (code, err) == (0, ""), out + err
    assert lines(out) == {name: ("passed", "") for name in EXERCISES}
    _, out, _ = tinytorch(workspace, "course", "status")
    states = {line.split()[0]: " ".join(line.split()[2:]) for line in out.splitlines()[1:-1]}
    assert states["02_layers"].startswith("reference solution")
    assert states[LESSON].startswith((f"done {CHECKS} of {CHECKS}", f"reference solution {CHECKS} of {CHECKS}"))
    assert states["04_transformer"] == "not begun"


def state_of(workspace, lesson=LESSON):
    return next(" ".join(line.split()[2:]) for line in tinytorch(workspace, "course", "status")[1].splitlines()
                if line.startswith(lesson))


def test_status_tells_what_is_not_begun_from_what_is_wrong(workspace):
    path = workspace / f"{LESSON}.ipynb"
    assert state_of(workspace) == "not begun"
    edit(path, lambda nb: [cell.update(execution_count=3) for cell in nb.cells if cell.cell_type == "code"])      # it was run
    assert tinytorch(workspace, "course", "check", LESSON)[0] == 1
    assert state_of(workspace) == f"not begun 0 of {CHECKS}"
    edit(path, give({"visible": solution("visible").replace("<=", "<") + f"\n    {STUB}"}))                     # the stub may stay below
    assert state_of(workspace) == f"changed since its check 0 of {CHECKS}"
    assert tinytorch(workspace, "course", "check", LESSON)[0] == 1
    assert state_of(workspace) == f"not right yet 0 of {CHECKS}"
    edit(workspace / "04_transformer.ipynb", append("mine"))
    assert state_of(workspace, "04_transformer") == "not checked"


def test_a_workspace_from_before_it_remembered_what_was_handed_out(workspace):
    """Nothing can be said to be not begun there, so everything is checked."""
    (workspace / MARK).write_text('{"version": "0.0.1", "lessons": {}}', encoding="utf-8")
    for lesson in list(lessons())[4:]:
        shutil.copy(lessons()[lesson], workspace / f"{lesson}.ipynb")
    assert [state_of(workspace, lesson) for lesson in lessons()][2:5] == ["not checked", "not checked", "reference solution"]
    code, out, err = tinytorch(workspace, "course", "check")
    assert (code, err) == (1, "") and f"{LESSON}: 0 of {CHECKS} checks passed" in out
    assert state_of(workspace) == f"not right yet 0 of {CHECKS}"


@pytest.mark.parametrize("width", [80, 40])
def test_status_fits_the_terminal(workspace, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    space = Workspace(workspace)
    edit(space.notebook(LESSON), give({**all_right(), "heads": solution("heads") + "\n# mine"}))
    space.remember(**{LESSON: {"digest": digest(space.notebook(LESSON)), "passed": CHECKS, "checks": CHECKS, "exported": False}})
    out = tinytorch(workspace, "course", "status")[1]
    table = out.splitlines()[:-1]
    assert out.isascii() and max(map(len, table)) <= width and "04_transformer" in out
    assert (f"passed, not in your package  {CHECKS} of {CHECKS}" in out) == (width == 80)


@pytest.mark.parametrize("columns, lines", [
    (40, ["failed       heads  The gradient of x", " " * 13 + "must not be written into."]),
    (200, ["failed       heads  The gradient of x must not be written into."]),
])
def test_a_long_message_is_broken_between_words_on_a_terminal_only(monkeypatch, columns, lines):
    text = "failed       heads  The gradient of x must not be written into."
    monkeypatch.setenv("COLUMNS", str(columns))
    assert wrapped(text, 20) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert wrapped(text, 20) == "\n".join(lines)
    assert wrapped(text, 20, io.StringIO()) == text
    assert wrapped("x" * 300, 20) == "x" * 300              # a path can be copied


def test_what_cannot_be_remembered_leaves_the_memory_as_it_was(workspace):
    space = Workspace(workspace)
    facts = {"digest": "d", "passed": 1, "checks": 2, "exported": True}
    space.remember(**{LESSON: facts})
    (workspace / f"{MARK}.new").mkdir()                                         # a full disk, for example
    with pytest.raises(OSError):
        space.remember(**{LESSON: {**facts, "passed": 2}})
    assert space.remembered() == {LESSON: facts}


def test_a_workspace_is_found_from_inside(made, tmp_path):
    assert Workspace.find(made / "tinytorch" / "core").folder == made.resolve()
    assert Workspace.find(tmp_path) is None


def test_only_other_code_is_another_notebook(tmp_path):
    def of(*cells):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
        return digest(tmp_path / "a.ipynb")

    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    printed = [nbformat.v4.new_output("stream", text="5")]
    assert of(code("a = 1"), text("Question"), code("b")) == of(code("a = 1", outputs=printed, execution_count=3), text("Answer"), code("b"))
    assert len({of(code("a = 1"), code("b")), of(code("a = 1\nb")), of(code("a = 2"), code("b"))}) == 3
    (tmp_path / "a.ipynb").write_bytes(b"\xff")
    (tmp_path / "b.ipynb").write_bytes(b"[]")
    (tmp_path / "c.ipynb").write_bytes(b"{}")
    a, b, c, missing = (digest(tmp_path / f"{name}.ipynb") for name in "abcd")
    assert len({a, b, c, None}) == 4 and missing is None


def test_the_states_of_a_lesson(workspace):
    own = Workspace(workspace)
    assert own.state(LESSON) == "not begun" and own.state("01_tensor") == "reference solution"
    edit(own.notebook(LESSON), append("mine"))
    assert own.state(LESSON) == "not checked"
    facts = {"digest": digest(own.notebook(LESSON)), "passed": 3, "checks": 3, "exported": True}
    for change, state in (({}, "done"), ({"exported": False}, "passed, not in your package"), ({"passed": 2}, "not right yet"),
                          ({"digest": "of another"}, "changed since its check")):
        own.remember(**{LESSON: facts | change})
        assert own.state(LESSON) == state
    own.notebook(LESSON).unlink()
    assert own.state(LESSON) == "missing"


def test_earlier_lessons_that_are_not_done_are_named_together(workspace):
    own = Workspace(workspace)
    assert earlier_lessons(own, "05_training", import_table("05_training", own.package), {}, 60) == [
        "03_attention, 04_transformer are not solved yet; the reference stands in for them"]
    for name in "01_tensor", "02_layers":
        edit(workspace / f"{name}.ipynb", append("mine"))
    assert earlier_lessons(own, LESSON, import_table(LESSON, own.package), own.export(), 60) == [
        "01_tensor, 02_layers are not done yet (see tinytorch course status); what fails here may come from there"]
    edit(workspace / "01_tensor.ipynb", append("#| export\nwhile True:\n    pass"))
    assert earlier_lessons(own, LESSON, import_table(LESSON, own.package), own.export(), 12) == [
        "01_tensor cannot be imported (it takes more than 12 seconds); the reference stands in for it",
        "02_layers is not done yet (see tinytorch course status); what fails here may come from there"]


@pytest.mark.parametrize("code, seconds, fault", [
    ("", 60, ""), ("print(1)\n[][0]", 60, "IndexError: list index out of range"), ("import os\nos._exit(3)", 60, "it ends Python (3)"),
    ("while True: pass", 1, "it takes more than 1 seconds")])
def test_what_keeps_a_module_from_being_imported(tmp_path, code, seconds, fault):
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    table = ImportTable({"tinytorch.core.mine": tmp_path / "mine.py"}, {}, {})
    assert import_fault("tinytorch.core.mine", table, seconds) == fault


def test_check_of_everything_runs_only_what_was_begun(workspace):
    """And a lesson that came solved is no changed one, although its checks hold hidden tests."""
    assert tinytorch(workspace, "course", "solve", "06")[0] == 0
    code, out, _ = tinytorch(workspace, "course", "check")
    said = [f"{lesson}: {'reference solution' if lesson < LESSON or lesson[:2] == '06' else 'not begun'}" for lesson in lessons()]
    assert code == 0 and out.splitlines() == said
    done, to_do = {**all_right(), "heads": solution("heads") + "\n# mine"}, {"visible": with_answer(solution("visible"), STUB)}
    for answers, left in (done, False), (to_do, True):
        edit(workspace / f"{LESSON}.ipynb", give(answers))
        code, out, _ = tinytorch(workspace, "course", "check")
        assert code == left and out.startswith("\n".join(said[:2])) and out.endswith("\n".join([*said[3:], ""]))
        assert left == any(state == "to do" for state, _ in lines(out).values())
    code, out, _ = tinytorch(workspace, "course", "check", "06")
    assert code == 0 and "changed" not in out
    code, out, err = tinytorch(workspace, "course", "check", "")                # as a script does whose variable is empty
    assert (code, out) == (2, "") and "no lesson ''" in err


def test_check_says_what_is_wrong(workspace):
    wrong = next(answer for answer in bank(lessons()[LESSON]) if isinstance(answer, Wrong) and answer.exercise == "visible")

    def change(nb):
        give({"apply_rotary": solution("apply_rotary"), "heads": solution("heads"),
              "visible": with_answer(solution("visible"), wrong.body),
              "grouped_attention": "def grouped_attention(:", "check_apply_rotary": "print('fine')"})(nb)
        cell_named(nb, "check_visible").metadata.update(tags=["skip-execution", "measure"])
        cell_named(nb, "check_visible").metadata["nbgrader"].update(grade=False)
        nb.cells.remove(cell_named(nb, "check_heads"))
    edit(workspace / f"{LESSON}.ipynb", change)
    code, out, _ = tinytorch(workspace, "course", "check", "3")
    found = lines(out)
    assert code == 1
    assert found["apply_rotary"] == ("passed", "")
    assert "Notice: the cell check_apply_rotary differs from the lesson's; the original stands in its place.\n" in out
    assert "Notice: the cell check_heads is missing; the original stands in its place.\n" in out
    assert out.count("Notice") == 2
    assert found["visible"][0] == "failed" and wrong.says in found["visible"][1]
    assert found["grouped_attention"][0] == "failed"
    assert re.search(r"SyntaxError: [a-z ]+ \(line \d+\)", found["grouped_attention"][1])
    assert found["heads"][0] == "deleted" and "lacks this check, so it does not count" in found["heads"][1]
    assert found["attention"] == ("to do", "")
    assert f"{LESSON}: 2 of {CHECKS} checks passed" in out                         # the other one is check_heads-gradients
    assert out.endswith("\nBegin with visible: what fails behind it may come from there.\n")


def test_a_missing_notebook_does_not_stop_the_check_of_the_others(workspace):
    (workspace / "04_transformer.ipynb").unlink()
    (workspace / "05_training.ipynb").write_text("{", encoding="utf-8")
    code, out, err = tinytorch(workspace, "course", "check")
    assert (code, err) == (2, "")
    said = dict(line.split(": ", 1) for line in out.splitlines() if not line.startswith("Notice"))
    assert "is missing" in said["04_transformer"] and "cannot be read" in said["05_training"]
    assert said["03_attention"] == said["08_pretrained"] == "not begun"


def test_the_exit_code_is_that_of_the_worst_lesson(workspace, monkeypatch):
    def checked(own, lesson, seconds):
        if lesson == LESSON:
            raise Refused("It cannot be run.")
        return False
    monkeypatch.setattr(course, "check_lesson", checked)
    for name, worst in ("04_transformer", 1), (LESSON, 2):
        edit(workspace / f"{name}.ipynb", append("mine"))
        code, out, _ = tinytorch(workspace, "course", "check")
        assert code == worst and (f"{LESSON}: It cannot be run." in out) == (worst == 2)


def test_copies_of_a_cell_do_no_harm(workspace):
    """An exercise that was split in two, a check that was copied above its exercise, marks that make no sense."""
    def change(nb):
        give(all_right())(nb)
        split_cell(nb, "apply_rotary", "and_this = 'below'")
        nb.cells.insert(2, copied(cell_named(nb, "check_visible")))
        cell_named(nb, "heads").metadata["nbgrader"]["schema_version"] = 99
    edit(workspace / f"{LESSON}.ipynb", change)
    code, out, err = tinytorch(workspace, "course", "check", LESSON)
    assert lines(out) == {name: ("passed", "") for name in EXERCISES} and code == 0
    assert [line.split()[3] for line in out.splitlines() if "is in the notebook more than once" in line] == ["check_visible", "apply_rotary"]


def test_loops_and_dead_kernels_are_reported(workspace):
    answers = {**all_right(), "grouped_attention": with_answer(solution("grouped_attention"), "while True:\n    pass"),
               "attention": with_answer(solution("attention"), "import os\nos._exit(0)")}
    edit(workspace / f"{LESSON}.ipynb", give(answers))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON, "--seconds", 15)
    found = lines(out)
    assert code == 1
    assert found["apply_rotary"] == found["visible"] == found["heads"] == ("passed", "")
    assert found["grouped_attention"][0] == "failed" and "still running after 15 seconds" in found["grouped_attention"][1]
    for word in "mask", "numbers":
        assert re.search(f"^failed +grouped_attention-{word} +still running after 2 seconds; a cell behind a check that ran", out, re.MULTILINE)
    assert found["attention"][0] == "failed" and "kernel died" in found["attention"][1]
    assert re.search("^not reached +attention-cache +the kernel died in the cell check_attention$", out, re.MULTILINE)


def test_a_loop_is_waited_for_once(workspace, monkeypatch):
    """What meets it again is stopped soon, and says so; what does not is judged. The bar names the cell that runs."""
    moves = []
    monkeypatch.setattr(course, "progress_bar", lambda description: contextlib.nullcontext(lambda *how_far: moves.append(how_far)))
    loop = with_answer(solution("apply_rotary"), "while True:\n    pass")
    edit(workspace / f"{LESSON}.ipynb", give({**all_right(), "apply_rotary": loop}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON, "--seconds", 15)
    found = lines(out)
    assert code == 1
    assert found["apply_rotary"] == ("failed", "still running after 15 seconds; a loop that never ends, or a busy machine?")
    assert found["visible"] == found["grouped_attention"] == ("passed", "")
    assert found["heads"] == found["attention"] == ("not reached", "waits for apply_rotary, which ran too long before")
    shares, names = [done / total for done, total, _ in moves], [name for *_, name in moves]
    assert shares == sorted(shares) and 0 <= shares[0] and shares[-1] < 0.5                 # the package's half is not begun
    assert [name for name in names if name in EXERCISES] == EXERCISES and names[-1] == "check_attention-cache"


def test_the_bar_shows_what_runs(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")                      # rich takes that for a terminal
    with contextlib.redirect_stderr(io.StringIO()) as err, course.progress_bar("Checking 01_tensor") as move:
        move(1, 4, "check_unbroadcast")
    assert "Checking 01_tensor" in err.getvalue() and "25%" in err.getvalue() and "check_unbroadcast" in err.getvalue()


def test_a_cell_that_fails_and_is_no_exercise_is_named(workspace):
    def spoil(nb):
        give(all_right())(nb)
        nb.cells.insert(1, nbformat.v4.new_code_cell("# mine\nimprt json"))
    edit(workspace / f"{LESSON}.ipynb", spoil)
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert code == 0 and {state for state, _ in lines(out).values()} == {"passed"}
    assert "Notice: the cell that begins with '# mine' fails: SyntaxError: invalid syntax" in out


def new_cell(nb, before, source):
    nb.cells.insert(nb.cells.index(cell_named(nb, before)), nbformat.v4.new_code_cell(source))


def test_what_fails_behind_an_open_exercise_is_no_news(workspace):
    """But a syntax error is, wherever it stands, and an error in a cell of the student's own."""
    _, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert {state for state, _ in lines(out).values()} == {"to do"} and "that begins with" not in out

    def spoil(nb):
        new_cell(nb, "attention", "mine_too")
        nb.cells.append(nbformat.v4.new_code_cell("#| export\n%timeit 1\nreturn ("))
    edit(workspace / f"{LESSON}.ipynb", spoil)
    _, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert [line for line in out.splitlines() if "that begins with" in line] == [
        "Notice: the cell that begins with '%timeit 1' fails: SyntaxError: '(' was never closed (line 3).",
        "Notice: the cell that begins with 'mine_too' fails: NameError: name 'mine_too' is not defined."]


@pytest.mark.parametrize("source, wanted", [
    (f"def f():\n    {STUB}", True), (f"def f():\n    if x:\n        return 1\n    {STUB}", True),
    (f"try:\n    pass\nexcept OSError:\n    {STUB}", True), ("def f(:", True),
    ("a = '\0'", True), (f"def f():\n    # {STUB}\n    return 1", False), (f"def f():\n    return 1\n    {STUB}", False),
    (f"s = {STUB!r}", False), ("def f():\n    raise NotImplementedError('something else')", False),
])
def test_an_exercise_is_open_while_code_reaches_its_stub(source, wanted):
    assert is_open(source) is wanted


def test_a_file_that_cannot_be_read_is_not_solved(tmp_path):
    path = tmp_path / "layers.py"
    for data, solved in (None, False), (b"a = '\xff'", False), (b"a = 1", True):
        if data is not None:
            path.write_bytes(data)
        assert is_solved(path) is solved


def test_to_do_means_that_the_stub_ended_the_check(workspace):
    """A wrong answer is failed, whatever else stands in the cell; what is built on an open exercise waits for that."""
    wrong = next(answer for answer in bank(lessons()[LESSON]) if isinstance(answer, Wrong) and answer.exercise == "visible")
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(), "apply_rotary": with_answer(solution("apply_rotary"), STUB),
        "visible": with_answer(solution("visible"), f"# {STUB}\n{wrong.body}") + f"\n\ndef unused():\n    {STUB}\n"}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1 and "Notice" not in out
    assert found["apply_rotary"] == ("to do", "")
    assert found["visible"][0] == "failed" and wrong.says in found["visible"][1]
    assert found["heads"] == found["attention"] == ("not reached", "waits for apply_rotary, which is still to do")
    assert found["grouped_attention"] == ("passed", "") and "Begin with" not in out


def test_an_error_is_told_once(workspace):
    """What meets an error of another exercise, whose own check has shown it, waits for that; the same one is not repeated."""
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(), **{name: with_answer(solution(name), {0: "return 1 / 0"}) for name in ("apply_rotary", "grouped_attention")}}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1 and "Begin with apply_rotary:" in out
    assert found["apply_rotary"] == found["grouped_attention"] == ("failed", "ZeroDivisionError: division by zero")
    assert found["heads"] == found["attention"] == ("not reached", "waits for apply_rotary, which fails with ZeroDivisionError")
    assert len(re.findall("^failed +grouped_attention-(?:mask|numbers) +the same as grouped_attention$", out, re.MULTILINE)) == 2


def test_checks_use_what_the_lesson_gives(workspace):
    """Although cells of the student use its names or those of exercises for something else, and patch functions of others."""
    wrong = next(answer for answer in bank(lessons()[LESSON]) if isinstance(answer, Wrong) and answer.exercise == "visible")
    passes = "lambda *a, **k: True"

    def change(nb):
        give({**all_right(), "visible": with_answer(solution("visible"), wrong.body) + f"\nnp.array_equal = {passes}"})(nb)
        new_cell(nb, "check_visible", "def check_rows(*arguments):\n    pass")
        new_cell(nb, "check_visible", f"np.array_equal.__wrapped__.__code__ = check_gradients.__code__ = ({passes}).__code__")
        new_cell(nb, "heads", "def Rotary(wheel):\n    return wheel\n\nhelper = np.array\nlist, max = [1], 5\ntuple = apply_rotary = int\n"
                 "COMPLEX = QUERY_CHUNK = 7")
        new_cell(nb, "heads", "import builtins\nbuiltins.len = 3")
        next(cell for cell in nb.cells if "def query_chunks" in cell.source).source = "#| export\nquery_chunks = mine = 5"
    edit(workspace / f"{LESSON}.ipynb", change)
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1
    assert found["visible"][0] == "failed" and wrong.says in found["visible"][1]
    assert {found[name] for name in ("apply_rotary", "grouped_attention", "heads")} == {("passed", "")}
    assert found["attention"][0] == "failed" and "int" not in found["attention"][1]
    assert ("Notice: your notebook gives COMPLEX, QUERY_CHUNK, Rotary, apply_rotary, builtins.len, check_gradients, list, max, numpy.array_equal, tuple "
            "another meaning; checks use the original.\n") in out
    assert "Notice: the cell that begins with 'QUERY_CHUNK = 64 " in out and EDITED in out


def test_the_kernel_is_a_clean_one(workspace, tmp_path, monkeypatch):
    """Neither the environment nor the user's own settings nor files beside the notebook take part."""
    startup = tmp_path / "ipython" / "profile_default" / "startup" / "mine.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("def started(): pass", encoding="utf-8")
    (workspace / "beside.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONSTARTUP", str(startup))
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")                   # Python leaves out every assert
    wrong = next(answer for answer in bank(lessons()[LESSON]) if isinstance(answer, Wrong) and answer.exercise == "visible")
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(), "visible": with_answer(solution("visible"), wrong.body),
        "apply_rotary": solution("apply_rotary").replace(f"### {L.BEGIN}", "started()", 1),
        "grouped_attention": solution("grouped_attention").replace(f"### {L.BEGIN}", "import beside", 1)}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1 and wrong.says in found["visible"][1]
    assert "name 'started' is not defined" in found["apply_rotary"][1]
    assert "No module named 'beside'. A file beside the notebook is not there while it is checked" in found["grouped_attention"][1]


def test_a_kernel_that_leaves_out_asserts_is_refused(workspace, tmp_path, monkeypatch):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-O", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "mine", "language": "python"}), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    code, out, err = tinytorch(workspace, "course", "check", LESSON)
    assert code == 2 and "passed" not in out and "starts Python with -O, which leaves out every assert" in err


def test_line_ends_of_windows_are_no_change():
    nb = copy.deepcopy(handed_out(LESSON))
    for cell in nb.cells:
        cell.source = cell.source.replace("\n", "\r\n")
    assert restore(nb, handed_out(LESSON)) == {}
    assert [cell.source for cell in nb.cells] == [cell.source for cell in handed_out(LESSON).cells]


@pytest.mark.parametrize("change, names", [
    ("np.allclose = globals()['all'] = lambda *a, **k: True", "all, numpy.allclose"),
    ("np.allclose.__wrapped__.__code__ = check_gradients.__code__ = (lambda *a, **k: True).__code__", "check_gradients, numpy.allclose")])
def test_an_answer_cannot_replace_functions_while_it_is_checked(workspace, change, names):
    answer = solution("visible").replace(f"### {L.BEGIN}", change, 1)
    edit(workspace / f"{LESSON}.ipynb", give({**all_right(), "visible": answer}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert code == 1
    assert lines(out)["visible"] == ("failed", f"While the check ran, {names} was replaced.")


def test_a_cell_that_calls_exit_or_input_is_named(workspace):
    def change(nb):
        give({**all_right(), "visible": "exit()\n" + solution("visible"),
              "grouped_attention": solution("grouped_attention").replace(f"### {L.BEGIN}", "input('Name? ')", 1)})(nb)
        new_cell(nb, "apply_rotary", "quit()")
    edit(workspace / f"{LESSON}.ipynb", change)
    _, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert "Notice: the cell that begins with 'quit()' fails: RuntimeError: exit() and quit() end the kernel" in out
    assert found["visible"][0] == "failed" and "exit() and quit() end the kernel" in found["visible"][1]
    assert found["apply_rotary"] == found["heads"] == ("passed", "")
    assert found["grouped_attention"] == (
        "failed", "RuntimeError: input() waits for a person, and nobody is there to answer. Take the call out.")


def test_an_error_without_a_message_is_told_by_its_line(workspace):
    """A bare assert of the student's own, for example."""
    answers = {"apply_rotary": "assert x.shape == 5", "visible": "raise SystemExit", "heads": "raise TypeError"}
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(), **{name: with_answer(solution(name), {0: line}) for name, line in answers.items()}}))
    _, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert found["apply_rotary"] == ("failed", "AssertionError: no message; it came from the line `assert x.shape == 5`")
    assert found["visible"] == ("failed", "SystemExit: no message")
    assert found["heads"] == ("failed", "TypeError: no message; it came from the line `raise TypeError`")


def test_a_package_that_is_missing_is_no_fault_of_the_student(workspace, tmp_path, monkeypatch):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "matplotlib.py").write_text('raise ModuleNotFoundError("No module named \'matplotlib\'")', encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    code, out, err = tinytorch(workspace, "course", "check", LESSON)
    assert code == 2 and "failed" not in out and err.count("\n") == 1
    assert f"{LESSON} could not be run" in err and "No module named 'matplotlib'" in err and 'pip install "tinytorch[course]"' in err


def test_messages_are_short_and_hold_no_escape_codes(workspace):
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(), "visible": "raise ValueError('\x1b[31mred\x1b[0m\x07 \u00fc ' + 'z' * 300_000)"}))
    _, out, _ = tinytorch(workspace, "course", "check", LESSON)
    state, message = lines(out)["visible"]
    assert state == "failed" and "ValueError: red \u00fc zzz" in message and 1000 < len(message) < 1100
    assert out.replace("\n", "").isprintable()


def test_an_exercise_without_its_cells_and_a_check_above_its_exercise(workspace):
    def change(nb):
        give({**all_right(), "heads": "try:\n    import tinytorch.core as core\n    split_heads = core.attention.split_heads\n"
              "except ImportError:\n    split_heads = None"})(nb)
        nb.cells.remove(cell_named(nb, "apply_rotary"))
        nb.cells.remove(cell_named(nb, "check_apply_rotary"))
        nb.cells.insert(0, nb.cells.pop(nb.cells.index(cell_named(nb, "check_visible"))))
    edit(workspace / f"{LESSON}.ipynb", change)
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1 and found["visible"] == found["grouped_attention"] == ("passed", "")
    assert found["apply_rotary"][0] == "deleted" and "lacks this check and the cell of its exercise" in found["apply_rotary"][1]
    assert found["heads"] == ("failed", "TypeError: 'NoneType' object is not callable")
    assert f"Notice: {LESSON} builds tinytorch.core.attention itself: its checks look at" in out      # why the import failed
    assert "Notice: the cell check_visible stood at another place; it was run where the lesson has it.\n" in out


def test_an_answer_cannot_be_imported(workspace):
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(),
        "apply_rotary": "from tinytorch import core\napply_rotary = core.attention.apply_rotary",
        "visible": "from tinytorch.models.transformer import visible"}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    found = lines(out)
    assert code == 1
    assert found["apply_rotary"][0] == "failed" and f"{LESSON} builds tinytorch.core.attention itself" in found["apply_rotary"][1]
    assert found["visible"][0] == "failed" and "comes later" in found["visible"][1]


def test_earlier_lessons_are_the_students_own_or_the_reference_stands_in(workspace):
    """A mark in the student's 02 shows in 03. When an exercise of 02 is open again, 03 sees the reference's 02."""
    edit(workspace / "02_layers.ipynb", lambda nb: nb.cells.append(nbformat.v4.new_code_cell("#| export\nmark = 'mine'")))
    edit(workspace / f"{LESSON}.ipynb", give({**all_right(), "apply_rotary": with_answer(
        solution("apply_rotary"),
        "from tinytorch.core import layers\nraise ValueError(getattr(layers, 'mark', 'reference'))")}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert [line for line in out.splitlines() if "Notice" in line] == [
        "Notice: 02_layers is not done yet (see tinytorch course status); what fails here may come from there."]
    assert lines(out)["apply_rotary"][1].endswith("ValueError: mine") and lines(out)["visible"][0] == "passed"

    edit(workspace / "02_layers.ipynb", give({"softmax": f"#| export\ndef softmax(x, axis=-1):\n    {STUB}"}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert [line for line in out.splitlines() if "Notice" in line] == [
        "Notice: 02_layers is not solved yet; the reference stands in for it."]
    assert lines(out)["apply_rotary"][1].endswith("ValueError: reference")

    edit(workspace / "02_layers.ipynb", give({"softmax": "#| export\ndef softmax(:"}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    notice, = [line for line in out.splitlines() if "Notice" in line]
    assert notice.startswith("Notice: 02_layers cannot be exported (") and notice.endswith("; the reference stands in for it.")
    assert lines(out)["apply_rotary"][1].endswith("ValueError: reference")


def append(source):
    return lambda nb: nb.cells.append(nbformat.v4.new_code_cell(source))


def change_of(name, old, new):
    def change(nb):
        cell = cell_named(nb, name)
        assert old in cell.source
        cell.source = cell.source.replace(old, new)
    return change


def own_helper(nb):
    """The exercise uses a function from a cell that is not exported."""
    give({"visible": "#| export\ndef visible(*arguments, **options):\n    return seen_from(*arguments, **options)"})(nb)
    new_cell(nb, "visible", solution("visible").replace("#| export\n", "").replace("def visible", "def seen_from"))


def split_in_two(nb):
    """As Jupyter does it; the second half has no line #| export."""
    first, second = solution("heads").split("def merge_heads", 1)
    give({"heads": first})(nb)
    split_cell(nb, "heads", "def merge_heads" + second)


def given_cell_deleted(nb):
    nb.cells.remove(next(cell for cell in nb.cells if "def scaled_dot_product_attention" in cell.source))


def several(*changes):
    return lambda nb: [change(nb) for change in changes]


LACKS = "AttributeError: module 'tinytorch.core.attention' has no attribute '{}'. In the lesson the cell {} defines it. The cell that does must"
NO_PYTHON = "The cell visible runs in Jupyter, but it is no plain Python"
NO_ASSERTS = """#| export
import ast
from IPython.core.interactiveshell import InteractiveShell

class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Pass()

if InteractiveShell.initialized():
    InteractiveShell.instance().ast_transformers.append(NoAsserts())
    InteractiveShell.instance().input_transformers_post.append(lambda lines: ["pass"])
"""
SECOND = "#| export\ndef visible(*arguments):\n    return True\n\n\nglobals()['split_heads'] = 5"


@pytest.mark.parametrize("change, says", [
    (several(append("#| export\nmine = {'a': print}\n\n\nclass Mine:\n    def me(self):\n        return [mine for mine in self.me()]"),
             append("#| export\nfrom math import *\n\n\ndef half():\n    return pi / 2"), append("visible = 5"),
             lambda nb: give({"visible": solution("visible").replace("def visible", "def mine") + "\n\nif True:\n    visible: object = mine"})(nb),
             change_of("heads", "def split_heads", f"def unused():\n    # {STUB}\n    return 1\n    {STUB}\n\n\ndef split_heads")), []),
    (several(change_of("apply_rotary", "#| export\n", "# export\n"), change_of("visible", "#| export\n", "# my answer\n#| export\n"),
             lambda nb: cell_named(nb, "grouped_attention").update(cell_type="raw"), given_cell_deleted, split_in_two),
     [LACKS.format("apply_rotary", "apply_rotary"), LACKS.format("visible", "visible"), LACKS.format("grouped_attention", "grouped_attention"),
      LACKS.format("scaled_dot_product_attention", "that begins with 'def scaled_dot_product_attention(query, key, value, mask=Non'"),
      LACKS.format("merge_heads", "heads")]),
    (several(own_helper, change_of("heads", f"### {L.BEGIN}", "math.pi")),
     ["visible: NameError: name 'seen_from' is not defined",
      *(f"{check}: NameError: name 'math' is not" for check in ("heads", "heads-gradients", "attention", "attention-cache")),
      "The cell that begins with 'import math' defines math, but it does not begin with #| export: do that in your own cell too.",
      "The cell that begins with 'def seen_from(query_positions, key_positions, window=None, s' defines seen_from, but it does not begin "
      "with #| export: add this line."]),
    (several(append(NO_ASSERTS), append(SECOND)),
     ["visible: 2 queries and 4 keys must give (1, 2, 4), but gave ().",
      *(f"{check}: TypeError: 'int' object" for check in ("heads", "heads-gradients")), "attention: ", "attention-cache: ",
      "visible is defined by more than one cell: visible, that begins with 'def visible(*arguments):'. Your package takes"]),
    (append("#| export\nif 'SystemExit':\n    display(5)"), ["Outside of Jupyter your package cannot be imported: NameError: name 'display'"]),
    (append("#| export\n[][0]"), ["Your package cannot be imported: IndexError: list index out of range. A cell"]),
    (append("#| export\nraise SystemExit"), ["Your package cannot be imported: SystemExit: no message. A cell"]),
    (append(f"#| export\ndef later():\n    {STUB}"), ["The cell that begins with 'def later():' still holds the line raise"]),
    (change_of("visible", "#| export\n", "%%time\n#| export\n"), [NO_PYTHON]),
    (lambda nb: give({"visible": solution("visible") + "\n%timeit -n1 -r1 sum([1])"})(nb), [NO_PYTHON]),
    (append("#| export\ndef f(:\n    pass"), ["The cell that begins with 'def f(:' cannot be exported: SyntaxError: invalid syntax (line 2)."]),
    (lambda nb: nb.cells.remove(next(cell for cell in nb.cells if "default_exp" in cell.source)),
     ["The notebook cannot be exported: it lacks the cell with the line #| default_exp core.attention."]),
], ids=["other ways", "missing", "not exported", "second", "display", "import", "exit", "stub", "magic cell", "magic", "syntax", "no module"])
def test_what_was_checked_is_in_the_package(workspace, recwarn, change, says):
    """Without running the checks in the notebook, which would pass in each case."""
    own, path = Workspace(workspace), workspace / f"{LESSON}.ipynb"
    shutil.copy(lessons()[LESSON], path)
    edit(path, change)
    nb = L.read(path)
    restore(nb, handed_out(LESSON))
    why = own.export().get(LESSON)
    assert not [warning for warning in recwarn if "default_exp" in str(warning.message)]
    faults = faults_of_package(own, LESSON, nb, why, import_table(LESSON, workspace / "tinytorch"), 60, lambda *how_far: None)
    assert len(faults) == len(says) and all(map(str.startswith, faults, says)), faults


def test_a_method_that_stands_in_no_exported_cell_is_missing(workspace):
    """Also where the class has a placeholder for it."""
    lesson = "06_kv_cache"
    shutil.copy(lessons()[lesson], workspace / f"{lesson}.ipynb")

    def change(nb):
        cell = cell_named(nb, "exact_undo")
        split_cell(nb, "exact_undo", cell.source.partition("@add_to_class(ExactCache)\ndef reset")[2])
        nb.cells[nb.cells.index(cell) + 1].source = "@add_to_class(ExactCache)\ndef reset" + nb.cells[nb.cells.index(cell) + 1].source
        cell.source = cell.source.partition("@add_to_class(ExactCache)\ndef reset")[0]
    edit(workspace / f"{lesson}.ipynb", change)
    code, out, _ = tinytorch(workspace, "course", "check", lesson)
    checks = sum(map(L.is_check, L.read(lessons()[lesson]).cells))
    assert code == 1 and f"{checks} of {checks} checks passed in the notebook, but not in your package" in out
    assert "your package lacks ExactCache.reorder. In the lesson the cell exact_undo defines it." in out


def test_a_cell_is_exported_if_nbdev_exports_it(tmp_path):
    heads = {"#| export": True, "#|export": True, " #  |  export ": True, "#| exporti": True, "\n  \n#| export": True,
             "#| hide\n\n#| export": True, "%%time\n#| export": True, "#| hide": False, "# export": False, "# why\n#| export": False,
             "%time\n#| export": False, "import os\n#| export": False, "#| exported": False}
    cells = [nbformat.v4.new_code_cell(f"{head}\nmark_{i} = 1") for i, head in enumerate(heads)]
    text = nbformat.v4.new_markdown_cell("#| export\nmark_99 = 1")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("#| default_exp mine"), *cells, text]), tmp_path / "mine.ipynb")
    need("nbdev.export").nb_export(tmp_path / "mine.ipynb", lib_path=tmp_path)
    built = (tmp_path / "mine.py").read_text(encoding="utf-8")
    assert [f"mark_{i} = 1" in built for i in range(len(heads))] == list(map(is_exported, cells)) == list(heads.values())
    assert "mark_99" not in built and not is_exported(text)


@pytest.mark.parametrize("source, expected", [
    ("A = 1", "A = 1; _package.A = A"), ("old, A = A, 2    # 2", "old, A = A, 2; _package.A = A    # 2"),
    ("try:\n    A = B = '\u00e9'\nexcept OSError:\n    A = 1; other = 2\nfinally:\n    B = (1,\n         2)",
     "try:\n    A = B = '\u00e9'; _package.A = A; _package.B = B\nexcept OSError:\n    A = 1; _package.A = A; other = 2\nfinally:\n"
     "    B = (1,\n         2); _package.B = B"),
    ("def f():\n    A = 1\nother[A] = A.x = 5\nassert A == 1", "def f():\n    A = 1\nother[A] = A.x = 5\nassert A == 1"),
])
def test_what_a_check_gives_a_constant_the_package_gets_too(source, expected):
    assert passed_on(source, {"A", "B"}) == expected


@pytest.mark.parametrize("lesson", lessons())
def test_a_solved_lesson_is_checked_without_a_notice(lesson, made, tmp_path):
    """Its own cells put nothing back, and its package holds all that they define."""
    workspace = shutil.copytree(made, tmp_path / "work")
    for name in lessons():
        if name <= lesson:
            shutil.copy(lessons()[name], workspace / f"{name}.ipynb")
    code, out, err = tinytorch(workspace, "course", "check", lesson)
    assert (code, err) == (0, "") and "Notice" not in out, out
    assert {line.split()[0] for line in out.splitlines()[:-1]} == {"passed"}


def test_an_answer_may_export_a_helper_with_a_name_of_pythons_own(workspace):
    """It is part of the package, so the checks use it: right here, wrong where it breaks the package."""
    helper = "#| export\ndef pow(base, exponent):\n    return base * exponent"
    for extra, state in ((helper, "passed"), ("#| export\nlen = 5", "failed")):
        shutil.copy(lessons()[LESSON], workspace / f"{LESSON}.ipynb")
        edit(workspace / f"{LESSON}.ipynb", lambda nb: new_cell(nb, "visible", extra))
        code, out, _ = tinytorch(workspace, "course", "check", LESSON)
        assert state in {result for result, _ in lines(out).values()} and code == (state == "failed"), out


def test_a_lesson_is_done_when_its_package_is_right_too(workspace):
    def change(nb):
        give(all_right())(nb)
        change_of("visible", "#| export\n", "")(nb)
    edit(workspace / f"{LESSON}.ipynb", change)
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert code == 1
    assert f"\n{LESSON}: {CHECKS} of {CHECKS} checks passed in the notebook, but not in your package\n" in out
    assert "\n    " + LACKS.format("visible", "visible") in out
    _, out, _ = tinytorch(workspace, "course", "status")
    assert f"passed, not in your package  {CHECKS} of {CHECKS}" in out and out.endswith("0 of 8 lessons are done by you, 2 solved for you.\n")
    _, out, _ = tinytorch(workspace, "course", "check", "04")
    assert f"Notice: {LESSON} is not done yet (see tinytorch course status); what fails here may come from there.\n" in out


def test_the_reference_stands_in_for_what_cannot_be_imported(workspace, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")            # as on Windows, whatever the error says is readable
    edit(workspace / "02_layers.ipynb", append("#| export\n{}['Gr\u00fc\u00dfe']"))
    edit(workspace / f"{LESSON}.ipynb", give(all_right()))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert code == 0 and {state for state, _ in lines(out).values()} == {"passed"}
    assert [line for line in out.splitlines() if "Notice" in line] == [
        "Notice: 02_layers cannot be imported (KeyError: 'Gr\u00fc\u00dfe'); the reference stands in for it."]


@pytest.mark.parametrize("text", ["[]", "{}", '{"lessons": []}', '{"lessons": {"03_attention": {}, "02_layers": [], "01_tensor": 3}}',
                                  '{"lessons": {"03_attention": {"digest": 1, "passed": "x", "checks": null}}}', "\xff", ""])
def test_a_damaged_mark_counts_as_never_checked(workspace, text):
    (workspace / ".tinytorch.json").write_text(text, encoding="latin-1")
    code, out, err = tinytorch(workspace, "course", "status")
    assert (code, err) == (0, "") and "not checked" in out
    assert tinytorch(workspace, "course", "solve", LESSON)[0] == 0


def test_demo_runs_on_the_students_package(workspace, tmp_path):
    pytest.importorskip("gguf", reason="the extra 'pretrained' is not installed")
    from tests.tiny_gguf import write_tiny

    model = write_tiny(tmp_path / "tiny.gguf", seed=3)
    demo = ["demo", "--json", "--prompt", "tell the tale", "--model", model, "--max-new-tokens", 5]
    code, out, err = tinytorch(workspace, *demo, package=L.ROOT)
    assert code == 0 and f"Running your package: {workspace / 'tinytorch'}" in err
    notice = "Notice: 03_attention, 04_transformer, 05_training, 06_kv_cache, 07_generation, 08_pretrained are not solved yet; the reference"
    assert [line for line in err.splitlines() if "Notice" in line] == [f"{notice} stands in for them."]
    assert tinytorch(workspace, "course", "solve", "06")[0] == 0
    edit(workspace / "06_kv_cache.ipynb", lambda nb: nb.cells.append(
        nbformat.v4.new_code_cell("#| export\nraise ImportError('this is the student speaking')")))
    code, out, err = tinytorch(workspace, *demo, package=L.ROOT)
    assert code == 2 and "this is the student speaking" in err and "Notice: 06_kv_cache" not in err
    edit(workspace / "06_kv_cache.ipynb", lambda nb: nb.cells[-1].update(source="#| export\nraise SystemExit(3)"))
    code, out, err = tinytorch(workspace, *demo, package=L.ROOT)
    assert code == 2 and "Your package cannot be imported: SystemExit: 3" in err


def test_demo_in_a_workspace_finds_the_shipped_model(workspace):
    edit(workspace / "02_layers.ipynb", append("#| export\ndef f(:"))
    code, out, err = tinytorch(workspace, "demo", "--json", "--max-new-tokens", 5, package=L.ROOT)
    assert code == 0, err
    assert json.loads(out)["model"] == "tiny" and json.loads(out)["same_tokens"] is True
    assert "Notice: 02_layers cannot be exported (SyntaxError: invalid syntax)." in err
    assert (workspace / "tinytorch" / "models" / "tiny.safetensors").exists()


def test_python_m_imports_little_before_the_command_begins(workspace):
    """So that Ctrl-C meets the command, which answers it with a word."""
    code = ("import sys\nsys.argv[0] = '-m'\nfrom tinytorch.__main__ import start\n"
            "print(sys.modules['tinytorch'].__file__, sys.modules['tinytorch.__main__'].__file__, sep='\\n')\n"
            "print(*(name for name in sys.modules if name.startswith(('tinytorch.', 'typer', 'rich', 'numpy'))))")
    status, out, err = python(workspace, code)
    assert (status, err) == (0, "") and out.splitlines() == [
        str(workspace / "tinytorch" / "__init__.py"), str(L.ROOT / "tinytorch" / "__main__.py"), "tinytorch.__main__"]


@pytest.mark.parametrize("arguments", ["course status", "--version", "demo"])
def test_python_m_is_the_same_command(workspace, arguments):
    """Although Python finds the student's package first, which may be broken."""
    edit(workspace / "02_layers.ipynb", append("#| export\n[][0]"))
    Workspace(workspace).export()
    expected = tinytorch(workspace, *arguments.split(), package=L.ROOT)
    done = subprocess.run([sys.executable, "-m", "tinytorch", *arguments.split()], cwd=workspace, text=True, encoding="utf-8",
                          capture_output=True, timeout=300, env={**os.environ, "PYTHONPATH": str(L.ROOT)})
    assert (done.returncode, done.stdout, done.stderr) == expected
    assert ("Your package cannot be imported: IndexError" in done.stderr) == (arguments == "demo") == bool(done.stderr)


def test_lessons_import_only_earlier_ones():
    """So that no lesson is refused what it needs while it is checked."""
    number = built_by()
    for path in L.lessons():
        for module in imports(L.read(path)):
            assert not path.stem <= number[module] < "90", f"{path.stem} imports {module}"


@pytest.mark.parametrize("lesson", lessons())
def test_what_a_lesson_may_import(lesson, tmp_path):
    """What is built before it; the package of its checks holds nothing else. The sentence names what was imported."""
    number = built_by()
    write_package(import_table(lesson), tmp_path)
    said = {module: f"{lesson} builds {module} itself: " if number[module] == lesson else f"{module} belongs to {number[module]}, "
            for module in number if lesson <= number[module] < "90"}
    early = [module for module in number if number[module] < lesson]
    code = (f"import importlib\nfor name in {early!r}: importlib.import_module(name)\n"
            f"for folder, _, name in {[module.rpartition('.') for module in said]!r}:\n"
            "    try: getattr(importlib.import_module(folder), name)\n    except ImportError as error: print(error)\n"
            "    else: print('imported')\nimport tinytorch\nprint(tinytorch.__version__)\nprint(tinytorch.__file__)")
    status, out, err = python(L.ROOT, f"import sys; sys.path.remove('')\n{code}", package=tmp_path)
    *answers, version, where = out.splitlines()
    assert status == 0 and version == course.tinytorch.__version__ and where == str(tmp_path / "tinytorch" / "__init__.py"), err
    assert (tmp_path / "tinytorch" / "models" / "tiny.safetensors").is_file()
    assert len(answers) == len(said) and all(map(str.startswith, answers, said.values())), answers


def test_an_installed_wheel_makes_workspaces(tmp_path):
    """The notebooks travel with it."""
    source = tmp_path / "source"
    shutil.copytree(L.SOURCE, source / "modules" / "source")
    shutil.copytree(L.ROOT / "tinytorch", source / "tinytorch", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "pyproject.toml", "setup.py", "README.md", "LICENSE":
        shutil.copy(L.ROOT / name, source)
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
                           "--disable-pip-version-check", "-w", str(tmp_path), str(source)], encoding="utf-8", capture_output=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "installed")
    code, out, err = tinytorch(tmp_path, "course", "start", "work", package=tmp_path / "installed")
    assert (code, err) == (0, ""), out + err
    assert {path.stem for path in (tmp_path / "work").glob("*.ipynb")} == set(lessons())


WRITE = "python -m tests.course_table --write brings the page up to date"


def split(row):
    """A row of a table without its estimate of minutes, and that estimate."""
    columns = row.split("|")
    return columns[:5] + columns[6:], int(columns[5])


@pytest.mark.parametrize("path", L.lessons(), ids=lambda path: path.stem)
def test_the_instructors_page_knows_the_lesson(path):
    """Points, minutes, and what depends on what, as they are worked out from the lesson."""
    page = course_table.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [row for row in page if row.startswith(f"| `{path.stem}` |")]
    (found, minutes), (expected, estimate) = split(rows[0]), split(course_table.lesson_row(path))
    assert found == expected and abs(minutes - estimate) <= 20, WRITE
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork a process")
    assert rows[1:] == course_table.exercise_rows(path), WRITE


def test_minutes_are_those_of_reading_and_writing(tmp_path):
    """10 for text, 10 for given code, 20 for a solution. Blank lines and comments, checks, and what only measures cost nothing."""
    lines = "a = 1\n    # text\n\n" * 150
    solution = f"    ### {L.BEGIN}\n" + "    b = 2\n    # text\n" * 20 + f"    ### {L.END}\n"
    cells = [nbformat.v4.new_markdown_cell("word " * 1500), nbformat.v4.new_code_cell(solution + lines),
             *(nbformat.v4.new_code_cell(lines, metadata=metadata)
               for metadata in ({"tags": ["measure"]}, {"tags": ["optional"]}, {"nbgrader": {"locked": True}}))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    assert minutes(tmp_path / "a.ipynb") == 40


def test_the_instructors_page_lists_no_other_lesson():
    page = course_table.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\d\d_\w+)`", page, flags=re.MULTILINE)) == set(lessons())
