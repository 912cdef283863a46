"""Generation: the sampler against exact probabilities, the cached loop against recomputing everything."""
import dataclasses
import subprocess
import sys
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tinytorch.core import attention
from tinytorch.core.tensor import Tensor, is_grad_enabled, no_grad
from tinytorch.generation import generate as module
from tinytorch.generation.generate import (Difference, Sampler, first_difference, generate, penalise, stream,
                                           token_probabilities, trim_to)
from tinytorch.generation.kv_cache import CacheFullError, ExactCache, KVCache, LayerCache
from tinytorch.models.transformer import Transformer, TransformerConfig, generate_naive

ROOT = Path(__file__).resolve().parents[1]
CONFIG = TransformerConfig(vocab_size=40, embed_dim=32, num_layers=2, num_heads=4, num_kv_heads=2, intermediate_dim=40,
                           max_seq_len=128, tie_embeddings=False)


def examples(n):
    """Settings for a test that sees the same n examples in every run, however slow the machine is."""
    return settings(max_examples=n, derandomize=True, deadline=None, database=None,
                    suppress_health_check=[HealthCheck.too_slow])


def random_model(seed=0, **changes):
    """Untied, with weights so large that attention is sharp and every part matters: the tokens vary."""
    rng = np.random.default_rng(seed)
    model = Transformer(dataclasses.replace(CONFIG, **changes), seed=seed)
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        data = 1 + 0.3 * rng.standard_normal(shape) if "norm" in name else rng.standard_normal(shape) / shape[0] ** 0.5
        if "qkv" in name:
            data *= 2
        parameter.data = data.astype(np.float32)
    return model


MODEL = random_model(1)
PROMPT = [3, 1, 4, 1, 5]


def varied(ids, at_least=5):
    """A comparison proves something only where the tokens vary (PITFALLS 29)."""
    assert len(set(ids)) >= at_least, f"these tokens hardly vary: {ids}"
    return ids


class Greedy:
    """A greedy sampler that keeps the logits it saw, one list for each sequence of calls."""

    def __init__(self):
        self.logits, self.histories = [], []

    def __call__(self, logits, history, rng):
        self.logits.append(logits.copy())
        self.histories.append([list(ids) for ids in history])
        return logits.argmax(axis=-1)


class Recording(KVCache):
    """A cache that keeps which positions were given to layer 0."""

    def update(self, layer_idx, key, value, positions=None):
        if layer_idx == 0:
            self.__dict__.setdefault("fed", []).append(np.array(positions))
        return super().update(layer_idx, key, value, positions)

    def fed_to(self, row):
        return [int(p) for call in self.fed for p in call[row] if p >= 0]


def held(cache):
    return cache.next_positions()[:, 0].tolist()


def new_tokens(model=MODEL, prompt=PROMPT, n=30):
    return varied(generate_naive(model, prompt, n)[len(prompt):])


# ---- probabilities ----------------------------------------------------------------------------------------------------

def slow_probabilities(logits, temperature, top_k, top_p, min_p):
    """The definitions, one token at a time."""
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return np.array([float(i == ids[0]) for i in range(len(logits))])
    share = {i: float(np.exp((np.float64(logits[i]) - np.float64(logits[ids[0]])) / temperature)) for i in ids}
    if top_k is not None:
        ids = ids[:top_k]
    if top_p is not None:
        total, reached, kept = sum(share[i] for i in ids), 0.0, []
        for i in ids:
            kept.append(i)
            reached += share[i] / total
            if reached >= top_p:
                break
        ids = kept if top_p < 1 else ids
    if min_p is not None:
        ids = [i for i in ids if share[i] >= min_p]
    total = sum(share[i] for i in ids)
    return np.array([share[i] / total if i in ids else 0.0 for i in range(len(logits))])


@examples(200)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 2, 7, 60]), ties=st.booleans(), banned=st.integers(0, 3),
       temperature=st.sampled_from([0.0, 1e-8, 0.3, 1.0, 2.5, 100.0]), top_k=st.none() | st.integers(1, 70),
       top_p=st.none() | st.sampled_from([0.0, 1.0]) | st.floats(0.01, 0.99), min_p=st.none() | st.floats(0, 1))
def test_probabilities_follow_the_definitions(seed, size, ties, banned, temperature, top_k, top_p, min_p):
    rng = np.random.default_rng(seed)
    logits = (3 * rng.standard_normal(size)).astype(np.float32)
    if ties:
        logits = logits.round()
    logits[rng.permutation(size)[:min(banned, size - 1)]] = -np.inf
    got = token_probabilities(logits, temperature, top_k, top_p, min_p)
    expected = slow_probabilities(logits, temperature, top_k, top_p, min_p)
    assert got.dtype == np.float64
    if ties or min_p is not None:
        # on an edge (a sum that just reaches top_p, a share that just is min_p) rounding may decide either way
        shares = np.sort(slow_probabilities(logits, temperature, top_k, None, None))[::-1]
        near = top_p is not None and np.abs(shares.cumsum() - top_p).min() < 1e-9
        near |= min_p is not None and shares[0] > 0 and np.abs(shares / shares[0] - min_p).min() < 1e-9
        if near and not (top_p in (0.0, 1.0) or min_p in (0.0, 1.0)):
            return
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_the_ends_of_every_filter():
    logits = np.array([1.0, 3.0, 2.0, 3.0, -np.inf], np.float32)
    one = [0, 1, 0, 0, 0]
    for kind in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.0}, {"temperature": 0, "top_k": 3, "top_p": 0.9}):
        np.testing.assert_array_equal(token_probabilities(logits, **kind), one, err_msg=str(kind))
    everything = token_probabilities(logits)
    for kind in ({"top_k": 5}, {"top_k": 10**9}, {"top_p": 1.0}, {"min_p": 0.0}, {"top_p": 1}):
        np.testing.assert_array_equal(token_probabilities(logits, **kind), everything, err_msg=str(kind))
    assert token_probabilities(np.array([0, -50], np.float32), top_p=1.0)[1] > 0        # though the first alone rounds to 1
    np.testing.assert_array_equal(token_probabilities(logits, min_p=1.0), [0, 0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(token_probabilities(logits, 1e-8), [0, 0.5, 0, 0.5, 0])
    assert everything[4] == 0 and everything.sum() == pytest.approx(1)


@pytest.mark.parametrize("size, top_p, kept", [(4, 0.5, 2), (2, 0.5, 1), (4, 0.25, 1), (8, 0.75, 6)])
def test_a_sum_that_just_reaches_top_p_is_enough(size, top_p, kept):
    """Equal tokens, in numbers that a float holds exactly: no rounding decides."""
    p = token_probabilities(np.zeros(size, np.float32), top_p=top_p)
    np.testing.assert_array_equal(p, [1 / kept] * kept + [0] * (size - kept))


@pytest.mark.parametrize("temperature", [1e-300, 1e-8, 1e-3, 1e3, 1e300])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4, 3e38])
def test_no_temperature_and_no_logit_overflows(temperature, scale):
    logits = np.array([-1, 1, 0.5, -np.inf], np.float32) * np.float32(scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = token_probabilities(logits, temperature, top_k=3, top_p=0.99, min_p=0.0)
    assert np.isfinite(p).all() and p.sum() == pytest.approx(1) and p[1] == p.max() and p[3] == 0


def test_the_probabilities_of_a_large_vocabulary_are_exact():
    """top_p sorts only the tokens that it can need; on 50,000 of them that must not change what is kept."""
    logits = (2 * np.random.default_rng(0).standard_normal(50_000)).astype(np.float32)
    p = np.exp(logits.astype(np.float64) - logits.max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    for top_p in (0.0, 0.1, 0.5, 0.9, 0.999):
        count = 1 + int((p[order].cumsum() < top_p).sum())
        got = token_probabilities(logits, top_p=top_p)
        assert set(np.flatnonzero(got)) == set(order[:count])
        np.testing.assert_allclose(got[order[:count]], p[order[:count]] / p[order[:count]].sum())
    logits = logits.round()                                              # many equal ones: the lower ids come first
    order = np.argsort(-logits, kind="stable")
    for top_k in (1, 100, 10_000):
        assert set(np.flatnonzero(token_probabilities(logits, top_k=top_k))) == set(order[:top_k])


@pytest.mark.parametrize("bad, words", [(np.nan, "nan"), (np.inf, "inf")])
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0), Sampler(0.7, top_k=2, top_p=0.5), Sampler(repetition_penalty=2.0)])
def test_logits_that_are_no_numbers(bad, words, sampler):
    logits = np.array([1, bad, 2], np.float32)
    with pytest.raises(ValueError, match=words):
        sampler(logits, [0], np.random.default_rng(0))
    with pytest.raises(ValueError, match="largest logit is -inf"):
        sampler(np.full(3, -np.inf, np.float32), [0], np.random.default_rng(0))


def test_penalty():
    logits = np.array([2.0, -2.0, 0.0, 2.0, -np.inf], np.float32)
    before = logits.copy()
    out = penalise(logits, [0, 1, 0, 0, 2, 4], 4.0)
    np.testing.assert_array_equal(out, [0.5, -8.0, 0.0, 2.0, -np.inf])         # once, however often the token came
    np.testing.assert_array_equal(logits, before)
    assert out.dtype == np.float32
    for history in ((0, 1, 0, 0, 2, 4), np.array([0, 1, 0, 0, 2, 4])):
        np.testing.assert_array_equal(penalise(logits, history, 4.0), out)
    for history in ([], ()):
        np.testing.assert_array_equal(penalise(logits, history, 4.0), logits)
    assert Sampler(repetition_penalty=4.0)(logits, [0], None) == 3 and Sampler()(logits, [0], None) == 0
    np.testing.assert_array_equal(Sampler(1.0, repetition_penalty=4.0).probabilities(logits, [0, 1, 0, 0, 2, 4]), token_probabilities(out))


def test_sampler_calls():
    logits = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)
    before = logits.copy()
    sampler = Sampler(0.8, top_k=5, top_p=0.9, min_p=0.01, repetition_penalty=1.2)
    rngs = [np.random.default_rng(i) for i in range(3)]
    ids = sampler(logits, [[1], [2, 2], []], rngs)
    assert ids.shape == (3,) and ids.dtype.kind == "i"
    alone = [sampler(row, history, np.random.default_rng(i)) for i, (row, history) in enumerate(zip(logits, [[1], [2, 2], []]))]
    assert alone == ids.tolist() and all(type(i) is int for i in alone)
    np.testing.assert_array_equal(logits, before)
    assert Sampler()(logits, [[]] * 3, rngs).tolist() == logits.argmax(axis=-1).tolist()
    assert type(Sampler()(logits[0], [], rngs[0])) is int
    one, same = np.random.default_rng(4), np.random.default_rng(4)                  # rows that share one draw in turn
    assert sampler(logits, [[]] * 3, one).tolist() == [sampler(row, [], same) for row in logits]
    assert Sampler()(logits, [[]] * 3, None).tolist() == logits.argmax(axis=-1).tolist()        # greedy draws nothing
    assert Sampler(repetition_penalty=2.0)(logits.tolist(), [[], [1], [2]], rngs).shape == (3,)
    for histories, generators in (([[1]], rngs), ([[1]] * 3, rngs[:2])):
        with pytest.raises(ValueError, match="every row needs one of each"):
            sampler(logits, histories, generators)
    p = sampler.probabilities(logits[0], [1])
    assert p.shape == (9,) and p.sum() == pytest.approx(1) and np.count_nonzero(p) <= 5
    np.testing.assert_allclose(sampler.probabilities(logits[0].tolist(), [1]), p, rtol=1e-6)


@pytest.mark.parametrize("sampler", [Sampler(1.0), Sampler(0.5), Sampler(1.7, top_k=7), Sampler(1.0, top_p=0.8),
                                     Sampler(1.0, min_p=0.2), Sampler(1.3, top_k=9, top_p=0.9, min_p=0.02),
                                     Sampler(1.0, repetition_penalty=1.5)], ids=repr)
def test_draws_have_the_exact_distribution(sampler):
    """Chi-square on 5,000 draws with a fixed seed; 6 standard deviations of the statistic would be chance once in ages."""
    rng = np.random.default_rng(5)
    logits = (1.5 * rng.standard_normal(12)).astype(np.float32)
    history, draws = [0, 3, 3], 5_000
    p = sampler.probabilities(logits, history)
    counts = np.bincount([sampler(logits, history, rng) for _ in range(draws)], minlength=12)
    assert (counts[p == 0] == 0).all()
    kept = p > 0
    freedom = kept.sum() - 1
    statistic = ((counts[kept] - draws * p[kept]) ** 2 / (draws * p[kept])).sum()
    assert statistic < freedom + 6 * np.sqrt(2 * freedom), f"{counts[kept] / draws} instead of {p[kept]}"


def test_a_draw_never_takes_an_impossible_token():
    class Edge:
        def __init__(self, value):
            self.value = value

        def random(self):
            return self.value
    logits = np.array([-np.inf, 0, -np.inf, 0, -np.inf], np.float32)
    assert Sampler(1.0)(logits, [], Edge(0.0)) == 1
    assert Sampler(1.0)(logits, [], Edge(0.5)) == 3
    assert Sampler(1.0)(logits, [], Edge(np.nextafter(1.0, 0))) == 3
    for size in (3, 10, 1000):
        p_last = Sampler(1.0)(np.random.default_rng(size).standard_normal(size), [], Edge(np.nextafter(1.0, 0)))
        assert p_last == size - 1


@pytest.mark.parametrize("kind, words", [
    ({"temperature": -0.1}, "temperature is -0.1"), ({"temperature": float("nan")}, "temperature is nan"),
    ({"temperature": float("inf")}, "temperature is inf"), ({"temperature": "1"}, "temperature is '1'"),
    ({"temperature": 10**400}, "temperature is 1000"), ({"repetition_penalty": 10**400}, "repetition_penalty is 1000"),
    ({"top_p": 10**400}, "top_p is 1000"), ({"temperature": None}, "temperature is None"), ({"temperature": True}, "temperature is True"),
    ({"top_k": 0}, "top_k is 0"), ({"top_k": -1}, "top_k is -1"), ({"top_k": 2.0}, r"top_k is 2\.0"),
    ({"top_k": True}, "top_k is True"), ({"top_p": -0.1}, "top_p is -0.1"), ({"top_p": 1.1}, "top_p is 1.1"),
    ({"top_p": float("nan")}, "top_p is nan"), ({"min_p": 2}, "min_p is 2"), ({"min_p": "x"}, "min_p is 'x'"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0"), ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
    ({"repetition_penalty": None}, "repetition_penalty is None"),
])
def test_impossible_samplers(kind, words):
    with pytest.raises(ValueError, match=words):
        Sampler(**kind)


def test_whole_numbers_beyond_int64_make_a_sampler():
    logits = np.array([1, 3, 2], np.float32)
    for sampler in (Sampler(10**30), Sampler(repetition_penalty=10**30), Sampler(1, repetition_penalty=10**30), Sampler(1, top_k=10**30)):
        assert 0 <= sampler(logits, [0], np.random.default_rng(0)) < 3
    np.testing.assert_allclose(Sampler(10**30).probabilities(logits), 1 / 3)


def test_numpy_numbers_make_a_sampler():
    for sampler in (Sampler(np.float32(0.5), np.int64(3), np.float64(0.9), np.float32(0.1), np.float32(1.5)),
                    Sampler(np.int64(1), repetition_penalty=np.int64(2))):
        assert 0 <= sampler(np.zeros(4, np.float32), [1], np.random.default_rng(0)) < 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sampler().temperature = 1.0


@pytest.mark.parametrize("kind, expected", [({"top_k": 1}, 1), ({"top_p": 0}, 1), ({"top_p": 1}, 3), ({"min_p": 0}, 3),
                                            ({"min_p": 1}, 1)], ids=str)
def test_samplers_at_the_ends_of_what_is_allowed(kind, expected):
    assert np.count_nonzero(Sampler(1.0, **kind).probabilities(np.array([1, 3, 2], np.float32))) == expected


def test_filters_agree_with_transformers():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(2)
    for _ in range(40):
        logits = (3 * rng.standard_normal(300)).astype(np.float32)
        history = rng.integers(0, 300, 20).tolist()
        kind = {"temperature": float(rng.uniform(0.2, 2)), "top_k": int(rng.integers(1, 300)),
                "top_p": float(rng.uniform(0.05, 0.99)), "min_p": float(rng.uniform(0.001, 0.3)),
                "repetition_penalty": float(rng.uniform(0.8, 2))}
        for name in rng.permutation(["top_k", "top_p", "min_p"])[:rng.integers(0, 3)]:
            kind[name] = None
        chain = [peer.RepetitionPenaltyLogitsProcessor(kind["repetition_penalty"]),
                 peer.TemperatureLogitsWarper(kind["temperature"])]
        if kind["top_k"] is not None:
            chain.append(peer.TopKLogitsWarper(kind["top_k"]))
        if kind["top_p"] is not None:
            chain.append(peer.TopPLogitsWarper(kind["top_p"]))
        if kind["min_p"] is not None:
            chain.append(peer.MinPLogitsWarper(kind["min_p"]))
        scores = torch.from_numpy(logits[None].copy())
        for step in chain:
            scores = step(torch.tensor([history]), scores)
        theirs = torch.softmax(scores.double(), -1)[0].numpy()
        ours = Sampler(**kind).probabilities(logits, history)
        assert set(np.flatnonzero(ours)) == set(np.flatnonzero(theirs)), kind
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


# ---- cached equals uncached -------------------------------------------------------------------------------------------

def logits_and_tokens(model, prompts, n, **how):
    """The logits of every step, (steps, B, V), and the rows."""
    sampler = Greedy()
    rows = generate(model, prompts, n, sampler=sampler, **how)
    return np.array(sampler.logits), rows


@examples(30)
@given(seed=st.integers(0, 10**6), heads=st.sampled_from([(4, 4), (4, 2), (4, 1)]), batch=st.sampled_from([1, 3]),
       length=st.sampled_from([1, 2, 17, None]), n=st.sampled_from([1, 2, 24]), chunk=st.sampled_from([1, 3, 16, 512]))
def test_cached_equals_uncached(seed, heads, batch, length, n, chunk):
    """MHA, GQA and MQA, one row and three, all lengths or ragged, any chunks: first the logits, then the tokens."""
    rng = np.random.default_rng(seed)
    model = random_model(seed, num_heads=heads[0], num_kv_heads=heads[1])
    prompts = [rng.integers(0, 40, length or rng.integers(1, 20)).tolist() for _ in range(batch)]
    expected = [generate_naive(model, prompt, n) for prompt in prompts]
    assume(n < 20 or all(len(set(row[-n:])) > 3 for row in expected))        # tokens that do not vary prove nothing
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PREFILL_CHUNK", chunk)
        with_cache, rows = logits_and_tokens(model, prompts, n)
        without, same = logits_and_tokens(model, prompts, n, use_cache=False)        # never in chunks
    np.testing.assert_allclose(with_cache, without, atol=1e-4)
    assert rows == same
    assert rows == expected
    last = [logits_and_tokens(model, prompt, n)[0][-1, 0] for prompt in prompts]
    np.testing.assert_allclose(with_cache[-1], last, atol=1e-4)                  # neighbours and padding change nothing


@pytest.mark.parametrize("prompt", [[7], [7, 8], list(range(17))])
def test_the_loop_follows_generate_naive(prompt):
    expected = generate_naive(MODEL, prompt, 40)
    varied(expected[len(prompt):])
    assert generate(MODEL, prompt, 40) == expected
    assert generate(MODEL, prompt, 40, use_cache=False) == expected
    assert prompt + sum(stream(MODEL, prompt, 40), []) == expected


class LosesFirst(ExactCache):
    """Hides the first token of the first call."""
    def read(self, except_last=0):
        keys, values = super().read(except_last)
        return keys[:, :, 1:], values[:, :, 1:]

    @property
    def length(self):
        return max(0, self.size - 1)

    @property
    def positions(self):
        return super().positions[:, 1:]


class ForgetsTheNewest(ExactCache):
    """Hands out the token before in place of the newest (the token does not see itself)."""
    def update(self, key, value, positions=None):
        keys, values = super().update(key, value, positions)
        if key.shape[2] > 1:
            return keys, values
        newest = keys.data.copy(), values.data.copy()
        for array in newest:
            array[:, :, -1] = array[:, :, -2]
        return type(keys)(newest[0]), type(keys)(newest[1])


@pytest.mark.parametrize("mistake", [LosesFirst, ForgetsTheNewest])
def test_the_comparison_would_catch_a_broken_cache(mistake):
    """A test of the tests: with a planted mistake the logits part, and first_difference names the layer."""
    expected, _ = logits_and_tokens(MODEL, PROMPT, 10, use_cache=False)
    cache = KVCache.for_model(MODEL, layer_cache=mistake)
    got, _ = logits_and_tokens(MODEL, PROMPT, 10, cache=cache)
    assert np.abs(got - expected).max() > 1e-2


# ---- positions and slots ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("chunk", [1, 2, 3, 512])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_every_position_is_fed_once_and_the_last_token_never(monkeypatch, length, chunk):
    monkeypatch.setattr(module, "PREFILL_CHUNK", chunk)
    prompt = list(range(length))
    cache = Recording.for_model(MODEL, max_seq_len=length + 9)          # P + N - 1 slots suffice
    assert generate(MODEL, prompt, 10, cache=cache) == generate_naive(MODEL, prompt, 10)
    assert cache.fed_to(0) == list(range(length + 9)) and cache.seq_pos == length + 9
    assert max(call.shape[1] for call in cache.fed) <= chunk


def test_one_slot_less_is_refused_before_anything_runs():
    cache = Recording.for_model(MODEL, max_seq_len=13)
    with pytest.raises(CacheFullError, match="13 slots, but 14 are needed"):
        stream(MODEL, PROMPT, 10, cache=cache)
    assert cache.seq_pos == 0 and not hasattr(cache, "fed")
    model = random_model(1, max_seq_len=14)
    assert len(generate(model, PROMPT, 10)) == 15
    for use_cache in (True, False):
        with pytest.raises(ValueError, match="need 15 positions, but the model's max_seq_len is 14.*at most 10 new"):
            stream(model, PROMPT, 11, use_cache=use_cache)
        with pytest.raises(ValueError, match="5 tokens of prompt and 11 new ones need 15 positions"):
            stream(model, [[7], PROMPT, [7]], 11, use_cache=use_cache)


def test_a_full_cache_can_still_give_one_token():
    """Nothing left to forward: one token is taken back and done again, in the slot that it had."""
    cache = Recording.for_model(MODEL, max_seq_len=6)
    history = generate(MODEL, PROMPT, 2, cache=cache)
    assert cache.seq_pos == 6
    before = cache.next_positions().tolist()
    with pytest.raises(CacheFullError):
        generate(MODEL, history, 1 + 1, cache=cache)
    assert cache.next_positions().tolist() == before
    history = generate(MODEL, history[:6], 1, cache=cache)
    assert history == generate_naive(MODEL, PROMPT, 2) and cache.fed_to(0) == [0, 1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("prompt", [PROMPT, [PROMPT], [PROMPT, [1]]])
def test_no_new_tokens(prompt):
    cache = KVCache.for_model(MODEL, batch_size=2 if prompt == [PROMPT, [1]] else 1)
    for how in ({}, {"use_cache": False}, {"cache": cache}):
        out = generate(MODEL, prompt, 0, **how)
        assert out == prompt and out is not prompt
        assert list(stream(MODEL, prompt, 0, **how)) == []
    assert cache.seq_pos == 0


def test_no_new_tokens_need_nothing_and_change_nothing():
    long, cache = [1] * (CONFIG.max_seq_len + 2), filled([range(5)])
    assert generate(MODEL, long, 0) == long
    assert generate(MODEL, [1, 2, 3, 4, 5], 0, cache=cache) == [1, 2, 3, 4, 5] and cache.seq_pos == 5
    assert generate(MODEL, [7], 0) == [7]


# ---- going on with a cache --------------------------------------------------------------------------------------------

def test_a_second_call_goes_on_and_forwards_only_the_rest():
    cache = Recording.for_model(MODEL)
    first = generate(MODEL, PROMPT, 6, cache=cache)
    longer = first + [9, 8, 7]
    second = generate(MODEL, longer, 8, cache=cache)
    assert second == generate_naive(MODEL, longer, 8)
    varied(second)
    assert cache.fed_to(0) == list(range(len(second) - 1))
    third = generate(MODEL, second, 5, cache=cache)                      # nothing added: one token is pending anyway
    assert third == generate_naive(MODEL, second, 5) and cache.fed_to(0) == list(range(len(third) - 1))


def test_logits_of_a_continuation():
    cache = KVCache.for_model(MODEL)
    first = generate(MODEL, PROMPT, 6, cache=cache)
    longer = first + [9, 8, 7]
    got, _ = logits_and_tokens(MODEL, longer, 8, cache=cache)
    expected, _ = logits_and_tokens(MODEL, longer, 8, use_cache=False)
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_a_stored_prompt_is_used_twice():
    stored = KVCache.for_model(MODEL)
    with no_grad():
        MODEL(np.array([PROMPT]), cache=stored)
    contents = [part.data.copy() for part in stored.get(0)]
    for ending in ([], [7], [9, 2, 2]):
        for _ in range(2):
            cache = stored.copy()
            assert generate(MODEL, PROMPT + ending, 9, cache=cache) == generate_naive(MODEL, PROMPT + ending, 9)
    assert stored.seq_pos == len(PROMPT)
    for part, before in zip(stored.get(0), contents):
        np.testing.assert_array_equal(part.data, before)


def test_a_reset_cache_is_a_new_one():
    cache = KVCache.for_model(MODEL)
    generate(MODEL, [9, 9, 9], 12, cache=cache)
    cache.reset()
    assert generate(MODEL, PROMPT, 12, cache=cache) == generate_naive(MODEL, PROMPT, 12)


def test_a_cache_that_does_not_belong_is_refused():
    cache = KVCache.for_model(MODEL)
    history = generate(MODEL, PROMPT, 6, cache=cache)
    for prompt, words in ((PROMPT, "holds 10 tokens of row 0, but its prompt has only 5"),
                          ([history, history], "batch of 1, but there are 2 prompts")):
        with pytest.raises(ValueError, match=words):
            generate(MODEL, prompt, 1, cache=cache)
    with pytest.raises(ValueError, match="use_cache=False"):
        generate(MODEL, history, 1, cache=cache, use_cache=False)
    assert cache.seq_pos == 10
    two = KVCache.for_model(MODEL, batch_size=2)
    rows = generate(MODEL, [PROMPT, [7]], 6, cache=two)
    with pytest.raises(ValueError, match="holds 6 tokens of row 1, but its prompt has only 1"):
        generate(MODEL, [rows[0][:10], [7]], 1, cache=two)
    with pytest.raises(ValueError, match="1 layers of .* but the model has 2 layers"):
        generate(MODEL, PROMPT, 1, cache=KVCache(1, 20, 1, 4, 8, num_kv_heads=2))
    for sizes in ((1, 20, 1, 4, 8), (1, 20, 2, 4, 8)):                     # of other models: they keep what they hold
        other = KVCache(*sizes, num_kv_heads=1)
        for layer in range(sizes[2]):
            other.update(layer, *np.ones((2, 1, 1, len(history), 8), np.float32))
        other.advance(len(history))
        with pytest.raises(ValueError, match="for_model"):
            generate(MODEL, history, 1, cache=other)
        assert other.seq_pos == len(history)
    generate(MODEL, history, 1, cache=cache)


class EveryHead(ExactCache):
    """Tells the positions of each head, as policies do whose heads keep different tokens."""
    @property
    def positions(self):
        return np.repeat(super().positions[:, None], self.num_kv_heads, axis=1)


def filled(positions, model=MODEL, **kw):
    """A cache after one forward with these positions; the token at position p is p + 1, padding is 0."""
    positions = np.array(positions)
    cache = KVCache.for_model(model, batch_size=len(positions), **kw)
    with no_grad():
        model(np.where(positions < 0, 0, positions + 1), cache=cache, positions=positions)
    return cache


@pytest.mark.parametrize("layer_cache", [ExactCache, EveryHead])
@pytest.mark.parametrize("positions", [
    [[1]], [[0, 2]], [[0, 2, 5]], [[0, 0]], [[1, 0]], [[0, 0, 2]], [[3, 4, 5]], [[-1, 1]], [[-1, -1, 1]], [[0, -1, 2]], [[0, 1], [0, 2]],
    [[0, 1], [-1, 1]]], ids=str)
def test_a_cache_with_gaps_in_its_positions_is_refused(positions, layer_cache):
    """How many tokens of a row it holds cannot be told then, and every answer would give wrong tokens."""
    cache = filled(positions, layer_cache=layer_cache)
    prompts = [list(range(1, 8))] * len(positions)
    for call in (generate, stream):
        with pytest.raises(ValueError, match=rf"row {len(positions) - 1} of the cache are not 0, 1, 2"):
            call(MODEL, prompts, 2, cache=cache)
    assert cache.layers[0]._positions[:, :cache.seq_pos].tolist() == positions and cache.seq_pos == len(positions[0])
    cache.reset()
    assert generate(MODEL, prompts, 2, cache=cache) == [generate_naive(MODEL, prompts[0], 2)] * len(prompts)


@pytest.mark.parametrize("layer_cache", [ExactCache, EveryHead])
@pytest.mark.parametrize("positions", [[[0]], [[-1]], [[-1, 0, 1]], [[0, -1, 1, -1]], [[-5, 0, -2, 1]], [[-1, -1], [0, 1]],
                                       [[0, 1, -1, -1, 2], [-1, -1, 0, -1, -1]]], ids=str)
def test_padding_may_stand_anywhere_in_a_cache(positions, layer_cache):
    prompts = [list(range(1, 8 - i)) for i in range(len(positions))]
    assert generate(MODEL, prompts, 5, cache=filled(positions, layer_cache=layer_cache)) == [generate_naive(MODEL, prompt, 5) for prompt in prompts]


def test_gaps_in_a_layer_above_the_first_are_found():
    cache = filled([[0, 1, 2]])
    cache.layers[1]._positions[0, :3], cache.layers[1].padded = [0, 1, 3], True
    with pytest.raises(ValueError, match="not 0, 1, 2"):
        generate(MODEL, [1, 2, 3, 4], 1, cache=cache)


def test_positions_of_a_forward_that_failed_do_not_count():
    cache = filled([[0, 1, 2]], max_seq_len=8)
    with no_grad():
        next(MODEL.hidden_states([[7, 8]], cache=cache, positions=[[5, 9]]))            # one of two layers has run
    assert cache.layers[0].size == 5
    assert generate(MODEL, [1, 2, 3, 4], 5, cache=cache) == generate_naive(MODEL, [1, 2, 3, 4], 5)


class KeepsTwo(ExactCache):
    """Shows the last two tokens, whatever came before: as much of an evicting policy as the checks ask for."""
    @property
    def length(self):
        return min(self.size, 2)

    @property
    def positions(self):
        return super().positions[:, -2:]

    def read(self, except_last=0):
        keys, values = super().read(except_last)
        return keys[:, :, -2:], values[:, :, -2:]


@pytest.mark.parametrize("positions", [[[0]], [[0, 1]], [[0, 1, 2]], [[-1, 0, 1, 2]], [[0, 1, 2, -1]]], ids=str)
def test_a_policy_that_drops_tokens_may_have_gaps(positions):
    cache = filled(positions, layer_cache=KeepsTwo)
    once = generate(MODEL, [1, 2, 3, 4, 5], 3, cache=cache)
    assert len(once) == 8 and len(generate(MODEL, once, 3, cache=cache)) == 11
    module.check_positions(cache)


class OneHeadForgets(ExactCache):
    """The first head sees every token, the other one the last two: its other slots are empty."""
    padded = property(lambda self: True, lambda self, value: None)

    @property
    def positions(self):
        held = super().positions
        return np.stack([held, np.where(held > held.max(axis=1, keepdims=True, initial=-1) - 2, held, -1)], axis=1)


def test_one_head_may_drop_tokens_that_another_keeps():
    def cache():
        return KVCache.for_model(MODEL, layer_cache=OneHeadForgets)
    expected = generate(MODEL, PROMPT, 12, cache=cache())
    assert expected != generate(MODEL, PROMPT, 12)
    twice = cache()
    assert generate(MODEL, generate(MODEL, PROMPT, 5, cache=twice), 7, cache=twice) == expected
    with pytest.raises(ValueError, match="not 0, 1, 2"):
        generate(MODEL, [1, 2, 3, 4], 1, cache=filled([[0, 2]], layer_cache=OneHeadForgets))


@pytest.mark.parametrize("positions", [[[1]], [[0, 2]], [[0, 2, 5]], [[-1, 0, 4]]], ids=str)
def test_no_policy_holds_more_tokens_than_it_has_seen(positions):
    with pytest.raises(ValueError, match="not 0, 1, 2"):
        generate(MODEL, list(range(1, 8)), 1, cache=filled(positions, layer_cache=KeepsTwo))


def test_the_room_that_padding_takes_is_given_back():
    """Row 0 is all held, so its token goes, and with it all slots behind it, padding of row 1 too: 5 + 2 slots are enough."""
    positions, prompts = [[0, -1, -1, -1], [-1, 0, 1, 2]], [[1], [1, 2, 3, 4, 5]]
    expected = [generate_naive(MODEL, prompt, 3) for prompt in prompts]
    assert generate(MODEL, prompts, 3, cache=filled(positions, max_seq_len=7)) == expected
    with pytest.raises(CacheFullError, match="6 slots, but 7 are needed"):
        generate(MODEL, prompts, 3, cache=filled(positions, max_seq_len=6))


def test_the_room_is_counted_in_tokens_where_a_policy_drops_some():
    """All 5 tokens of the prompt are held, in two slots. One is taken back, so 3 new ones need 4 + 1 + 2 slots."""
    prompt, held_all = [1, 2, 3, 4, 5], [[0, 1, 2, 3, 4]]
    assert len(generate(MODEL, prompt, 3, cache=filled(held_all, max_seq_len=7, layer_cache=KeepsTwo))) == 8
    cache = filled(held_all, max_seq_len=6, layer_cache=KeepsTwo)
    with pytest.raises(CacheFullError, match="6 slots, but 7 are needed"):
        generate(MODEL, prompt, 3, cache=cache)
    assert cache.seq_pos == 5


def test_the_row_with_most_tokens_to_add_decides_how_many_slots_are_needed():
    positions, prompts = [[0, 1, 2], [-1, -1, 0]], [[1, 2, 3, 4], [1, 2, 3, 4, 5]]
    with pytest.raises(CacheFullError, match="7 slots, but 8 are needed: 3 are used, 4 tokens of prompt"):
        generate(MODEL, prompts, 2, cache=filled(positions, max_seq_len=7))
    assert generate(MODEL, prompts, 2, cache=filled(positions, max_seq_len=8)) == [generate_naive(MODEL, p, 2) for p in prompts]


def test_a_policy_that_never_fills_has_room_for_everything():
    class NeverFull(ExactCache):
        def __init__(self, *sizes, **kw):
            super().__init__(*sizes, **kw)
            self.max_seq_len = None
    cache = KVCache.for_model(MODEL, layer_cache=NeverFull)
    assert cache.max_seq_len is None and generate(MODEL, PROMPT, 9, cache=cache) == generate_naive(MODEL, PROMPT, 9)


@pytest.mark.parametrize("cache", [ExactCache(1, 20, 2, 8), MODEL, "cache", []], ids=lambda cache: type(cache).__name__)
def test_what_is_no_kvcache_is_refused(cache):
    for call in (generate, stream):
        for n in (0, 3):
            with pytest.raises(TypeError, match="must be a KVCache"):
                call(MODEL, PROMPT, n, cache=cache)
    with pytest.raises(TypeError, match="must be a KVCache"):
        first_difference(MODEL, PROMPT, cache=cache)


@pytest.mark.parametrize("answer, error, words", [
    ([], ValueError, "0 ids for 2 rows"), ([1], ValueError, "1 ids for 2 rows"), ([1, 2, 3], ValueError, "3 ids for 2 rows"),
    (np.array([1]), ValueError, "1 ids for 2 rows"), ([1, 40], ValueError, "id 40"), ([-1, 1], ValueError, "id -1"),
    (np.array([0, 10**9]), ValueError, "id 1000000000"), ([1.0, 2.0], TypeError, "whole numbers"), ([1, 2.5], TypeError, "whole numbers"),
    (np.array([1.0, 2.0]), TypeError, "whole numbers"), ([True, False], TypeError, "whole numbers"), (np.array([True, False]), TypeError, "whole"),
    (["a", "b"], TypeError, "whole numbers"), ("ab", TypeError, "whole numbers"), (None, TypeError, "whole numbers"), (3, TypeError, "2, one for each row"),
    ([[1], [2]], TypeError, "whole numbers"), (np.array([[1], [2]]), TypeError, "whole numbers"), ([None, 1], TypeError, "whole numbers"),
], ids=str)
def test_what_a_sampler_returns_is_looked_at(answer, error, words):
    for use_cache in (True, False):
        with pytest.raises(error, match=words):
            generate(MODEL, [PROMPT, [7]], 2, sampler=lambda logits, histories, rngs: answer, use_cache=use_cache)
    cache = KVCache.for_model(MODEL, batch_size=2)
    with pytest.raises(error, match=words):
        generate(MODEL, [PROMPT, [7]], 2, sampler=lambda logits, histories, rngs: answer, cache=cache)
    assert held(cache) == [5, 1] and is_grad_enabled()


@pytest.mark.parametrize("answer", [[1, 39], (1, 39), np.array([1, 39]), np.array([1, 39], np.uint8), [np.int64(1), np.int16(39)]], ids=repr)
def test_kinds_of_ids_that_a_sampler_may_return(answer):
    rows = generate(MODEL, [PROMPT, [7]], 1, sampler=lambda logits, histories, rngs: answer)
    assert rows == [PROMPT + [1], [7, 39]] and all(type(i) is int for row in rows for i in row)


def test_a_sampler_must_be_callable():
    for call in (generate, stream):
        with pytest.raises(TypeError, match="sampler is 0.7"):
            call(MODEL, PROMPT, 3, sampler=0.7)
        with pytest.raises(TypeError, match="sampler is <class .*must be a Sampler"):
            call(MODEL, PROMPT, 3, sampler=Sampler)


def test_the_penalty_sees_the_prompt_cached_or_not():
    sampler = Sampler(repetition_penalty=1.8)
    expected = list(PROMPT)
    with no_grad():
        for _ in range(15):
            logits = MODEL(np.array([expected]), logits_to_keep=1).data[0, -1]
            for token in set(expected):
                logits[token] *= 1.8 if logits[token] < 0 else 1 / 1.8
            expected.append(int(logits.argmax()))
    assert expected != generate_naive(MODEL, PROMPT, 15)
    assert generate(MODEL, PROMPT, 15, sampler=sampler) == expected
    assert generate(MODEL, PROMPT, 15, sampler=sampler, use_cache=False) == expected
    cache = KVCache.for_model(MODEL)
    half = generate(MODEL, PROMPT, 7, sampler=sampler, cache=cache)
    assert generate(MODEL, half, 8, sampler=sampler, cache=cache) == expected     # and what earlier calls made


class Stubborn(ExactCache):
    """A policy that cannot take back anything that was committed."""
    def check_trim(self, n):
        if n:
            raise ValueError("this policy cannot go back")
        return 0


def test_a_policy_that_cannot_go_back_begins_anew():
    cache = KVCache.for_model(MODEL, layer_cache=Stubborn)
    with no_grad():
        MODEL(np.array([PROMPT]), cache=cache)
    new = new_tokens(n=12)
    assert generate(MODEL, PROMPT, 4, cache=cache, stop=[new[2:4]]) == PROMPT + new[:2]
    assert held(cache) == [0]
    assert generate(MODEL, PROMPT + new[:2], 5, cache=cache) == PROMPT + new[:7]


class Drops:
    """As much of a cache as trim_to needs: a policy that drops the even positions once they are 4 tokens old."""
    def __init__(self, per_head):
        self.layers, self.per_head, self.seq_pos = [self], per_head, 20

    @property
    def positions(self):
        kept = [p for p in range(self.seq_pos) if p % 2 or p >= self.seq_pos - 4]
        return np.tile(kept, (2, 3, 1) if self.per_head else (2, 1))

    def next_positions(self):
        return np.full((2, 1), self.seq_pos)

    def trim(self, n):
        self.seq_pos -= n

    def reset(self):
        raise AssertionError("this one can go back")


@pytest.mark.parametrize("per_head", [False, True])
def test_taking_back_from_a_policy_that_drops_tokens(per_head):
    cache = Drops(per_head)
    assert trim_to(cache, [20, 20]) == [20, 20]
    for limit in (12, 11):
        assert trim_to(cache, [20, limit]) == [limit, limit]


class Window(LayerCache):
    """A sliding window with sinks that are told by positions, row by row: what a row keeps stands at the right, in its order."""
    def __init__(self, batch_size, max_seq_len, num_kv_heads, head_dim, dtype=np.float32, *, window, sinks):
        super().__init__(batch_size, None, num_kv_heads, head_dim, dtype)
        self.window, self.sinks = window, sinks
        self.reset()

    def reset(self):
        self.size, self.padded, self.dropped_at = 0, False, 0
        self.keys = self.values = np.zeros((self.batch_size, self.num_kv_heads, 0, self.head_dim), self.dtype)
        self._positions = self.clock = np.zeros((self.batch_size, 0), int)

    def keep(self, wanted):
        order = np.argsort(wanted, axis=1, kind="stable")[:, wanted.shape[1] - wanted.sum(axis=1).max(initial=0):]
        empty = ~np.take_along_axis(wanted, order, axis=1)
        self._positions, self.clock = (np.take_along_axis(a, order, axis=1) for a in (self._positions, self.clock))
        self._positions[empty] = -1
        self.keys, self.values = (np.take_along_axis(a, order[:, None, :, None], axis=2) for a in (self.keys, self.values))

    def update(self, key, value, positions=None):
        key, value, positions = self.check(key, value, positions)
        T, held = key.shape[2], self._positions
        first = np.where(positions < 0, self.size + T, positions).min(axis=1, keepdims=True)    # of the new tokens
        old = (held >= self.sinks) & (held <= first - self.window)
        if old.any():
            self.dropped_at = self.size
        self.keep((held >= 0) & ~old)
        self.padded = self.padded or bool((positions != np.arange(self.size, self.size + T)).any())
        self._positions = np.concatenate([self._positions, positions], axis=1)
        self.clock = np.concatenate([self.clock, np.tile(np.arange(self.size, self.size + T), (self.batch_size, 1))], axis=1)
        self.keys, self.values = np.concatenate([self.keys, key], axis=2), np.concatenate([self.values, value], axis=2)
        self.size += T
        return self.read()

    def read(self, except_last=0):
        return tuple(Tensor(a[:, :, :self.length - except_last]) for a in (self.keys, self.values))

    def check_trim(self, n):
        n = super().check_trim(n)
        if n < self.size < self.dropped_at + n:
            raise ValueError("What the window would show then has been dropped.")
        return n

    def trim(self, n):
        n = self.check_trim(n)
        self.size -= n
        self.keep((self.clock < self.size) & (self._positions >= 0))
        if not self.size:
            self.reset()
        return n

    def reorder(self, rows):
        self.keys, self.values, self._positions, self.clock = (a[rows] for a in (self.keys, self.values, self._positions, self.clock))

    length = property(lambda self: self._positions.shape[1])
    positions = property(lambda self: self._positions.copy())
    nbytes = property(lambda self: self.keys.nbytes + self.values.nbytes)
    state = load_state = None


def windowed_naive(prompt, n, policy):
    """Greedy, everything in one forward at every step, so that the mask alone makes the window."""
    tokens = list(prompt)
    with no_grad():
        for _ in range(n):
            tokens.append(int(MODEL([tokens], cache=KVCache.for_model(MODEL, layer_cache=policy)).data[0, -1].argmax()))
    return tokens


@pytest.mark.parametrize("window, sinks", [(1, 0), (4, 2), (6, 0)])
def test_a_window_in_a_ragged_conversation(window, sinks):
    """Pitfalls 18, 20, 23 and 24 together: padding comes between a row's tokens, rows stop early, and some turns go back."""
    policy = partial(Window, window=window, sinks=sinks)
    cache = KVCache.for_model(MODEL, batch_size=3, layer_cache=policy)
    rows, rng = [PROMPT, [7], list(range(20, 31))], np.random.default_rng(window)
    for turn in range(4):
        expected = [windowed_naive(row, 8, policy) for row in rows]
        stop = expected[turn % 3][-3] if turn else []
        cut = [len(row) + (new + [stop]).index(stop) for row, new in zip(rows, [e[len(r):] for e, r in zip(expected, rows)])]
        expected = [row[:end] for row, end in zip(expected, cut)]
        assert generate(MODEL, rows, 8, cache=cache, stop=[stop] if turn else ()) == expected
        rows = [row + rng.integers(0, 40, n).tolist() for row, n in zip(expected, (1, 5, 2))]
    assert cache.layers[0].length <= window + sinks + 5 + 8
    varied(sum(rows, []))


# ---- batches ----------------------------------------------------------------------------------------------------------

PROMPTS = [PROMPT, [7], list(range(20, 31))]


def test_ragged_rows_equal_the_same_rows_alone():
    expected = [generate_naive(MODEL, prompt, 25) for prompt in PROMPTS]
    varied(sum(expected, []))
    assert generate(MODEL, PROMPTS, 25) == expected
    assert generate(MODEL, PROMPTS, 25, use_cache=False) == expected
    assert generate(MODEL, PROMPTS[::-1], 25) == expected[::-1]
    for how in ({}, {"use_cache": False}):
        together, _ = logits_and_tokens(MODEL, PROMPTS, 25, **how)
        for i, prompt in enumerate(PROMPTS):
            alone, _ = logits_and_tokens(MODEL, prompt, 25, **how)
            np.testing.assert_allclose(together[:, i], alone[:, 0], atol=1e-4)


def test_ragged_rows_are_fed_once(monkeypatch):
    monkeypatch.setattr(module, "PREFILL_CHUNK", 4)
    cache = Recording.for_model(MODEL, batch_size=3, max_seq_len=11 + 9)
    assert generate(MODEL, PROMPTS, 10, cache=cache) == [generate_naive(MODEL, prompt, 10) for prompt in PROMPTS]
    for i, prompt in enumerate(PROMPTS):
        assert cache.fed_to(i) == list(range(len(prompt) + 9))
    assert held(cache) == [14, 10, 20]


def test_a_ragged_batch_goes_on_after_rows_stopped_at_different_times():
    expected = [generate_naive(MODEL, prompt, 20) for prompt in PROMPTS]
    stop = [expected[0][8]], expected[1][10:12]                # row 0 ends on an id, row 1 on a sequence
    cuts = []
    for row, prompt in zip(expected, PROMPTS):
        ends = [i for i in range(len(prompt), len(row)) for s in stop if row[i:i + len(s)] == list(s)]
        cuts.append(row[:min(ends, default=len(row))])
    assert len(set(len(c) - len(p) for c, p in zip(cuts, PROMPTS))) == 3, "rows must end at different times"
    cache = Recording.for_model(MODEL, batch_size=3)
    for use in ({}, {"use_cache": False}, {"cache": cache}):
        assert generate(MODEL, PROMPTS, 20, stop=stop, **use) == cuts
    assert all(h <= len(cut) for h, cut in zip(held(cache), cuts))
    for extra in ([[1, 2], [9], [3]], [[], [5, 6, 7], []]):
        longer = [cut + more for cut, more in zip(cuts, extra)]
        before = held(cache)
        cache.fed.clear()
        after, logits = [generate_naive(MODEL, prompt, 9) for prompt in longer], Greedy()
        assert generate(MODEL, longer, 9, cache=cache, sampler=logits) == after
        alone = [logits_and_tokens(MODEL, prompt, 9)[0][:, 0] for prompt in longer]
        np.testing.assert_allclose(np.array(logits.logits).swapaxes(0, 1), alone, atol=1e-4)
        for i, row in enumerate(after):
            start = cache.fed_to(i)[0]
            assert start >= before[i] - 1 and cache.fed_to(i) == list(range(start, len(row) - 1)), "only the rest is forwarded"
        cuts = after


@examples(25)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_any_conversation_with_one_cache(seed, data):
    """Rounds of a ragged batch with stops and odd chunks: every round equals the rows alone, without a cache."""
    rng = np.random.default_rng(seed)
    batch = data.draw(st.integers(1, 3))
    rows = [rng.integers(0, 40, rng.integers(1, 6)).tolist() for _ in range(batch)]
    cache = KVCache.for_model(MODEL, batch_size=batch)
    for _ in range(3):
        n = data.draw(st.integers(0, 8))
        plain = [generate_naive(MODEL, row, n) for row in rows]
        picked = plain[data.draw(st.integers(0, batch - 1))][-max(n - 1, 1):]
        stop = [picked[:data.draw(st.integers(1, 3))]]
        expected = [row[:next((i for i in range(len(old), len(row)) if row[i:i + len(stop[0])] == stop[0]), len(row))]
                    for row, old in zip(plain, rows)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "PREFILL_CHUNK", data.draw(st.sampled_from([1, 3, 512])))
            assert generate(MODEL, rows, n, cache=cache, stop=stop) == expected
        assert all(h <= len(row) for h, row in zip(held(cache), expected))
        rows = [row + rng.integers(0, 40, rng.integers(0, 4)).tolist() for row in expected]


# ---- seeds ------------------------------------------------------------------------------------------------------------

def test_sampling_depends_on_the_seed_and_the_row_only():
    sampler = Sampler(1.0)
    rows = generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=7)
    assert rows == generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=7)
    assert rows == generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=7, use_cache=False)
    assert rows[0] != rows[1] != rows[2] != rows[0]
    assert rows != generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=8)
    assert generate(MODEL, PROMPT, 20, sampler=sampler, seed=7) == rows[0]
    assert generate(MODEL, [PROMPT, [9], PROMPT, [2] * 9], 20, sampler=sampler, seed=np.int64(7))[2] == rows[2]
    assert generate(MODEL, PROMPT, 20, sampler=sampler) != generate(MODEL, PROMPT, 20, sampler=sampler)
    assert PROMPT + sum(stream(MODEL, PROMPT, 20, sampler=sampler, seed=7), []) == rows[0]


def test_a_row_that_stops_leaves_the_draws_of_the_others_alone():
    sampler = Sampler(1.0)
    rows = generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=3)
    stop = rows[0][8:11]
    cut = generate(MODEL, [PROMPT] * 3, 20, sampler=sampler, seed=3, stop=[stop])
    assert cut[0] == rows[0][:8] and cut[1:] == rows[1:]


@pytest.mark.parametrize("use_cache, widths, slots", [(True, [11, 1, 1], 13), (False, [11, 12, 13], None)])
def test_what_is_forwarded_with_and_without_a_cache(use_cache, widths, slots):
    """The results are the same, so the work is looked at: the tokens that go in, and the logits of no other than the last."""
    calls = []

    def model(tokens, cache, **how):
        logits = MODEL(tokens, cache=cache, **how)
        calls.append((tokens.shape, cache and cache.max_seq_len, logits.shape))
        return logits
    model.config = MODEL.config
    generate(model, PROMPTS, 3, use_cache=use_cache)
    assert calls == [((3, width), slots, (3, 1, 40)) for width in widths]


def test_any_function_can_be_the_sampler():
    seen = []

    def second_best(logits, history, rng):
        seen.append(([list(h) for h in history], [r.random() for r in rng]))
        return np.argsort(logits, axis=-1)[:, -2].tolist()
    out = generate(MODEL, PROMPTS, 3, sampler=second_best, seed=1)
    assert out == generate(MODEL, PROMPTS, 3, sampler=second_best, seed=1, use_cache=False)
    assert [histories for histories, _ in seen[:3]] == [[row[:len(p) + i] for row, p in zip(out, PROMPTS)] for i in range(3)]


# ---- stop sequences ---------------------------------------------------------------------------------------------------

class Scripted:
    """A sampler that says what it is told: one list for each row."""
    def __init__(self, *rows):
        self.rows, self.step = [iter(row) for row in rows], 0

    def __call__(self, logits, history, rng):
        live = [row for row in self.rows if row is not None]
        return [next(row) for row in live[:len(history)]]


def scripted(tokens, stop, prompt=(9,), **how):
    """What comes out, and the steps of the stream, if the model says `tokens`."""
    out = generate(MODEL, list(prompt), len(tokens), stop=stop, sampler=Scripted(tokens), **how)
    steps = list(stream(MODEL, list(prompt), len(tokens), stop=stop, sampler=Scripted(tokens), **how))
    assert out == [*prompt, *sum(steps, [])]
    assert all(steps), "a step that shows nothing yields nothing"
    return steps


@pytest.mark.parametrize("tokens, stop, steps", [
    ([1, 2, 3], [3], [[1], [2]]),
    ([3, 1, 2], [3], []),
    ([1, 2, 3], [4], [[1], [2], [3]]),
    ([1, 1, 2, 5], [[1, 2]], [[1]]),                                     # a prefix repeats
    ([1, 2, 1, 2, 3], [[1, 2, 3]], [[1, 2]]),
    ([1, 2, 1, 2, 1, 2, 3], [[1, 2, 1, 2, 3]], [[1, 2]]),
    ([1, 1, 1, 1, 2], [[1, 1, 2]], [[1], [1]]),
    ([1, 2, 5, 6], [[1, 2, 3]], [[1, 2, 5], [6]]),                       # held back, then handed out
    ([5, 1, 2], [[1, 2, 3]], [[5], [1, 2]]),                             # held back until the end
    ([5, 1], [[1, 2, 3]], [[5], [1]]),
    ([1, 2, 3], [[2, 3], 9], [[1]]),
    ([1, 2, 3], [[2, 3], [1, 2, 3]], []),                                # both end here: the longer one goes
    ([1, 2, 3, 4], [[1, 2, 3, 4], [2, 3]], [[1]]),                       # the one that is complete first
    ([1, 2, 4], [[2, 3], [2, 4]], [[1]]),
    ([2, 2, 2], [[2, 2]], []),
    ([1, 2], [[1, 2], [1, 2]], []),
    ([1, 2, 3], [np.int64(2)], [[1]]),
    ([1, 2, 3], np.array([3, 2]), [[1]]),
    ([1, 2, 3], [np.array([2, 3])], [[1]]),
    ([1, 2, 3], ((2, 3),), [[1]]),
    ([1, 2, 3], 3, [[1], [2]]),
    ([1, 2, 3], np.array(3), [[1], [2]]),
    ([1, 2, 3], [39, [38, 37]], [[1], [2], [3]]),
])
@pytest.mark.parametrize("use_cache", [True, False])
def test_stop_sequences(tokens, stop, steps, use_cache):
    assert scripted(tokens, stop, use_cache=use_cache) == steps


def test_stops_are_not_looked_for_in_the_prompt():
    assert scripted([2, 3], [[1, 2]], prompt=[1, 2, 1]) == [[2], [3]]
    assert scripted([1, 2, 3], [[1, 2]], prompt=[5, 1, 2, 1]) == []
    assert scripted([7, 1], [7], prompt=[7, 7]) == []


@pytest.mark.parametrize("stops", [[[2, 3], [1, 2, 3]], [[1, 2, 3], [2, 3]], [[3], [1, 2, 3], [2, 3]], [[1, 2, 3], [3]]])
def test_of_complete_stops_the_longest_is_cut_off_in_any_order(stops):
    row = module.Row([9])
    for token in (5, 1, 2, 3):
        row.accept(token, stops)
    assert row.done and row.held == 0 and row.history == [9, 5]


@examples(200)
@given(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=12),
       stops=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=3))
def test_any_stops_against_a_search_of_the_whole_text(tokens, stops):
    """The text is cut where a stop sequence ends first; no id that is shown is ever taken back."""
    ends = [(i + len(s), i) for s in stops for i in range(len(tokens)) if tokens[i:i + len(s)] == s]
    first = min((end for end, _ in ends), default=None)
    expected = tokens if first is None else tokens[:min(start for end, start in ends if end == first)]
    rows, row = [], module.Row([0, 1, 2])
    for n, token in enumerate(tokens, 1):
        row.accept(token, stops)
        shown = row.release(everything=row.done or n == len(tokens))
        rows += shown
        assert rows == expected[:len(rows)]
        # and nothing is held back without need: what is held is the beginning of a stop
        assert row.done or row.held == 0 or any(s[:row.held] == row.history[-row.held:] for s in stops)
        if row.done:
            break
    assert rows == expected


def test_rows_that_stopped_stay_stopped():
    class Rows:
        script = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3], [5, 5, 5, 5, 5, 5]]

        def __init__(self):
            self.calls = []

        def __call__(self, logits, history, rng):
            assert len(logits) == len(history) == len(rng)
            self.calls.append(len(history))
            return [self.script[h[0]][len(h) - 1] for h in history]
    for use_cache in (True, False):
        sampler = Rows()
        steps = list(stream(MODEL, [[0], [1], [2]], 6, stop=[[2, 3], 9], sampler=sampler, use_cache=use_cache))
        assert steps == [[[1], [7], [5]], [[], [8], [5]], [[], [], [5]], [[], [], [5]], [[], [], [5]], [[], [], [5]]]
        assert sampler.calls == [3, 3, 3, 1, 1, 1]
        assert generate(MODEL, [[0], [1], [2]], 6, stop=[[2, 3], 9], sampler=Rows(), use_cache=use_cache) == \
            [[0, 1], [1, 7, 8], [2, 5, 5, 5, 5, 5, 5]]


def test_a_row_that_is_done_counts_what_was_forwarded():
    rows, cache = [module.Row(PROMPT), module.Row([7])], KVCache.for_model(MODEL, batch_size=2)
    module.forward_pending(MODEL, rows, cache)
    rows[0].accept(1, [])
    rows[1].accept(5, [])
    rows[1].accept(0, [[0]])                                             # done before 5 was forwarded
    module.forward_pending(MODEL, rows, cache)
    assert rows[1].history == [7, 5] and [row.cached for row in rows] == held(cache) == [6, 1]


def test_generation_ends_when_all_rows_have_stopped():
    cache = Recording.for_model(MODEL)
    new = new_tokens()
    assert generate(MODEL, PROMPT, 100, cache=cache, stop=[new[4]]) == PROMPT + new[:new.index(new[4])]
    assert cache.seq_pos == 5 + new.index(new[4])


# ---- streams that end early ---------------------------------------------------------------------------------------------

def test_stream_checks_at_the_call():
    with pytest.raises(ValueError, match="max_new_tokens is -1"):
        stream(MODEL, PROMPT, -1)
    cache = KVCache.for_model(MODEL)
    with no_grad():
        MODEL(np.array([PROMPT]), cache=cache)
    stream(MODEL, PROMPT, 3, cache=cache)
    assert cache.seq_pos == 5, "a stream that is never asked leaves the cache alone"


def test_a_stream_leaves_gradients_on():
    for ids in stream(MODEL, PROMPT, 3):
        assert is_grad_enabled()
    steps = stream(MODEL, PROMPT, 3)
    next(steps)
    assert is_grad_enabled()
    with no_grad():
        next(steps)
        assert not is_grad_enabled()
    assert is_grad_enabled()
    steps.close()
    assert is_grad_enabled()


@pytest.mark.parametrize("use", ["reset", "trim", "forward", "another stream"])
def test_a_cache_that_changes_while_a_stream_waits(use):
    cache = KVCache.for_model(MODEL)
    steps = stream(MODEL, PROMPT, 9, cache=cache)
    next(steps), next(steps)
    if use == "reset":
        cache.reset()
    elif use == "trim":
        cache.trim(1)
    elif use == "forward":
        with no_grad():
            MODEL([[1, 2, 3]], cache=cache)
    else:
        other = stream(MODEL, [7, 8], 9, cache=KVCache.for_model(MODEL))
        assert next(other) and next(steps), "a cache of its own disturbs nobody"
        cache.reset()
        next(stream(MODEL, [7, 8], 9, cache=cache))
    held = cache.seq_pos
    with pytest.raises(RuntimeError, match=f"now it holds {held}. While a stream runs"):
        next(steps)
    assert cache.seq_pos == held, "it is left to whoever changed it"


class Interrupts(Greedy):
    """A sampler that is interrupted at its n-th step."""
    def __init__(self, step, error=KeyboardInterrupt):
        super().__init__()
        self.step, self.error = step, error

    def __call__(self, logits, history, rng):
        if len(self.logits) == self.step:
            raise self.error("stop")
        return super().__call__(logits, history, rng)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_leaves_a_cache_that_fits(error):
    cache = KVCache.for_model(MODEL)
    shown = []
    with pytest.raises(error):
        for ids in stream(MODEL, PROMPT, 20, cache=cache, sampler=Interrupts(6, error)):
            shown += ids
    assert is_grad_enabled() and len(shown) == 6
    assert generate(MODEL, PROMPT + shown, 5, cache=cache) == generate_naive(MODEL, PROMPT, 11)

    cache.reset()
    with pytest.raises(error):
        generate(MODEL, PROMPT, 20, cache=cache, sampler=Interrupts(6, error))
    assert is_grad_enabled() and held(cache) == [5], "the caller was given nothing"
    assert generate(MODEL, PROMPT, 11, cache=cache) == generate_naive(MODEL, PROMPT, 11)


def test_an_interrupt_in_the_middle_of_a_forward():
    class Breaks(KVCache):
        calls = 0

        def update(self, layer_idx, *args):
            self.calls += 1
            if self.calls == 8:
                raise KeyboardInterrupt
            return super().update(layer_idx, *args)
    cache, shown = Breaks.for_model(MODEL), []
    with pytest.raises(KeyboardInterrupt):
        for ids in stream(MODEL, PROMPT, 20, cache=cache):
            shown += ids
    assert len(shown) == 3 and is_grad_enabled() and all(layer.size == cache.seq_pos for layer in cache.layers)
    assert generate(MODEL, PROMPT + shown, 5, cache=cache) == generate_naive(MODEL, PROMPT, 8)


@pytest.mark.parametrize("leave_after", range(1, 8))
def test_breaking_off_leaves_a_cache_that_fits(leave_after):
    """Also where tokens were forwarded that are still held back."""
    new = new_tokens(n=20)
    stops = [[*new[2:6], 39 if new[6] != 39 else 38], [*new[3:5], 39]]   # beginnings that come, ends that do not
    cache, shown = KVCache.for_model(MODEL), []
    for ids in stream(MODEL, PROMPT, 12, cache=cache, stop=stops):
        shown += ids
        if len(shown) >= leave_after:
            break
    assert shown == new[:len(shown)] and held(cache)[0] <= len(PROMPT) + len(shown)
    assert generate(MODEL, PROMPT + shown, 6, cache=cache) == (PROMPT + new)[:len(PROMPT) + len(shown) + 6]


def test_closing_a_stream_that_holds_tokens_back():
    cache = KVCache.for_model(MODEL)
    with closing(stream(MODEL, [9], 20, cache=cache, stop=[[1, 1, 1, 2]], sampler=Scripted([1] * 20))) as steps:
        assert next(steps) == [1]
        assert held(cache) == [4], "three more were forwarded to know that this one can be shown"
    assert held(cache) == [2]


def test_a_stop_sequence_that_was_forwarded_does_not_stay():
    new = new_tokens(n=12)
    cache = KVCache.for_model(MODEL)
    assert generate(MODEL, PROMPT, 12, cache=cache, stop=[new[4:7]]) == PROMPT + new[:4]
    assert held(cache)[0] <= 9
    longer = PROMPT + new[:4] + [11, 12]
    assert generate(MODEL, longer, 6, cache=cache) == generate_naive(MODEL, longer, 6)


def test_a_stop_in_one_row_costs_the_others_little():
    """Row 0 stops early on three tokens; the others' tokens that were cached since stay cached."""
    expected = [generate_naive(MODEL, prompt, 30) for prompt in PROMPTS]
    stop = [expected[0][7:10]]
    cache = Recording.for_model(MODEL, batch_size=3)
    rows = generate(MODEL, PROMPTS, 30, cache=cache, stop=stop)
    assert rows == [expected[0][:7], *expected[1:]]
    assert held(cache) == [7, 30, 40]
    assert cache.seq_pos <= 11 + 29
    assert sum(call.shape[1] for call in cache.fed) <= 11 + 29 + 2


# ---- arguments ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("prompt", [tuple(PROMPT), np.array(PROMPT), np.array(PROMPT, np.uint8), [np.int32(i) for i in PROMPT]])
def test_kinds_of_a_prompt(prompt):
    out = generate(MODEL, prompt, 6)
    assert out == generate_naive(MODEL, PROMPT, 6) and type(out) is list and all(type(i) is int for i in out)


def test_a_prompt_that_can_be_read_only_once():
    assert generate(MODEL, (i for i in PROMPT), 3, stop=iter([[1, 2]])) == generate(MODEL, PROMPT, 3, stop=[[1, 2]])


@pytest.mark.parametrize("prompts", [[PROMPT, [7]], (tuple(PROMPT), (7,)), [np.array(PROMPT), np.array([7])],
                                     [PROMPT, np.array([7])]])
def test_kinds_of_several_prompts(prompts):
    out = generate(MODEL, prompts, 6)
    assert out == [generate_naive(MODEL, PROMPT, 6), generate_naive(MODEL, [7], 6)]
    assert type(out) is list and all(type(row) is list and all(type(i) is int for i in row) for row in out)


def test_a_batch_of_one_stays_a_batch():
    assert generate(MODEL, [PROMPT], 3) == [generate(MODEL, PROMPT, 3)]
    assert generate(MODEL, np.array([PROMPT]), np.int64(3)) == [generate(MODEL, PROMPT, 3)]
    assert all(len(step) == 1 and len(step[0]) == 1 for step in stream(MODEL, [PROMPT], 3))


def test_the_prompt_is_not_changed():
    prompt, prompts = list(PROMPT), [list(PROMPT), [7]]
    generate(MODEL, prompt, 4)
    generate(MODEL, prompts, 4)
    assert prompt == PROMPT and prompts == [PROMPT, [7]]
    out = generate(MODEL, prompt, 0)
    out.append(1)
    assert prompt == PROMPT


@pytest.mark.parametrize("prompt, error, words", [
    *((empty, ValueError, "The prompt is empty") for empty in ([], [[]], [[1], []], (), np.array([], int), np.zeros((2, 0), int),
                                                               np.zeros((0, 3), int))),
    ("", TypeError, "Encode text"), ("text", TypeError, "Encode text"), (["a"], TypeError, "Encode text"),
    (["ab", "c"], TypeError, "Encode text"), (b"ab", TypeError, "ids"),
    ([1.0], TypeError, "whole numbers"), ([True], TypeError, "whole numbers"), (np.array([1.0]), TypeError, "whole numbers"),
    (np.array([True]), TypeError, "whole numbers"), ([[1], 2], TypeError, "whole numbers"), ([1, [2]], TypeError, "whole numbers"),
    ([[[1]]], TypeError, "whole numbers"), (None, TypeError, "whole numbers"), (5, TypeError, "whole numbers"),
    ([40], ValueError, "id 40, but the model knows the ids 0 to 39"), ([1, -1], ValueError, "id -1"), ([[1], [99, 3]], ValueError, "id 99"),
])
@pytest.mark.parametrize("n", [0, 3])
def test_impossible_prompts(prompt, error, words, n):
    for call in (generate, stream):
        with pytest.raises(error, match=words):
            call(MODEL, prompt, n)


@pytest.mark.parametrize("how, error, words", [
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens is -1"), ({"max_new_tokens": 2.0}, ValueError, "max_new_tokens is 2.0"),
    ({"max_new_tokens": True}, ValueError, "max_new_tokens is True"), ({"max_new_tokens": None}, ValueError, "max_new_tokens is None"),
    ({"max_new_tokens": "3"}, ValueError, "max_new_tokens is '3'"),
    ({"max_new_tokens": 10**30}, ValueError, f"need {10**30 + 4} positions"), ({"seed": -1}, ValueError, "seed is -1"), ({"seed": 1.5}, ValueError, "seed is 1.5"), ({"seed": True}, ValueError, "seed is True"),
    ({"stop": [[]]}, ValueError, "empty"), ({"stop": "end"}, TypeError, "stop sequence"), ({"stop": [1.0]}, TypeError, "stop sequence"),
    ({"stop": ["end"]}, TypeError, "Encode text"), ({"stop": [None]}, TypeError, "stop sequence"), ({"stop": [True]}, TypeError, "stop"),
    ({"stop": None}, TypeError, "stop"), ({"stop": 1.5}, TypeError, "stop"), ({"stop": True}, TypeError, "stop"),
])
def test_impossible_arguments(how, error, words):
    for call in (generate, stream):
        with pytest.raises(error, match=words):
            call(MODEL, PROMPT, **{"max_new_tokens": 3, **how})


# ---- first_difference ---------------------------------------------------------------------------------------------------

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


@pytest.mark.parametrize("tokens", [[3], [3, 1], TOKENS, [TOKENS, TOKENS[::-1]], np.array([TOKENS])])
def test_no_difference(tokens):
    assert first_difference(MODEL, tokens) is None
    cache = KVCache.for_model(MODEL, batch_size=len(np.atleast_2d(tokens)))
    assert first_difference(MODEL, tokens, cache=cache) is None
    assert cache.seq_pos == 0 and is_grad_enabled()


def in_layer(number, mistake):
    """A layer_cache that makes the mistake in one layer only."""
    count = iter(range(100))
    return lambda *args, **kw: (mistake if next(count) == number else ExactCache)(*args, **kw)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("mistake, position", [(ForgetsTheNewest, 6), (LosesFirst, 0)])
def test_a_planted_mistake_is_found(layer, mistake, position):
    model = random_model(4, num_layers=3)
    cache = KVCache.for_model(model, layer_cache=in_layer(layer, mistake))
    found = first_difference(model, TOKENS, cache=cache)
    assert isinstance(found, Difference) and found[:2] == (layer, position) and found.error > 1e-2
    assert [type(part) for part in found] == [int, int, float]
    assert cache.seq_pos == 0


def test_a_staircase_in_the_wrong_corner_is_found(monkeypatch):
    """Several tokens onto a filled cache, as if they came first: neither prefill nor single tokens show it."""
    right = attention.visible
    monkeypatch.setattr(attention, "visible", lambda query, key, *more: right(query - query.min(), key, *more))
    assert first_difference(MODEL, TOKENS)[:2] == (0, 6)
    assert generate(MODEL, TOKENS, 5) == generate(MODEL, TOKENS, 5, use_cache=False)


def test_a_mistake_at_one_position_of_one_row():
    class Slips(ExactCache):
        def update(self, key, value, positions=None):
            keys, values = super().update(key, value, positions)
            if self.size == 9:                                           # the token at position 8
                values = type(values)(values.data * np.float32([1, 1.01])[:, None, None, None])
            return keys, values
    both = [TOKENS, TOKENS[::-1]]
    with no_grad():
        full, cache = next(MODEL.hidden_states(both)).data[1, 8], KVCache.for_model(MODEL, batch_size=2, layer_cache=Slips)
        for t in range(9):
            first, *_ = MODEL.hidden_states([[row[t]] for row in both], cache=cache)
    error = np.abs(first.data[1, 0] - full).max() / np.sqrt(np.square(full).mean())
    found = first_difference(MODEL, both, cache=KVCache.for_model(MODEL, batch_size=2, layer_cache=Slips))
    assert found[:2] == (0, 8) and 1e-4 < error < 0.1
    assert found.error == pytest.approx(error, rel=1e-3)
    assert first_difference(MODEL, both, KVCache.for_model(MODEL, batch_size=2, layer_cache=Slips), tolerance=0.5) is None


def test_nan_is_a_difference():
    class Spoils(ExactCache):
        def update(self, key, value, positions=None):
            keys, values = super().update(key, value, positions)
            return (keys, type(values)(values.data * np.nan)) if key.shape[2] == 1 else (keys, values)
    cache = KVCache.for_model(MODEL, layer_cache=in_layer(1, Spoils))
    found = first_difference(MODEL, TOKENS, cache=cache)
    assert found[:2] == (1, 6) and np.isnan(found.error)


def test_the_size_of_the_weights_does_not_hide_a_mistake():
    """A fresh model works with small numbers; an absolute tolerance would let a wrong cache pass."""
    fresh = Transformer(CONFIG, seed=0)
    assert first_difference(fresh, TOKENS) is None
    assert first_difference(fresh, TOKENS, cache=KVCache.for_model(fresh, layer_cache=ForgetsTheNewest))[:2] == (0, 6)


@pytest.mark.parametrize("tokens, error, words", [
    ([], ValueError, "prompt is empty"), ([[]], ValueError, "prompt is empty"), (np.zeros((0, 3), int), ValueError, "prompt is empty"),
    ([[1], [2, 3]], ValueError, "1, 2 tokens"), ([[1], []], ValueError, "prompt is empty"), ([1.0], TypeError, "whole numbers"),
    ("ab", TypeError, "whole numbers"), ([[[1]]], TypeError, "whole numbers"), ([40], ValueError, "id 40"), (None, TypeError, "whole numbers"),
], ids=str)
def test_impossible_tokens_to_compare(tokens, error, words):
    with pytest.raises(error, match=words):
        first_difference(MODEL, tokens)


def test_first_difference_wants_an_empty_cache_and_gives_it_back_empty():
    cache = KVCache.for_model(MODEL)
    generate(MODEL, PROMPT, 3, cache=cache)
    with pytest.raises(ValueError, match="holds 7 tokens"):
        first_difference(MODEL, TOKENS, cache=cache)
    assert cache.seq_pos == 7
    small = KVCache.for_model(MODEL, max_seq_len=8)
    with pytest.raises(CacheFullError):
        first_difference(MODEL, TOKENS, cache=small)
    assert small.seq_pos == 0 and is_grad_enabled()


# ---- the module -----------------------------------------------------------------------------------------------------------

def test_importing_is_light():
    """Nothing is loaded that generation does not need, and nothing is printed."""
    heavy = "typer, rich, matplotlib, safetensors, torch, gguf, tokenizers, IPython, nbdev"
    code = ("import sys, tinytorch.generation.generate\n"
            f"print([m for m in '{heavy}'.split(', ') if m in sys.modules])")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", cwd=ROOT, timeout=60)
    assert run.stdout.strip() == "[]" and run.stderr == ""
