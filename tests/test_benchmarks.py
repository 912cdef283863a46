"""The benchmarks compare what computes the same, and their figures are what they say. Nothing here depends on time."""
import json
import os
import time

import numpy as np
import pytest

from tests import THREADS
from tests.benchmarks import measure, parts, report
from tests.benchmarks.__main__ import PARTS, SIZES, main
from tests.benchmarks.llama import LlamaCpp
from tests.benchmarks.models import random_ids, random_model, token_bytes, weight_bytes
from tests.benchmarks.peers import PlainNumPy, TinyTorch, TorchEager, Transformers, Uncached
from tinytorch.core.tensor import no_grad
from tinytorch.models.transformer import TransformerConfig, count_parameters

TINY = dict(vocab_size=50, embed_dim=32, num_layers=2, num_heads=4, num_kv_heads=2, intermediate_dim=40, max_seq_len=64)


def build(peer, model):
    if not peer.installed():
        pytest.skip(f"{' and '.join(peer.needs)} are not installed")
    return peer(model)


# --- the peers ---

@pytest.mark.parametrize("peer", [TinyTorch, Uncached, PlainNumPy, TorchEager, Transformers, LlamaCpp])
@pytest.mark.parametrize("changes", [{}, {"num_kv_heads": 4}, {"tie_embeddings": False}], ids=str)
def test_every_peer_computes_the_same(peer, changes):
    model = random_model(**{**TINY, **changes})
    parts.check_agreement(build(peer, model), model, rows=3, prompt=5, steps=6, new_tokens=12)


@pytest.mark.parametrize("peer", [PlainNumPy, TorchEager, Transformers, LlamaCpp])
def test_the_check_finds_a_peer_with_another_weight(peer):
    model, other = random_model(**TINY), random_model(**TINY)
    other.blocks[1].mlp_norm.weight.data[3] *= 1.1
    with pytest.raises(parts.Disagreement, match="apart"):
        parts.check_agreement(build(peer, other), model)


def test_the_check_reads_the_generated_tokens_too():
    """Logits may be right and the loop wrong."""
    class Stuck(TinyTorch):
        def generate(self, prompt, n, after):
            for _ in range(n):
                after(np.zeros(len(prompt), int))

    model = random_model(**TINY)
    with pytest.raises(parts.Disagreement, match="a token whose logit"):
        parts.check_agreement(Stuck(model), model)


def test_random_models_write_tokens_that_vary():
    """With a model that repeats one token the check of the tokens would see little."""
    model, written = random_model(**TINY), []
    TinyTorch(model).generate(random_ids(model, 4, 4), 12, lambda ids: written.extend(ids.tolist()))
    assert len(written) == 48 and len(set(written)) > 8
    with no_grad():
        assert 0.7 < model(random_ids(model, 4, 16)).data.std() < 1.5


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_plain_loop_may_read_in_pieces(chunk):
    model = random_model(**TINY)
    ids, peer = random_ids(model, 2, 14), PlainNumPy(model)
    with no_grad():
        expected = model(ids).data
    peer.start(ids[:, :7], 20)
    for at in range(7, 14, chunk):
        logits = peer.extend(ids[:, at:at + chunk]) if chunk > 1 else peer.step(ids[:, at])
        np.testing.assert_allclose(logits, expected[:, min(at + chunk, 14) - 1], atol=1e-4)


def test_sizes_and_bytes():
    counts = {name: count_parameters(TransformerConfig(max_seq_len=8, **sizes)) for name, sizes in parts.SIZES.items()}
    assert counts == {"0.8M": 771_200, "7M": 6_951_168, "30M": 29_893_120, "124M": 123_551_232}
    assert SIZES == tuple(parts.SIZES) and PARTS == tuple(parts.PARTS)
    tied, untied = random_model(**TINY), random_model(**TINY, tie_embeddings=False)
    assert weight_bytes(tied) == 4 * tied.num_parameters()
    assert weight_bytes(untied) == weight_bytes(tied)       # its embedding is only looked up
    assert token_bytes(tied.config) == 2 * 2 * 2 * 8 * 4    # keys and values, 2 layers, 2 heads of 8 floats


# --- the figures ---

def test_ratios_are_taken_round_by_round():
    assert measure.spread([5, 1, 2, 4, 3]) == (3, 2, 4)
    assert measure.ratios([10, 40, 90], [10, 20, 30]) == (2, 1.5, 2.5)


def test_rounds_take_turns_and_the_first_does_not_count():
    calls = []

    def function(name):
        def run():
            calls.append(name)
            return len(calls)
        return run

    functions = {name: function(name) for name in "abc"}
    times = measure.in_turns(functions, 3, pause=0)
    assert "".join(calls) == "abc" "bca" "cab" "abc"
    assert times == {"a": [6, 8, 10], "b": [4, 9, 11], "c": [5, 7, 12]}
    calls.clear()
    assert measure.in_turns(functions, 1, pause=0, warm_up=False) == {"a": [3], "b": [1], "c": [2]}


def test_a_comparison_divides_their_time_by_ours():
    times = {"tinytorch": [1.0, 2.0, 4.0], "transformers": [3.0, 6.0, 20.0]}
    row, = parts.compare(times, "decode", "decode, batch 8", "7M", "tokens/s", lambda s: 8 / s, {"transformers": {"7M": 3.5}})
    assert (row.against, row.ours, row.theirs, row.result) == ("transformers", 4, 8 / 6, (3, 3, 4))
    assert row.reached is False


@pytest.mark.parametrize("median, at_most, reached", [(2, False, True), (1, False, False), (2, True, False), (1, True, True)])
def test_goals_are_limits_from_below_or_above(median, at_most, reached):
    row = parts.Row("", "", "", "", 1, 1, "", measure.Spread(median, 0, 3), goal=1.5, at_most=at_most)
    assert row.reached is reached


def clock(monkeypatch, *readings):
    """Others.now() gives these readings: (time, idle, ours)."""
    values = iter(readings)
    monkeypatch.setattr(measure.Others, "now", staticmethod(lambda: np.array(next(values), float)))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def test_others_are_what_is_neither_idle_nor_ours(monkeypatch):
    clock(monkeypatch, (100, 1000, 5), (110, 1020, 12))     # 40 seconds of four processors: 20 idle, 7 ours, 13 of others
    assert measure.Others().processors() == pytest.approx(1.3)


def test_our_own_work_is_counted():
    before, end = measure.Others.now(), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert measure.Others.now()[2] > before[2] + 0.1


# --- the report ---

ROW = parts.Row("decode", "decode, batch 1", "7M", "transformers", 1234.5, 400.0, "tokens/s", measure.Spread(3.0, 2.9, 3.2), goal=2.5)
CURVE = parts.Row("context", "context 512", "7M", "extra bytes", 2.0, 1.0, "ms per token", measure.Spread(2.0, 1.9, 2.2),
                  "times the expected", 1.3, at_most=True)


def printed(others):
    from rich.console import Console
    console = Console(width=160, record=True, file=open(os.devnull, "w", encoding="utf-8"))
    report.print_part(console, "decode", [ROW, CURVE], others, 2, {"processor": "the processor"})
    console.file.close()
    return console.export_text()


def test_the_table():
    text = printed(others=0.1)
    assert text.isascii()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "batch" in line or "context" in line]
    assert cells == [
        ["decode, batch 1", "7M", "transformers", "1,234 tokens/s", "400", "3 (2.9 to 3.2)", ">= 2.5 reached"],
        ["context 512", "7M", "extra bytes", "2 ms per token", "1", "2 (1.9 to 2.2) times the expected", "<= 1.3 missed"]]
    assert "the processor" in text


def test_no_conclusion_while_others_use_the_processors():
    text = printed(others=0.9)
    assert "NO CONCLUSION" in text and "reached" not in text and "missed" not in text


def test_json_and_plot(tmp_path):
    machine = {"processor": "P", "blas": "B", "versions": "V"}
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    content = {"decode": ([ROW], 0.1), "context": ([CURVE], 0.9)}
    report.write_json(figures, machine, 2, content)
    read = json.loads(figures.read_text(encoding="utf-8"))
    assert read["machine"] == machine and read["threads"] == 2
    assert [part["disturbed"] for part in read["parts"].values()] == [False, True]
    row = read["parts"]["decode"]["rows"][0]
    assert row["result"] == {"median": 3.0, "low": 2.9, "high": 3.2} and row["reached"] is True
    report.write_plot(plot, machine, content)
    assert plot.read_bytes()[:4] == b"\x89PNG"


def run(monkeypatch, capsys, *arguments, busy):
    """The exit code and the output of a run of one part that is one Row; `busy`: what others use, reading by reading."""
    readings = iter(busy)
    monkeypatch.setattr(measure.Others, "processors", lambda self: next(readings))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setitem(parts.PARTS, "decode", lambda bench: [ROW])
    for name in THREADS:
        monkeypatch.setenv(name, "1")                       # so that it is put back
    code = main(["decode", *arguments])
    return code, capsys.readouterr().out


def test_a_quiet_run_concludes(monkeypatch, capsys):
    code, output = run(monkeypatch, capsys, busy=[0.1, 0.1])
    assert code == 0 and "reached" in output and "NO CONCLUSION" not in output
    assert "MKL favours Intel" in output and measure.processor() in output


def test_a_busy_machine_is_refused_before_anything_is_measured(monkeypatch, capsys):
    code, output = run(monkeypatch, capsys, busy=[0.95, 1.3, 0.9, 0.92, 1.0])
    assert code == 3 and "other processes keep 0.90 processors busy" in output and "transformers" not in output


@pytest.mark.parametrize("arguments, busy", [((), [0.9, 0.1, 0.9]), (("--force",), [0.9] * 6)])
def test_a_disturbed_run_concludes_nothing(monkeypatch, capsys, arguments, busy):
    code, output = run(monkeypatch, capsys, *arguments, busy=busy)
    assert code == 3 and "NO CONCLUSION about decode" in output and "1,234 tokens/s" in output and "reached" not in output


def test_an_unknown_part_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["decodes"])
    assert stopped.value.code == 2 and "unknown part decodes" in capsys.readouterr().err
