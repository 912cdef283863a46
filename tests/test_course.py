"""A student's workspace: made, checked, solved, and run on the student's own package."""
import ast
import contextlib
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

from tests import course_table, lessons as L
from tests.misconceptions import Wrong
from tests.misconceptions.runner import with_answer
from tests.test_misconceptions import bank
from tinytorch.cli import main
from tinytorch.course import STUB, Guard, built_by, import_table, lessons

pytestmark = [pytest.mark.notebook, pytest.mark.filterwarnings("default")]

LESSON = "03_attention"
EXERCISES = ["apply_rotary", "visible", "grouped_attention", "heads", "attention"]


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
    # The package must be older than the notebook, also where the clock of the disk is coarse.
    os.utime(path, (path.stat().st_mtime + 5,) * 2)


def cell_named(nb, name):
    return next(cell for cell in nb.cells if L.grading(cell).get("grade_id") == name)


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
    for path in lessons().values():                             # what a notebook imports, a kernel finds there
        for module in imports(L.read(path)):
            assert module.replace(".", "/") + ".py" in built, f"{path.stem} imports {module}"


def test_start_refuses_a_folder_that_is_not_empty(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("mine", encoding="utf-8")
    code, out, err = tinytorch(tmp_path, "course", "start", "work")
    assert (code, out) == (2, "") and "not empty" in err and err.count("\n") == 1
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("arguments, says", [
    (["check", "03"], "no workspace"), (["status"], "no workspace"), (["solve", "03"], "no workspace"),
    (["start", "work", "--from", "77"], "no lesson '77'"),
])
def test_errors_are_sentences(tmp_path, arguments, says):
    code, out, err = tinytorch(tmp_path, "course", *arguments)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage, says", [(lambda path: path.write_text("{", encoding="utf-8"), "cannot be read"),
                                          (lambda path: path.unlink(), "is missing")])
def test_a_notebook_that_cannot_be_run(workspace, damage, says):
    damage(workspace / f"{LESSON}.ipynb")
    code, out, err = tinytorch(workspace, "course", "check", LESSON)
    assert code == 2 and says in err and err.count("\n") == 1 and "passed" not in out


def test_notebooks_import_the_students_package(workspace):
    """A kernel starts in the folder of its notebook, and so does this process."""
    done = subprocess.run([sys.executable, "-c", "import tinytorch.core.layers as layers; print(layers.__file__)"],
                          cwd=workspace, env={**os.environ, "PYTHONPATH": str(L.ROOT)}, text=True, capture_output=True)
    assert done.stdout.strip() == str(workspace / "tinytorch" / "core" / "layers.py"), done.stderr


def test_nbdev_export_builds_the_students_package(workspace):
    """By the command, as the README says; what was kept by `solve` is not exported."""
    edit(workspace / f"{LESSON}.ipynb", lambda nb: nb.cells.append(
        nbformat.v4.new_code_cell("#| export\nmine = 1")))
    code, out, _ = tinytorch(workspace, "course", "solve", LESSON)
    assert code == 0 and f"_{LESSON}_mine_1.ipynb" in out
    assert "mine = 1" in (workspace / f"_{LESSON}_mine_1.ipynb").read_text(encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", "from nbdev.doclinks import nbdev_export; nbdev_export()"],
                          cwd=workspace, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    built = (workspace / "tinytorch" / "core" / "attention.py").read_text(encoding="utf-8")
    assert STUB not in built and "mine = 1" not in built
    code, _, err = tinytorch(workspace, "course", "solve", LESSON)
    assert code == 2 and "already" in err


def test_check_passes_right_answers_and_status_remembers(workspace):
    edit(workspace / f"{LESSON}.ipynb", give(all_right()))
    code, out, err = tinytorch(workspace, "course", "check", "attention")
    assert (code, err) == (0, ""), out + err
    assert lines(out) == {name: ("passed", "") for name in EXERCISES}
    _, out, _ = tinytorch(workspace, "course", "status")
    states = {line.split()[0]: " ".join(line.split()[2:]) for line in out.splitlines()[1:-1]}
    assert states["02_layers"].startswith("reference solution")
    assert states[LESSON].startswith(("done 5 of 5", "reference solution 5 of 5"))
    assert states["04_transformer"] == "not checked"


def test_check_of_everything_runs_only_what_was_begun(workspace):
    """And a lesson that came solved is no changed one, although its checks hold hidden tests."""
    assert tinytorch(workspace, "course", "solve", "06")[0] == 0
    code, out, _ = tinytorch(workspace, "course", "check")
    assert code == 1
    assert out.splitlines() == [
        f"{lesson}: {'the reference solution' if lesson < LESSON or lesson[:2] == '06' else 'not begun'}" for lesson in lessons()]
    code, out, _ = tinytorch(workspace, "course", "check", "06")
    assert code == 0 and "changed" not in out


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
    assert found["apply_rotary"] == ("passed", "(your copy of this check was changed; the original ran)")
    assert found["visible"][0] == "failed" and wrong.says in found["visible"][1]
    assert found["grouped_attention"][0] == "failed" and "SyntaxError" in found["grouped_attention"][1]
    assert found["heads"][0] == "deleted"
    assert found["attention"] == ("to do", "")
    assert f"{LESSON}: 1 of 5 checks passed" in out


def test_loops_and_dead_kernels_are_reported(workspace):
    answers = {**all_right(), "visible": with_answer(solution("visible"), "while True:\n    pass"),
               "grouped_attention": with_answer(solution("grouped_attention"), "import os\nos._exit(0)")}
    edit(workspace / f"{LESSON}.ipynb", give(answers))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON, "--seconds", 5)
    found = lines(out)
    assert code == 1
    assert found["apply_rotary"][0] == "passed"
    assert found["visible"][0] == "failed" and "still running after 5 seconds" in found["visible"][1]
    assert found["grouped_attention"][0] == "failed" and "kernel died" in found["grouped_attention"][1]
    assert found["heads"][0] == found["attention"][0] == "not reached"


def test_an_answer_cannot_be_imported(workspace):
    edit(workspace / f"{LESSON}.ipynb", give({
        **all_right(),
        "apply_rotary": "from tinytorch.core.attention import apply_rotary",
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
    assert "Notice" not in out
    assert lines(out)["apply_rotary"][1].endswith("ValueError: mine") and lines(out)["visible"][0] == "passed"

    edit(workspace / "02_layers.ipynb", give({"softmax": f"#| export\ndef softmax(x, axis=-1):\n    {STUB}"}))
    code, out, _ = tinytorch(workspace, "course", "check", LESSON)
    assert "Notice: 02_layers is not solved yet; the reference stands in for it." in out
    assert lines(out)["apply_rotary"][1].endswith("ValueError: reference")


def test_demo_runs_on_the_students_package(workspace, tmp_path):
    pytest.importorskip("gguf", reason="the extra 'pretrained' is not installed")
    from tests.tiny_gguf import write_tiny

    model = write_tiny(tmp_path / "tiny.gguf", seed=3)
    demo = ["demo", "--json", "--prompt", "tell the tale", "--model", model, "--max-new-tokens", 5]
    code, out, err = tinytorch(workspace, *demo, package=L.ROOT)
    assert code == 0 and f"Running your package: {workspace / 'tinytorch'}" in err
    assert "Notice: 06_kv_cache is not solved yet; the reference stands in for it." in err
    assert tinytorch(workspace, "course", "solve", "06")[0] == 0
    with open(workspace / "tinytorch" / "generation" / "kv_cache.py", "a", encoding="utf-8") as file:
        file.write("\nraise ImportError('this is the student speaking')\n")
    code, out, err = tinytorch(workspace, *demo, package=L.ROOT)
    assert code == 2 and "this is the student speaking" in err and "Notice: 06_kv_cache" not in err


def test_demo_in_a_workspace_finds_the_shipped_model(workspace):
    code, out, err = tinytorch(workspace, "demo", "--json", "--max-new-tokens", 5, package=L.ROOT)
    assert code == 0, err
    assert json.loads(out)["model"] == "tiny" and json.loads(out)["same_tokens"] is True
    assert (workspace / "tinytorch" / "models" / "tiny.safetensors").exists()


@pytest.mark.parametrize("lesson, module", [("01_tensor", "tinytorch.core.tensor"), ("06_kv_cache", "tinytorch.generation.kv_cache"),
                                            ("04_transformer", "tinytorch.models.transformer")])
def test_the_sentence_names_what_was_imported(lesson, module):
    """In a real import the parent package comes first, and it must not answer for a neighbour."""
    code = ("from tinytorch.course import guard, import_table\n"
            f"table = import_table({lesson!r})\n"
            "guard(table.files, table.withheld)\n"
            f"import {module}\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=L.ROOT, text=True, capture_output=True, timeout=60)
    assert f"ImportError: {lesson} builds {module} itself" in done.stderr


def test_lessons_import_only_earlier_ones():
    """So that no lesson is refused what it needs while it is checked."""
    number = built_by()
    for path in L.lessons():
        for module in imports(L.read(path)):
            assert not path.stem <= number[module] < "90", f"{path.stem} imports {module}"


def test_the_guard_knows_every_module():
    """Each lesson may import what is built before it; itself and later lessons are refused, other packages are none of its business."""
    number = built_by()
    for lesson in lessons():
        table = import_table(lesson)
        guard = Guard(table.files, table.withheld)
        assert guard.find_spec("numpy") is None
        for module, notebook in number.items():
            if lesson <= notebook < "90":
                with pytest.raises(ImportError, match="itself" if notebook == lesson else "comes later"):
                    guard.find_spec(module)
            else:
                assert guard.find_spec(module).origin.endswith(module.split(".")[-1] + ".py")
        with pytest.raises(ModuleNotFoundError):
            guard.find_spec("tinytorch.no_such_module")


def test_an_installed_wheel_makes_workspaces(tmp_path):
    """The notebooks travel with it."""
    source = tmp_path / "source"
    shutil.copytree(L.SOURCE, source / "modules" / "source")
    shutil.copytree(L.ROOT / "tinytorch", source / "tinytorch", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "pyproject.toml", "setup.py", "README.md", "LICENSE":
        shutil.copy(L.ROOT / name, source)
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
                           "--disable-pip-version-check", "-w", str(tmp_path), str(source)], text=True, capture_output=True)
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


def test_the_instructors_page_lists_no_other_lesson():
    page = course_table.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\d\d_\w+)`", page, flags=re.MULTILINE)) == set(lessons())
