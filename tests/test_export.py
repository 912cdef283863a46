"""The package is exactly what the notebooks export, the notebooks are clean, the two configurations agree."""
import ast
import configparser
import os
import shutil
import subprocess
import sys

import pytest

from tests.lessons import ROOT, SOURCE, notebooks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along


def run_nbdev(folder, code):
    """Run nbdev in a process of its own, because it finds its settings by the working directory and keeps them."""
    env = {key: value for key, value in os.environ.items() if key != "IN_TEST"}  # it makes nbdev_export do nothing
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, text=True, encoding="utf-8",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources, without the exported package."""
    shutil.copy(ROOT / "settings.ini", tmp_path)
    shutil.copytree(SOURCE, tmp_path / "modules" / "source")
    if (ROOT / "nbs").is_dir():
        shutil.copytree(ROOT / "nbs", tmp_path / "nbs")
    return tmp_path


DATA = {"models/tiny.safetensors"}      # what the package holds beside what the notebooks export


def contents(folder):
    """The bytes of every file below a folder; line ends as git keeps them."""
    return {path.relative_to(folder).as_posix(): path.read_bytes().replace(b"\r\n", b"\n")
            for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def test_package_is_what_the_notebooks_export(copy):
    run_nbdev(copy, "from nbdev.doclinks import nbdev_export; nbdev_export()")
    exported, committed = contents(copy / "tinytorch"), contents(ROOT / "tinytorch")
    for file in DATA:
        assert committed.pop(file), file
    assert sorted(committed) == sorted(exported), "a file is missing, or stale: no notebook exports it"
    different = [file for file in exported if exported[file] != committed[file]]
    assert not different, f"run nbdev_export; not as exported: {different}"


@pytest.mark.parametrize("path", [path for path in sorted((ROOT / "tinytorch").rglob("*.py")) if path.name[0] != "_"],
                         ids=lambda path: path.stem)
def test_a_module_says_what_it_is(path):
    """nbdev takes the docstring from the line "> ..." under the title; a string in the first exported cell comes too late."""
    assert (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").endswith(".")


def test_notebooks_are_clean(copy):
    before = {path: path.read_bytes() for path in notebooks(copy)}
    # nbdev only warns of a notebook that it cannot clean, so its warnings must be errors.
    run_nbdev(copy, "import warnings; from nbdev.clean import nbdev_clean; warnings.simplefilter('error')\n"
                    "for folder in 'modules/source', 'nbs': nbdev_clean(folder)")
    unclean = [path.relative_to(copy).as_posix() for path, old in before.items() if path.read_bytes() != old]
    assert not unclean, f"run nbdev_clean --fname on {unclean}"


def test_nothing_is_defined_twice_in_a_module():
    """A cell that was copied by mistake exports its functions twice, and nothing else would notice."""
    for path in (ROOT / "tinytorch").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
                 and not any(isinstance(d, ast.Call) for d in node.decorator_list)]   # add_to_class(A) and (B) may share a name
        assert len(names) == len(set(names)), f"{path}: {sorted(name for name in set(names) if names.count(name) > 1)}"


def is_text(call):
    """Whether a call opens, reads or writes a text, also one that another process prints."""
    name, method = getattr(call.func, "attr", getattr(call.func, "id", None)), isinstance(call.func, ast.Attribute)
    modes = [value.value for value in call.args[1 - method:] if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return (method and name in ("read_text", "write_text") or name == "open" and not any("b" in mode for mode in modes)
            or name == "run" and any(word.arg == "text" for word in call.keywords))


def test_every_text_is_said_to_be_utf_8():
    """Windows would take another encoding."""
    for path in [*(ROOT / "tinytorch").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "setup.py", ROOT / "nbgrader_config.py"]:
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call) and is_text(node)]
        wrong = [call.lineno for call in calls if not {"encoding", None} & {word.arg for word in call.keywords}]
        assert not wrong, f"{path}: say encoding= in the lines {wrong}"


def test_both_configurations_agree():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    settings = settings["DEFAULT"]
    with open(ROOT / "pyproject.toml", "rb") as file:
        pyproject = tomllib.load(file)
    project = pyproject["project"]

    assert settings["lib_name"] == project["name"]
    assert settings["description"] == project["description"]
    assert settings["keywords"].split() == project["keywords"]
    assert settings["license"] == project["license"].lower()
    assert ">=" + settings["min_python"] == project["requires-python"]
    assert settings["requirements"].split() == [text for text in project["dependencies"] if ";" not in text]    # of every system
    assert settings["console_scripts"] == "tinytorch=" + project["scripts"]["tinytorch"]
    for key, value in pyproject["tool"]["nbdev"].items():
        assert settings[key] == (str(value) if isinstance(value, bool) else value), key
