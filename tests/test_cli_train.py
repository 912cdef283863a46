"""`tinytorch train`: a model from a text file, interrupted and resumed, and what it refuses."""
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tinytorch.cli import Interrupts, main
from tinytorch.generation.generate import Sampler, generate
from tinytorch.models.pretrained import from_pretrained
from tinytorch.training import trainer
from tinytorch.training.data import read_text
from tinytorch.training.trainer import Diverged, Trainer, load_model, read_file

TEXT = "the cat sat on the mat. the dog sat on the log. " * 60
SMALL = ["--batch-size", "2", "--length", "16", "--embed-dim", "16", "--layers", "1", "--save-every", "5"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cats.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def weights(path):
    return np.concatenate([array.ravel() for array in load_model(path)[0].state_dict().values()])


def test_train_then_generate(capsys, here):
    code, out, err = run(capsys, "train", "cats.txt", *SMALL, "--steps", 60, "--peak-lr", 0.01)
    assert (code, err) == (0, "")
    assert "cats.safetensors" in out and "60 steps" in out and "last tenth" in out
    assert names(here) == ["cats.safetensors", "cats.txt"]
    model, tokenizer = from_pretrained("cats.safetensors")
    assert (model.config.embed_dim, model.config.num_layers, model.config.intermediate_dim, model.config.max_seq_len) == (16, 1, 42, 1024)
    expected = tokenizer.decode(generate(model, tokenizer.encode("the"), 20, stop=(tokenizer.eos_id,), seed=0,
                                         sampler=Sampler(temperature=0.8)))[3:]
    assert len(set(expected)) > 3
    command = ["generate", "the", "--model", "cats.safetensors", "--max-new-tokens", 20, "--temperature", 0.8, "--seed", 0]
    assert run(capsys, *command) == (0, expected + "\n", "")


def test_the_model_has_learnt(capsys, here):
    code, out, _ = run(capsys, "train", "cats.txt", "--steps", 120, "--peak-lr", 0.01, "--out", "m.safetensors", "--batch-size", 8,
                       "--length", 32, "--embed-dim", 32, "--layers", 2)
    assert code == 0
    assert float(out.split("trained on: ")[1].split(" ")[0]) < 1.0                 # guessing is 5.5


def test_what_the_model_is_examined_on_it_has_not_seen(capsys, here):
    """The last tenth of this text is another one. A text of less than twenty windows is learnt as a whole."""
    (here / "two.txt").write_text("ab" * 900 + "xyz" * 67, encoding="utf-8")
    (here / "short.txt").write_text("ab" * 150, encoding="utf-8")
    code, out, _ = run(capsys, "train", "two.txt", *SMALL, "--steps", 100, "--peak-lr", 0.01)
    assert code == 0 and float(out.split("trained on: ")[1].split(" ")[0]) > 4                # about 2 where it has seen it
    code, out, _ = run(capsys, "train", "short.txt", *SMALL, "--steps", 1)
    assert code == 0 and "last tenth" not in out


def stop_after(monkeypatch, step):
    """Make the trainer send this process the signal of Ctrl-C after a step."""
    honest = Trainer.run
    def interrupted(self, after_step):
        def hook(progress):
            if progress.step == step:
                signal.raise_signal(signal.SIGINT)
            return after_step(progress)
        honest(self, hook)
    monkeypatch.setattr(Trainer, "run", interrupted)


def test_ctrl_c_saves_and_resuming_equals_never_having_stopped(capsys, here, monkeypatch):
    command = ["train", "cats.txt", *SMALL, "--steps", 20]
    assert run(capsys, *command, "--out", "whole.safetensors")[0] == 0
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        code, out, err = run(capsys, *command)
    assert code == 130 and "Step 7 of 20 is saved." in out and "--resume" in out
    assert signal.getsignal(signal.SIGINT) is before
    assert names(here) == ["cats.checkpoint.safetensors", "cats.txt", "whole.safetensors"]

    code, out, err = run(capsys, *command)                              # a new training must not destroy the old one
    assert code == 2 and "--resume" in err and err.count("\n") == 1
    code, out, err = run(capsys, *command, "--resume")
    assert (code, err) == (0, "") and "Going on after step 7" in out
    np.testing.assert_array_equal(weights("cats.safetensors"), weights("whole.safetensors"))
    assert names(here) == ["cats.safetensors", "cats.txt", "whole.safetensors"]


@pytest.mark.parametrize("change, says", [
    (["--steps", "21"], "steps is 20 there and 21 here"), (["--embed-dim", "24"], "embed_dim is 16 there and 24 here"),
    (["--length", "17"], "another text"), (["--batch-size", "3"], "another text"), (["--seed", "1"], "seed is 0 there and 1 here"),
    ([], "another text"),
])
def test_resuming_another_training_is_refused(capsys, here, monkeypatch, change, says):
    command = ["train", "cats.txt", *SMALL, "--steps", "20"]
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        run(capsys, *command)
    if not change:
        (here / "cats.txt").write_text(TEXT + "meow", encoding="utf-8")
    before = (here / "cats.checkpoint.safetensors").read_bytes()
    code, out, err = run(capsys, *command, *change, "--resume")
    assert code == 2 and says in err and "options that it began with" in err and err.count("\n") == 1
    assert (here / "cats.checkpoint.safetensors").read_bytes() == before


@pytest.mark.parametrize("term, width, shown", [("xterm", 80, ["first step", "loss 5.", "100%", "tokens/s"]),
                                                ("xterm", 40, ["first step", "loss 5.", "100%", "00:00"]), ("dumb", 80, [])])
def test_the_bar(capsys, here, monkeypatch, term, width, shown):
    """It leaves room for the ^C of a terminal; where nothing can be drawn twice, there is none."""
    for name, value in {"FORCE_COLOR": "1", "TERM": term, "COLUMNS": str(width)}.items():           # rich takes that for a terminal
        monkeypatch.setenv(name, value)
    code, _, err = run(capsys, "train", "cats.txt", *SMALL, "--steps", 2)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err).replace("\r", "\n").splitlines()
    assert code == 0 and bool(lines) == bool(shown) and max(map(len, lines), default=0) <= width - 2
    for text in shown:
        assert any(text in line for line in lines)
    assert "nan" not in err and "\u2026" not in err


@pytest.mark.parametrize("what, says, left", [("save_checkpoint", "with --out.", []), ("save_model", "with --resume.", ["cats.checkpoint.safetensors"])])
def test_a_full_disk(capsys, here, monkeypatch, what, says, left):
    """At the beginning another place helps; at the end nothing that was learnt is lost."""
    def refuse(*arguments):
        raise OSError("It cannot be written: No space left on device.")
    with monkeypatch.context() as patch:
        patch.setattr(trainer, what, refuse)
        code, out, err = run(capsys, "train", "cats.txt", *SMALL, "--steps", 5)
    assert (code, out) == (2, "") and "No space left" in err and err.endswith(f"{says}\n") and err.count("\n") == 1
    assert names(here) == [*left, "cats.txt"]
    if left:
        assert run(capsys, "train", "cats.txt", *SMALL, "--steps", 5, "--resume")[0] == 0
        assert names(here) == ["cats.safetensors", "cats.txt"]


@pytest.mark.parametrize("text, word", [('"Stop!" said $(the cat). ', "Stop"), ("x" * 500, "x" * 20), ("\N{MOUSE}. " * 50, "...")])
def test_what_it_tells_to_try_is_right_in_a_shell(capsys, here, text, word):
    (here / "odd.txt").write_text(text * 10, encoding="utf-8")
    out = run(capsys, "train", "odd.txt", *SMALL, "--steps", 1, "--out", "my model.safetensors")[1]
    assert out.splitlines()[-1] == f'Try: tinytorch generate "{word}" --model "my model.safetensors" --temperature 0.8'


def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(capsys, here, monkeypatch):
    honest = Trainer.run
    def poisoned(self, after_step):
        def hook(progress):
            if progress.step == 8:
                self.model.norm.weight.data[0] = np.nan
            return after_step(progress)
        honest(self, hook)
    monkeypatch.setattr(Trainer, "run", poisoned)
    code, out, err = run(capsys, "train", "cats.txt", *SMALL, "--steps", 20)
    assert code == 2 and "step 9" in err and "cats.checkpoint.safetensors" in err and err.count("\n") == 1
    assert np.isfinite(weights("cats.checkpoint.safetensors")).all()
    assert read_file("cats.checkpoint.safetensors")[1]["step"] == 5


def test_the_model_never_takes_the_place_of_the_text(capsys, here):
    text = here / "cats.safetensors"                                        # an odd name, by which the model is called, too
    (here / "cats.txt").rename(text)
    for out in ([], ["--out", "cats.safetensors"], ["--out", text]):
        code, _, err = run(capsys, "train", "cats.safetensors", *SMALL, *out)
        assert code == 2 and "is the text itself" in err and err.count("\n") == 1
    assert text.read_text(encoding="utf-8") == TEXT and names(here) == ["cats.safetensors"]


def test_a_second_ctrl_c_breaks_a_step(ctrl_c):
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT that a test can send to one process")
def test_a_real_ctrl_c(ctrl_c, here):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    process = subprocess.Popen([sys.executable, "-m", "tinytorch", "train", "cats.txt", "--steps", "100000", *SMALL], cwd=here,
                               env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not (here / "cats.checkpoint.safetensors").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and b"--resume" in out and b"Traceback" not in err
    assert np.isfinite(weights(here / "cats.checkpoint.safetensors")).all()


@pytest.mark.parametrize("data, says", [
    (b"", "empty"), (b" \n\n", "empty"), (b"short", "5 tokens, but a window of 16"), (b"short", "--length"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a UTF-8 text"), (b"plain\0zero" * 100, "bytes that are zero"),
    ("Grüße".encode("latin-1") * 100, "not a UTF-8 text"),
    (b"\xef\xbb\xbfG\xfcte", "byte 4 is 0xfc"), (b"\xff\xfet\0e\0x\0t\0", "not a UTF-8 text"),
])
def test_files_that_are_no_text(capsys, here, data, says):
    (here / "bad.txt").write_bytes(data)
    code, out, err = run(capsys, "train", "bad.txt", *SMALL)
    assert (code, out) == (2, "") and says in err and err.startswith("tinytorch: ") and err.count("\n") == 1
    assert names(here) == ["bad.txt", "cats.txt"]


@pytest.mark.parametrize("arguments, says", [
    (["missing.txt"], "no file missing.txt"), (["."], "is a folder"), ([], "file"),
    (["cats.txt", "--steps", "0"], "steps is 0"), (["cats.txt", "--steps", "-3"], "steps is -3"),
    (["cats.txt", "--length", "0"], "--length is 0"), (["cats.txt", "--batch-size", "-1"], "--batch-size is -1"),
    (["cats.txt", "--layers", "0"], "--layers is 0"), (["cats.txt", "--embed-dim", "20"], "--embed-dim is 20"),
    (["cats.txt", "--peak-lr", "nan"], "--peak-lr is nan"), (["cats.txt", "--seed", "-1"], "seed is -1"),
    (["cats.txt", "--save-every", "0"], "--save-every is 0"), (["cats.txt", "--resume"], "to resume from"),
    (["cats.txt", "--out", "nowhere/m.safetensors"], "no folder nowhere"), (["cats.txt", "--out", "cats.txt"], "ends in .safetensors"),
    (["cats.txt", "--out", "model"], "ends in .safetensors"), (["cats.txt", "--out", "."], "ends in .safetensors"),
    (["cats.txt", "--embed-dim", "800000000000000000"], "memory"), (["cats.txt", "--batch-size", "10000000000000"], "memory"),
])
def test_what_is_refused(capsys, here, arguments, says):
    code, out, err = run(capsys, "train", *arguments)
    assert code == 2 and says.lower() in err.lower() and err.startswith("tinytorch: ") and err.count("\n") == 1
    assert names(here) == ["cats.txt"]


def test_texts_are_read_as_they_are(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeffGrüße\r\n27 €\n".encode("utf-8"))
    assert read_text(path) == "Grüße\n27 €\n"


def test_diverged_is_an_error_with_a_sentence():
    assert issubclass(Diverged, ArithmeticError)


def test_a_finished_model_is_overwritten_only_where_it_is_named(capsys, here):
    again = ["train", "cats.txt", *SMALL, "--steps", 2]
    assert run(capsys, *again)[0] == 0
    first = (here / "cats.safetensors").read_bytes()
    code, out, err = run(capsys, *again, "--seed", 1)
    assert code == 2 and out == "" and "cats.safetensors is there already" in err and "--out cats.safetensors" in err
    assert (here / "cats.safetensors").read_bytes() == first and names(here) == ["cats.safetensors", "cats.txt"]
    assert run(capsys, *again, "--seed", 1, "--out", "cats.safetensors")[0] == 0
    assert (here / "cats.safetensors").read_bytes() != first
