"""The `tinytorch` command: what it writes, what it refuses, how it ends."""
import errno
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("gguf", reason="the extra 'pretrained' is not installed")

from rich.cells import cell_len
from rich.console import Console

import tinytorch
from tests.lessons import ROOT
from tests.tiny_gguf import tiny_config, write_tiny
from tinytorch import cli
from tinytorch.__main__ import start
from tinytorch.cli import Lane, chart, folded, main, printable, side_by_side, watch
from tinytorch.course import DrawingConsole
from tinytorch.generation.generate import Sampler, generate, stream
from tinytorch.models.pretrained import from_pretrained

PROMPT = "tell the tale"
# A seed whose greedy text varies and does not end early, so that comparing texts can fail.
SEED = 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny(tmp_path_factory.mktemp("cli") / "tiny.gguf", seed=SEED))


@pytest.fixture(scope="module")
def long_path(tmp_path_factory):
    """A model that can write for minutes without a cache; without a token for the end of the text nothing ends it early."""
    return str(write_tiny(tmp_path_factory.mktemp("cli") / "long.gguf", tiny_config(max_seq_len=100_000), seed=SEED,
                          tokenizer__ggml__eos_token_id=None))


def run(capsys, *arguments):
    """Exit code, standard output and standard error of the command."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def expected_text(path, prompt, count, **options):
    model, tokenizer = from_pretrained(path)
    ids = tokenizer.encode(prompt)
    return tokenizer.decode(generate(model, ids, count, stop=(tokenizer.eos_id,), **options)[len(ids):])


def test_generate_writes_the_greedy_text(capsys, path):
    expected = expected_text(path, PROMPT, 20)
    assert len(set(expected)) > 5
    assert run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 20) == (0, expected + "\n", "")


def test_the_prompt_stands_behind_the_start_token_of_a_model_that_expects_one(capsys, path, tmp_path):
    """A chat template writes it itself."""
    start = str(write_tiny(tmp_path / "start.gguf", seed=SEED, tokenizer__ggml__add_bos_token=True))
    model, tokenizer = from_pretrained(start)
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT)]
    expected = tokenizer.decode(generate(model, ids, 20, stop=(tokenizer.eos_id,))[len(ids):])
    assert expected != expected_text(path, PROMPT, 20)
    assert run(capsys, "generate", PROMPT, "--model", start, "--max-new-tokens", 20) == (0, expected + "\n", "")
    figures = json.loads(run(capsys, "demo", "--json", "--prompt", PROMPT, "--model", start, "--max-new-tokens", 2)[1])
    assert figures["prompt_tokens"] == len(ids)
    chat = ["generate", PROMPT, "--chat", "--max-new-tokens", 20, "--model"]
    assert run(capsys, *chat, start) == run(capsys, *chat, path)


def test_generate_without_cache_writes_the_same(capsys, path):
    cached = run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 20)
    assert run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 20, "--no-cache") == cached


def test_generate_passes_sampling_options_on(capsys, path):
    options = ["--temperature", 0.9, "--top-k", 40, "--top-p", 0.95, "--seed", 5]
    expected = expected_text(path, PROMPT, 20, sampler=Sampler(temperature=0.9, top_k=40, top_p=0.95), seed=5)
    assert expected != expected_text(path, PROMPT, 20)
    assert run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 20, *options)[1] == expected + "\n"


def test_no_cache_really_runs_without(capsys, path, monkeypatch):
    """Both ways write the same text, so look at what the loop is asked to do."""
    asked = []
    def spy(*arguments, use_cache=True, **options):
        asked.append(use_cache)
        return stream(*arguments, use_cache=use_cache, **options)
    monkeypatch.setattr(cli, "stream", spy)
    run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 3)
    run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 3, "--no-cache")
    assert asked == [True, False]


def new_ids(path, count):
    model, tokenizer = from_pretrained(path)
    ids = tokenizer.encode(PROMPT)
    return tokenizer, generate(model, ids, count)[len(ids):]


def ending_at(path, folder, step):
    """The same model, in a file that says that the id of this step ends a text; and the text until then."""
    tokenizer, ids = new_ids(path, 20)
    assert ids[step] not in ids[:step]
    ending = write_tiny(folder / "ending.gguf", seed=SEED, tokenizer__ggml__eos_token_id=ids[step])
    return str(ending), tokenizer.decode(ids[:step])


def test_generate_stops_at_the_end_of_the_text(capsys, path, tmp_path):
    ending, expected = ending_at(path, tmp_path, step=5)
    assert run(capsys, "generate", PROMPT, "--model", ending, "--max-new-tokens", 20) == (0, expected + "\n", "")


def test_demo_stops_at_the_end_of_the_text(capsys, path, tmp_path):
    ending, _ = ending_at(path, tmp_path, step=5)
    code, out, err = run(capsys, "demo", "--json", "--prompt", PROMPT, "--model", ending, "--max-new-tokens", 20)
    assert (code, err, json.loads(out)["new_tokens"]) == (0, "", 5)


def test_a_text_that_ends_at_once(capsys, path, tmp_path):
    ending, _ = ending_at(path, tmp_path, step=0)
    code, out, err = run(capsys, "demo", "--prompt", PROMPT, "--model", ending, "--max-new-tokens", 20)
    assert (code, out) == (2, "") and "nothing to race" in err and err.count("\n") == 1
    code, out, err = run(capsys, "generate", PROMPT, "--model", ending, "--max-new-tokens", 20)
    assert (code, out) == (0, "\n") and "ends its text right after this prompt" in err and err.count("\n") == 1


def test_an_unfinished_letter_is_shown(capsys, path):
    """A text that is cut off in the middle of a letter ends with the sign for a letter that is none."""
    tokenizer, ids = new_ids(path, 40)
    count = next(n for n in range(1, 41) if 0xC2 <= tokenizer.token_bytes[ids[n - 1]][-1] <= 0xF4)
    _, out, _ = run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", count)
    assert out == tokenizer.decode(ids[:count]) + "\n" and out.endswith("\ufffd\n")


@pytest.mark.parametrize("text", ["[INST] hi [/INST]", "a[i] = 3", ":smile:", "[/x]", "[bold]loud[/bold]"])
def test_panels_show_the_text_as_it_is(text):
    """What a model writes is no markup."""
    lane = Lane("with cache", iter(()), None)
    lane.text = text
    console = Console(file=io.StringIO(), width=80)
    console.print(side_by_side([lane], console))
    assert text in console.file.getvalue()


def test_an_error_does_not_show_a_terminal_what_it_would_obey(capsys, tmp_path):
    path = write_tiny(tmp_path / "model.gguf", **{"llama__odd\x1b[2J\x07": 1})      # the sentence names the setting
    assert main(["generate", "hi", "--model", str(path)]) == 2
    assert "llama.odd\ufffd[2J\ufffd is '1'" in capsys.readouterr().err


def test_a_terminal_is_not_shown_what_it_would_obey(capsys, path, monkeypatch):
    """A file or a pipe gets what the model has written."""
    text = expected_text(path, PROMPT, 20)
    assert {"\x1f", "\x1d"} <= set(text)
    command = ["generate", PROMPT, "--model", path, "--max-new-tokens", 20]
    assert run(capsys, *command)[1] == text + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, *command)[1] == text.replace("\x1f", "\ufffd").replace("\x1d", "\ufffd") + "\n"
    assert printable("a\tb\n\x1b[2J\r\x7f\x9bü\u200d🐭\xa0") == "a\tb\n\ufffd[2J\ufffd\ufffd\ufffdü\u200d🐭\xa0"
    lane = Lane("with cache", iter(()), None)
    lane.text = "red\x1b[31m"
    console = Console(file=io.StringIO(), width=80)
    console.print(side_by_side([lane], console))
    assert "red\ufffd[31m" in console.file.getvalue()


@pytest.mark.parametrize("text, expected", [
    ("the red ball\n", "the red \nball\n"),
    ("the red, red ball\n", "the red, \nred ball\n"),                     # the blank still fits
    ("the reddest ball\n", "the \nreddest \nball\n"),
    ("a reddish tail\n", "a reddish\ntail\n"),                           # the blank does not fit: the line end stands for it
    ("a reddish  \n  tail\n", "a reddish\n  tail\n"),                    # one line end, and the next line's own blanks
    ("a reddishblueball is\n", "a reddishblueball \nis\n"),              # a long word is cut by the terminal, at "bl"
    ("a reddish reddishblueball\n", "a reddish\nreddishblueball\n"),
    ("reddishbluereddishblue a brick\n", "reddishbluereddishblue a \nbrick\n"),
    ("reddishblu a\n", "reddishblu\na\n"),                              # it fills the line
    ("a\tb c\n", "a\tb\nc\n"),
    ("\tab c\n", "\t\nab c\n"),
    ("日本語 日本語\n", "日本語 \n日本語\n"),
    ("aa 日本日本語 brick\n", "aa 日本日本語 \nbrick\n"),                # a long word, and no wide letter fits into the last cell
    ("e\u0301e\u0301e\u0301 e\u0301e\u0301e\u0301e\u0301 e\u0301\n", "e\u0301e\u0301e\u0301 e\u0301e\u0301e\u0301e\u0301 \ne\u0301\n"),
    ("\n\na\n", "\n\na\n"),
])
def test_words_are_not_cut_at_the_edge(text, expected):
    assert "".join(folded([text], 10)) == expected
    assert "".join(folded(text, 10)) == expected                            # each letter is a piece


def cut_words(text, width):
    """The words of a text that a terminal would show on two lines: it goes on there before a letter that does not fit."""
    row, column, cut = 0, 0, []
    for part in re.findall(r"[^ \t\n]+|[ \t\n]", text):
        if part == "\n":
            row, column = row + 1, 0
        elif part == "\t":
            column = min(column // 8 * 8 + 8, width - 1)
        else:
            rows = set()
            for letter in part:
                cells = cell_len(letter)
                row, column = (row, column + cells) if column + cells <= width else (row + 1, cells)
                rows.add(row)
            if len(rows) > 1:
                cut.append(part)
    return cut


@pytest.mark.parametrize("letters", ["ab", "aé日", "a日🐭", "ae\u0301"])
def test_of_all_words_only_long_ones_are_cut(letters):
    rng, cut = random.Random(5), 0
    for _ in range(100):
        width = rng.choice([5, 8, 23, 40])
        text = "".join("".join(rng.choices(letters, k=rng.choice([1, 2, 4, 7, 12, 30]))) + rng.choice([" ", " ", " ", "  ", "\n", "\t", " \n"])
                       for _ in range(20)) + "\n"
        shown = "".join(folded([text], width))
        assert shown.split() == text.split() and all(cell_len(word) >= width - 1 for word in cut_words(shown, width))
        cut += len(cut_words(text, width)) - len(cut_words(shown, width))
    assert cut > 100


def test_words_come_as_soon_as_they_are_whole():
    assert list(folded(["On", "ce", " up", "on a ", "time", ".", "\n"], 80)) == ["", "", "Once ", "upon a ", "", "", "time.\n"]
    assert list(folded(["x" * 6, "x" * 6, "x", " y", "\n"], 10)) == ["", "x" * 12, "x", " ", "y\n"]


def test_generate_breaks_lines_for_a_terminal_only(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    command = ["generate", "One day, Mia", "--max-new-tokens", 80]
    _, text, _ = run(capsys, *command)
    assert max(map(len, text.split("\n"))) > 60
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, shown, _ = run(capsys, *command)
    assert max(map(len, shown.split("\n"))) <= 19 and shown.split() == text.split() != []


@pytest.mark.parametrize("width", [80, 40])
def test_a_narrow_terminal_gets_all(width):
    lanes = [Lane("without cache", iter(()), None), Lane("with cache", iter(()), None)]
    for lane in lanes:
        lane.text, lane.ids, lane.times = "x" * 100, [1] * 100, [0.005] * 100
    console = Console(file=io.StringIO(), width=width)
    console.print(side_by_side(lanes, console))
    shown = console.file.getvalue()
    assert shown.count("x") == 200 and shown.count("200.0 tokens/s") == 2 and "without cache" in shown


def test_a_plain_terminal_gets_plain_panels():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "dumb"})
    console.print(side_by_side([Lane("with cache", iter(()), None)], console))
    assert console.file.getvalue().isascii() and console.file.getvalue().count("+") == 4


def drawn_lines(raw):
    """The lines that were drawn, without the codes that colour and move."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw).replace("\r", "\n").splitlines()


def test_what_is_drawn_live_leaves_room_for_the_sign_of_ctrl_c():
    """A terminal writes ^C behind it; in a full line that would begin a new line, and what stands above would never be erased."""
    model, tokenizer = from_pretrained("tiny")
    lanes = [Lane(title, stream(model, tokenizer.encode("Mia"), 5), tokenizer.text_stream()) for title in ("one", "two")]
    console = DrawingConsole(file=io.StringIO(), width=80, height=24, force_terminal=True, _environ={"TERM": "xterm"})
    watch(lanes, console)
    lines = drawn_lines(console.file.getvalue())
    assert any("tokens/s" in line for line in lines) and max(map(len, lines)) == 78


@pytest.mark.parametrize("term, drawn", [("xterm", True), ("dumb", False)])
def test_the_bar_of_loading(capsys, path, monkeypatch, term, drawn):
    """It leaves room in a narrow terminal, too. One that cannot move its cursor back gets none."""
    for name, value in {"FORCE_COLOR": "1", "TERM": term, "COLUMNS": "40"}.items():         # rich takes that for a terminal
        monkeypatch.setenv(name, value)
    code, out, err = run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 2)
    assert code == 0 and bool(err) == drawn and "Loading" not in out
    assert max(map(len, drawn_lines(err)), default=0) == 38 * drawn


@pytest.mark.parametrize("arguments", [[], ["generate"], ["demo"], ["train"], ["course"], ["course", "start"], ["course", "check"],
                                       ["course", "solve"], ["course", "status"]])
def test_help_shows_on_every_terminal(capsys, monkeypatch, arguments):
    """In plain letters, and no name is cut, however narrow it is."""
    monkeypatch.setenv("COLUMNS", "1")
    assert run(capsys, *arguments, "--help")[0] == 0
    monkeypatch.setenv("COLUMNS", "40")
    code, out, err = run(capsys, *arguments, "--help")
    assert (code, err) == (0, "") and out.isascii() and "-h, --help" in out and max(map(len, out.splitlines())) <= 38
    if arguments == ["generate"]:
        assert "  --max-new-tokens <" in out or "  --max-new-tokens INTEGER" in out
        assert "--no-cache  " in out                        # a switch takes no value


def test_a_small_terminal_sees_the_newest_lines():
    lane = Lane("with cache", iter(()), None)
    lane.text = "\n".join(f"line {i}" for i in range(50))
    console = Console(file=io.StringIO(), width=80)
    console.print(side_by_side([lane], console, lines=5))
    shown = [i for i in range(50) if f"line {i} " in console.file.getvalue()]
    assert shown == [45, 46, 47, 48, 49]


def test_options_without_effect_are_mentioned(capsys, path):
    for options, noted in (["--seed", 3], True), (["--top-p", 0.5], True), ([], False), (["--seed", 3, "--temperature", 1], False):
        code, _, err = run(capsys, "generate", PROMPT, "--model", path, "--max-new-tokens", 2, *options)
        assert code == 0 and ("change nothing" in err) == noted


def test_version(capsys):
    from tinytorch import __version__
    assert run(capsys, "--version") == (0, f"tinytorch {__version__}\n", "")


def test_chat_uses_the_template(capsys, path):
    _, tokenizer = from_pretrained(path)
    expected = expected_text(path, tokenizer.chat([{"role": "user", "content": PROMPT}]), 12)
    assert expected != expected_text(path, PROMPT, 12)
    assert run(capsys, "generate", PROMPT, "--chat", "--model", path, "--max-new-tokens", 12)[1] == expected + "\n"


def test_demo_prints_figures_for_scripts(capsys, path):
    began = time.perf_counter()
    code, out, err = run(capsys, "demo", "--json", "--prompt", PROMPT, "--model", path, "--max-new-tokens", 10)
    elapsed, figures = time.perf_counter() - began, json.loads(out)
    assert figures["uncached"]["seconds"] + figures["cached"]["seconds"] < elapsed
    model, tokenizer = from_pretrained(path)
    prompt_tokens = len(tokenizer.encode(PROMPT))
    assert (code, err) == (0, "")
    assert figures["same_tokens"] is True
    assert (figures["prompt_tokens"], figures["new_tokens"]) == (prompt_tokens, 10)
    config = model.config
    cache_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4 * (prompt_tokens + 10 - 1)
    assert figures["cache_mb"] == pytest.approx(cache_bytes / 2**20)
    for lane in figures["uncached"], figures["cached"]:
        assert len(lane["ms_per_token"]) == 10 and min(lane["ms_per_token"]) > 0
        assert lane["seconds"] == pytest.approx(sum(lane["ms_per_token"]) / 1000)
        assert lane["tokens_per_second"] == pytest.approx(10 / lane["seconds"])
    assert figures["speed_up"] == pytest.approx(figures["uncached"]["seconds"] / figures["cached"]["seconds"])


def test_demo_prints_text_figures_and_chart(capsys, path):
    code, out, err = run(capsys, "demo", "--prompt", PROMPT, "--model", path, "--max-new-tokens", 10)
    assert (code, err) == (0, "")
    for part in ("without cache", "with cache", "same tokens:   yes (10 new tokens", PROMPT, "tokens per second", "speed-up:", "cache memory:",
                 "ms per token", "new token"):
        assert part in out


def test_the_chart_fits_a_narrow_terminal(capsys, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    out = run(capsys, "demo", "--prompt", f"{PROMPT}, {PROMPT}", "--model", path, "--max-new-tokens", 10)[1]
    assert [line.rstrip() for line in out.splitlines()[:2]] == ["tell the tale, tell", "the tale"]
    assert [max(map(len, line.split("|")[1:])) for line in out.splitlines() if " |" in line[:10]] == [9] * 11


def test_demo_says_when_the_tokens_differ(capsys, path, monkeypatch):
    """A cache that forgets what it holds writes another text, and the demo must not call it the same."""
    from tinytorch.generation.kv_cache import ExactCache
    honest = ExactCache.read
    def forgetful(self, except_last=0):
        keys, values = honest(self, except_last)
        keys.data[:, :, :-1] *= 0.1
        return keys, values
    monkeypatch.setattr(ExactCache, "read", forgetful)
    code, out, _ = run(capsys, "demo", "--json", "--prompt", PROMPT, "--model", path, "--max-new-tokens", 20)
    assert code == 1 and json.loads(out)["same_tokens"] is False


def test_chart_puts_values_where_they_belong():
    lines = chart({"o": [99, 10, 5, 0], "+": [99, 0, 0, 0]}, width=3, height=3).split("\n")
    assert [line.split("|")[1] for line in lines if "|" in line] == ["o  ", " o ", "+++"]
    assert lines[1].split("|")[0].strip() == "10"             # the first value is left out: it includes the prompt
    assert chart({"o": [99]}) == ""
    slow = chart({"o": [99, 1, 1, 50, 2, 2, 2]}, width=2, height=3).split("\n")       # one token among three was slow
    assert [line.split("|")[1] for line in slow if "|" in line] == [" o", "o ", "  "] and slow[1].split("|")[0].strip() == "2.00"


@pytest.mark.parametrize("arguments, says", [
    (["generate", ""], "prompt is empty"),
    (["generate", "  \n"], "prompt is empty"),
    (["generate", "hi", "--max-new-tokens", "0"], "--max-new-tokens is 0"),
    (["generate", "hi", "--max-new-tokens", "-3"], "--max-new-tokens is -3"),
    (["generate", "hi", "--max-new-tokens", "many"], "--max-new-tokens"),
    (["generate", "hi", "--temperature", "-0.5"], "temperature is -0.5"),
    (["generate", "hi", "--temperature", "nan"], "temperature is nan"),
    (["generate", "hi", "--top-p", "1.5"], "--top-p is 1.5, but it must be a number from 0 to 1."),
    (["generate", "hi", "--top-p", "-0.1"], "--top-p is -0.1"),
    (["generate", "hi", "--top-k", "0"], "--top-k is 0"),
    (["generate", "hi", "--seed", "-1"], "--seed is -1"),
    (["generate", "hi", "--bogus"], "--bogus"),
    (["generate", "caf\udce9"], "encoding"),
    (["generate"], "prompt"),
    (["demo", "--prompt", ""], "prompt is empty"),
    (["demo", "--max-new-tokens", "0"], "--max-new-tokens is 0"),
    (["sing"], "sing"),
    (["sing"], "'sing'. See: tinytorch --help"),
    (["generat"], "'generate'? See: tinytorch --help"),
    (["generate", "-x"], "See: tinytorch generate --help"),
    (["generate"], "See: tinytorch generate --help"),
    (["generate", "hi", "--no-cache=1"], "Option '--no-cache' does not take a value. See: tinytorch --help"),
    (["demo", "--json=1"], "See: tinytorch --help"),
])
def test_arguments_are_checked_before_anything_is_loaded(capsys, arguments, says):
    """The model named here does not exist; an error that came after loading would say so instead."""
    model = ["--model", "no-such-model.gguf"] if arguments[0] not in ("sing", "generat") else []
    code, out, err = run(capsys, *arguments, *model)
    assert (code, out) == (2, "")
    assert err.startswith("tinytorch: ") and err.count("\n") == 1
    assert says.lower() in err.lower()


@pytest.mark.parametrize("arguments", ["generate hi --top-k", "demo --model", "train text --out", "course start --from"])
def test_an_option_that_lacks_its_value(capsys, arguments):
    code, out, err = run(capsys, *arguments.split())
    assert (code, out) == (2, "") and err == f"tinytorch: Option '{arguments.split()[-1]}' requires an argument. See: tinytorch --help\n"


def test_an_error_is_broken_between_words_on_a_terminal_only(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run(capsys, "generate", " ")[2] == "tinytorch: The prompt is empty; write at\n           least one word.\n"


@pytest.mark.parametrize("model, says", [
    ("gpt-5", "no model named 'gpt-5'"),
    ("", "no model named ''"),
    ("missing/file.gguf", "no file"),
    (__file__, "not a GGUF file"),
    (os.path.dirname(__file__), "is a folder"),
])
@pytest.mark.parametrize("command", [["generate", "hi"], ["demo"]])
def test_models_that_cannot_be_loaded(capsys, command, model, says):
    code, out, err = run(capsys, *command, "--model", model)
    assert (code, out) == (2, "")
    assert err.startswith("tinytorch: ") and err.count("\n") == 1 and says in err


def test_a_model_without_a_chat_template_names_the_option(capsys):
    code, out, err = run(capsys, "generate", "hi", "--chat")
    assert (code, out) == (2, "") and "--chat" in err and err.count("\n") == 1


@pytest.mark.parametrize("error, says", [
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device. Choose"),
    (PermissionError(errno.EACCES, "Permission denied", "here/model"), "Permission denied (here/model). Choose"),
    (FileNotFoundError("There is no file here/model."), "There is no file here/model.\n"),
    (MemoryError("Unable to allocate 96.1 GiB"), "The memory does not suffice. Unable to allocate 96.1 GiB\n"),
    (OverflowError("int too large"), "The memory does not suffice. int too large\n"),
])
def test_what_the_system_refuses_is_a_sentence(capsys, monkeypatch, error, says):
    def refuse(*arguments, **options):
        raise error
    monkeypatch.setattr(cli, "from_pretrained", refuse)
    code, out, err = run(capsys, "generate", "hi")
    assert (code, out) == (2, "") and err.startswith(f"tinytorch: {says}") and err.count("\n") == 1


@pytest.mark.parametrize("command", [["generate", PROMPT], ["demo"]])
@pytest.mark.parametrize("count", [1000, 10**9])
def test_too_long_for_the_model(capsys, path, command, count):
    code, out, err = run(capsys, *command, "--model", path, "--max-new-tokens", count)
    assert code == 2 and out == "" and "max_seq_len" in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments, names", [([], ["generate", "demo", "train", "course"]),
                                              (["course"], ["start", "check", "solve", "status"])])
def test_no_arguments_print_the_help(capsys, arguments, names):
    code, out, err = run(capsys, *arguments)
    lines = (out + err).splitlines()
    assert code == 2 and lines[0].startswith("Usage: tinytorch")
    assert sorted(line.split()[0] for line in lines[-len(names):]) == sorted(names)
    assert "..." not in "".join(lines[1:])                  # what a command does is not cut short


def command(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "tinytorch", *arguments],
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT that a test can send to one process")
@pytest.mark.parametrize("arguments, sign", [(["generate", PROMPT, "--max-new-tokens", "50000", "--no-cache"], b""),
                                             (["demo", "--max-new-tokens", "50000"], b"without cache")])
def test_ctrl_c_ends_politely(ctrl_c, long_path, arguments, sign):
    """Sent as soon as it writes; to a terminal, where the race is shown while it runs."""
    ours, theirs = os.openpty()
    with command(*arguments, "--model", long_path, stdout=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        try:
            seen, told = b"", False
            while more := read_terminal(ours):                          # to the end, or it would wait for its reader
                seen += more
                if sign in seen and not told:
                    process.send_signal(signal.SIGINT)
                    told = True
            assert told and process.wait() == 130
        finally:
            process.kill()
            os.close(ours)
        assert process.stderr.read().decode("utf-8").strip() == "Stopped."


@pytest.mark.parametrize("library, handler", [("numpy._core.multiarray", "default_int_handler"), ("typer", "default_int_handler"),
                                              ("typer", "SIG_IGN")])
def test_ctrl_c_while_it_is_still_importing(library, handler):
    """The command begins in a small module. NumPy would make an ImportError of an interrupt in the middle of its import.

    Who starts it may have it ignore Ctrl-C, as a shell does for what runs in the background.
    """
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.{handler})
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == "{library}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
from tinytorch.__main__ import start
sys.exit(start())
"""
    process = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, encoding="utf-8")
    ignored = handler == "SIG_IGN"
    assert (process.returncode, process.stderr.strip()) == ((0, "") if ignored else (130, "Stopped."))
    assert (tinytorch.__version__ in process.stdout) == ignored


def test_the_start_leaves_python_as_it_was(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tinytorch", "--version"])
    before = list(sys.path), sys.modules["tinytorch.cli"], signal.getsignal(signal.SIGINT)
    assert start() == 0 and capsys.readouterr().out.strip().endswith(tinytorch.__version__)
    assert (sys.path, sys.modules["tinytorch.cli"], signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize("number", [1, 2, 5, 20, 100])
def test_ctrl_c_at_any_import(ctrl_c, number):
    """From the first one on behind the small module itself. Without `site`, which would import some of them before."""
    code = f"""
import re, signal, sys                      # the first is imported by the file that an installation makes of the command
sys.path[:] = {sys.path!r}
class Interrupter:
    seen = set()
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[2] != "__main__" and name != "tinytorch":
            self.seen.add(name)
            if len(self.seen) == {number}:
                signal.raise_signal(signal.SIGINT)
                self.seen.add("told")
sys.meta_path.insert(0, Interrupter())
from tinytorch.__main__ import start
sys.exit(start())
"""
    process = subprocess.run([sys.executable, "-S", "-c", code, "demo"], capture_output=True, encoding="utf-8")
    assert (process.returncode, process.stdout, process.stderr.strip()) == (130, "", "Stopped.")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the output")
@pytest.mark.parametrize("arguments", ["demo --max-new-tokens 5", 'generate "27+44="', "--version"])
def test_a_closed_output(arguments):
    process = subprocess.run(["sh", "-c", f'"{sys.executable}" -m tinytorch {arguments} >&-'], capture_output=True, encoding="utf-8")
    assert process.returncode == 0 and "Traceback" not in process.stderr


def test_it_runs_as_a_module():
    process = subprocess.run([sys.executable, "-m", "tinytorch", "--version"], capture_output=True, encoding="utf-8")
    assert process.returncode == 0 and process.stdout.strip().endswith(tinytorch.__version__)


def read_terminal(descriptor):
    """Some bytes; none when the other end is closed, which Linux reports as an error."""
    try:
        return os.read(descriptor, 1000)
    except OSError:
        return b""


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_does_not_know_all_letters(path, encoding):
    """The model's text and the prompt hold such letters; they are shown as signs."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "TERM": "dumb"}
    process = command("demo", "--prompt", PROMPT + " Ω🐭", "--model", path, "--max-new-tokens", "10", env=environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == b""
    out = out.decode(encoding)
    assert PROMPT + " ??" in out and out.count("+") >= 4        # the corners of the panels are plain


@pytest.mark.parametrize("line, code, says", [
    ("tests.course_table --help", 0, "--write"), ("tinytorch.training.tiny --help", 0, "folder"),
    ("tests.misconceptions.changes", 2, "lesson"), ("tests.misconceptions.changes 06 slot", 2, "no exercise slot; its exercises are slots,"),
    ("tests.misconceptions.runner", 2, "bank")])
def test_the_other_programs_say_how_they_are_used(line, code, says):
    process = subprocess.run([sys.executable, "-m", *line.split()], cwd=ROOT, capture_output=True, encoding="utf-8")
    said = process.stderr if code else process.stdout
    assert process.returncode == code and said.startswith(f"usage: python -m {line.split()[0]} ") and says in said
