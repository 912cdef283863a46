"""The transformer against a slow reference, against LlamaForCausalLM, and against what its docstrings promise."""
import dataclasses
import math
import re
import warnings

import numpy as np
import pytest

from tests import hugging_face
from tinytorch.core.layers import cross_entropy
from tinytorch.core.tensor import Tensor, is_grad_enabled, no_grad, record
from tinytorch.models.transformer import (MLP, Block, Transformer, TransformerConfig, check_inputs, count_parameters,
                                          generate_naive, pack, token_array, unembed)

TINY = TransformerConfig(vocab_size=11, embed_dim=8, num_layers=2, num_heads=4, num_kv_heads=2, intermediate_dim=10,
                         max_seq_len=16, tie_embeddings=False)
VARIANTS = {
    "grouped": {},
    "multi-head": {"num_kv_heads": 4},
    "multi-query": {"num_kv_heads": 1},
    "tied": {"tie_embeddings": True},
    "wide heads": {"head_dim": 6, "rope_base": 50.0},
    "narrow heads": {"head_dim": 2, "num_layers": 1},
    "large epsilon": {"norm_eps": 0.3, "num_layers": 3},
}


def random_model(seed=0, dtype=np.float32, **changes):
    """A model with weights so large that every part of it matters, and outputs vary."""
    rng = np.random.default_rng(seed)
    model = Transformer(dataclasses.replace(TINY, head_dim=changes.pop("head_dim", None), **changes), seed=seed)
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        data = 1 + 0.3 * rng.standard_normal(shape) if "norm" in name else rng.standard_normal(shape) / shape[0] ** 0.5
        parameter.data = data.astype(dtype)
    return model


def reference(model, tokens, positions=None):
    """Logits (B, T, V) straight from the formulas, in float64, one token and one head at a time."""
    config = model.config
    weights = {name: array.astype(np.float64) for name, array in model.state_dict().items()}
    D, group = config.head_dim, config.num_heads // config.num_kv_heads
    num_q, num_kv = config.num_heads * D, config.num_kv_heads * D

    def normalise(x, weight):
        return x / math.sqrt(sum(v * v for v in x) / len(x) + config.norm_eps) * weight

    def rotate(head, position):
        turned = np.empty_like(head)
        for i in range(D // 2):
            angle = position * config.rope_base ** (-2 * i / D)
            a, b = head[2 * i], head[2 * i + 1]
            turned[2 * i] = a * math.cos(angle) - b * math.sin(angle)
            turned[2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
        return turned

    def row_logits(ids, places):
        stream = [weights["embedding.weight"][i] for i in ids]
        for layer in range(config.num_layers):
            w = {n.removeprefix(f"blocks.{layer}."): a for n, a in weights.items() if n.startswith(f"blocks.{layer}.")}
            queries, keys, values = [], [], []
            for x, place in zip(stream, places):
                fused = normalise(x, w["attention_norm.weight"]) @ w["attention.qkv.weight"]
                q, k, v = fused[:num_q], fused[num_q:num_q + num_kv], fused[num_q + num_kv:]
                queries.append([rotate(h, place) for h in q.reshape(-1, D)])
                keys.append([rotate(h, place) for h in k.reshape(-1, D)])
                values.append(list(v.reshape(-1, D)))
            for t, place in enumerate(places):
                heads = []
                for h in range(config.num_heads):
                    seen = [s for s, other in enumerate(places) if 0 <= other <= place]
                    scores = np.array([queries[t][h] @ keys[s][h // group] / math.sqrt(D) for s in seen])
                    shares = np.exp(scores - scores.max()) if seen else scores
                    heads.append(sum((share * values[s][h // group] for share, s in zip(shares / shares.sum(), seen)),
                                     np.zeros(D)))
                stream[t] = stream[t] + np.concatenate(heads) @ w["attention.out.weight"]
                both = normalise(stream[t], w["mlp_norm.weight"]) @ w["mlp.gate_up.weight"]
                gate, up = both[:config.intermediate_dim], both[config.intermediate_dim:]
                stream[t] = stream[t] + (gate / (1 + np.exp(-gate)) * up) @ w["mlp.down.weight"]
        head = weights["embedding.weight"].T if config.tie_embeddings else weights["head.weight"]
        return [normalise(x, weights["norm.weight"]) @ head for x in stream]

    tokens = np.asarray(tokens)
    positions = np.tile(np.arange(tokens.shape[1]), (len(tokens), 1)) if positions is None else np.asarray(positions)
    return np.array([row_logits(ids, [int(p) for p in places]) for ids, places in zip(tokens, positions)])


def random_tokens(shape, seed=0, vocab_size=TINY.vocab_size):
    return np.random.default_rng(seed).integers(0, vocab_size, shape)


@no_grad()
def logits_of(model, *args, **kwargs):
    return model(*args, **kwargs).data


class ListCache:
    """The least that attention and the transformer ask of a cache: everything is kept by concatenation."""

    class Layer:
        window, sinks, padded = None, 0, False

        def __init__(self):
            self.key = self.value = self.positions = None

        @property
        def size(self):
            return 0 if self.key is None else self.key.shape[2]

        length = size

    def __init__(self, batch_size, num_layers):
        self.batch_size, self.seq_pos, self.advanced = batch_size, 0, []
        self.layers = [self.Layer() for _ in range(num_layers)]

    def update(self, layer_idx, key, value, positions):
        layer, kept = self.layers[layer_idx], self.seq_pos
        layer.padded = layer.padded or bool((positions < 0).any())
        new = [key.data, value.data, positions]
        if kept:
            new = [np.concatenate([old[..., :kept, :] if old.ndim == 4 else old[:, :kept], part], axis=2 - (old.ndim == 2))
                   for old, part in zip((layer.key, layer.value, layer.positions), new)]
        layer.key, layer.value, layer.positions = new
        return Tensor(layer.key), Tensor(layer.value)

    def next_positions(self, num_tokens):
        last = self.layers[0].positions[:, :self.seq_pos].max(axis=1) if self.seq_pos else np.full(self.batch_size, -1)
        return np.maximum(last, -1)[:, None] + 1 + np.arange(num_tokens)

    def advance(self, num_tokens=1):
        self.seq_pos += num_tokens
        self.advanced.append(num_tokens)

    def snapshot(self):
        return self.seq_pos, list(self.advanced), [(layer.size, layer.key is None) for layer in self.layers]


# ---- values -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 5)])
def test_logits_equal_the_slow_reference(name, shape):
    model = random_model(1, **VARIANTS[name])
    tokens = random_tokens(shape)
    logits = logits_of(model, tokens)
    assert logits.dtype == np.float32 and logits.shape == (*shape, TINY.vocab_size)
    expected = reference(model, tokens)
    assert expected.std() > 0.3
    np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_custom_positions_equal_the_slow_reference():
    model = random_model(2)
    tokens = random_tokens((2, 5))
    positions = [[-1, -1, 0, 1, 2], [3, 7, 5, 15, 0]]                 # padding; any order, gaps
    seen = np.array(positions) >= 0                                    # what comes out at padding is nobody's business
    expected = reference(model, tokens, positions)
    np.testing.assert_allclose(logits_of(model, tokens, positions=positions)[seen], expected[seen], atol=2e-5)


@pytest.mark.parametrize("keep", [1, 2, 5, np.int64(2)])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_to_keep_is_the_tail(keep, tied):
    model = random_model(3, tie_embeddings=tied)
    tokens = random_tokens((2, 5))
    np.testing.assert_allclose(logits_of(model, tokens, logits_to_keep=keep), logits_of(model, tokens)[:, -keep:],
                               atol=1e-6)


def test_later_tokens_never_change_earlier_logits():
    model = random_model(4)
    tokens = random_tokens((1, 8))
    before = logits_of(model, tokens)
    for t in range(8):
        changed = tokens.copy()
        changed[0, t] = (changed[0, t] + 1) % TINY.vocab_size
        after = logits_of(model, changed)
        np.testing.assert_allclose(after[:, :t], before[:, :t], atol=1e-6)
        assert (np.abs(after[0, t:] - before[0, t:]).max(axis=-1) > 1e-4).all(), "a token must reach all that follow it"


def test_rows_are_independent():
    model = random_model(5)
    tokens = random_tokens((4, 6))
    together = logits_of(model, tokens)
    for row in range(4):
        np.testing.assert_allclose(together[row:row + 1], logits_of(model, tokens[row:row + 1]), atol=1e-5)


def test_left_padded_rows_equal_the_rows_alone():
    model = random_model(6)
    rows = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    padded = np.array([[0] * (5 - len(row)) + row for row in rows])
    positions = np.array([[*range(-(5 - len(row)), len(row))] for row in rows])
    logits = logits_of(model, padded, positions=positions)
    assert np.isfinite(logits).all()
    for row, out in zip(rows, logits):
        np.testing.assert_allclose(out[-len(row):], logits_of(model, [row])[0], atol=1e-5)


def test_only_differences_of_positions_matter():
    model = random_model(7)
    tokens = random_tokens((2, 6))
    base = logits_of(model, tokens)
    places = np.arange(6)[None].repeat(2, 0)
    np.testing.assert_allclose(logits_of(model, tokens, positions=places + 10), base, atol=1e-5)
    np.testing.assert_allclose(logits_of(model, tokens, positions=places + [[3], [7]]), base, atol=1e-5)
    assert np.abs(logits_of(model, tokens, positions=places * 2) - base).max() > 1e-3


def test_outputs_are_float32_for_every_integer_type():
    model = random_model(8)
    expected = logits_of(model, [[1, 2, 3]])
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        logits = logits_of(model, np.array([[1, 2, 3]], dtype=dtype), positions=np.array([[0, 1, 2]], dtype=np.int32))
        assert logits.dtype == np.float32
        np.testing.assert_array_equal(logits, expected)
        ids = np.array([[1, 2, 3]], dtype)
        assert [array.dtype for array in check_inputs(TINY, ids, positions=ids)] == [np.int64] * 2
    assert all(x.data.dtype == np.float32 for x in model.hidden_states([[1, 2, 3]]))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.longdouble])
@pytest.mark.parametrize("length", [1, 2])
def test_numpy_scalars_in_the_configuration_bring_no_float64(kind, length):
    """A single vector and several take different paths through the norm."""
    config = dataclasses.replace(TINY, norm_eps=kind(1e-3), rope_base=kind(100))
    assert type(config.norm_eps) is float and type(config.rope_base) is float
    model = Transformer(config, seed=0)
    states = list(model.hidden_states([[1] * length]))
    assert all(x.dtype == np.float32 for x in (*states, model([[1] * length])))


# ---- gradients ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tied", [False, True])
def test_gradients_equal_central_differences(tied):
    model = random_model(9, np.float64, vocab_size=5, embed_dim=4, num_heads=2, num_kv_heads=1, intermediate_dim=3,
                         tie_embeddings=tied)
    tokens, targets = random_tokens((2, 4), vocab_size=5), random_tokens((2, 4), seed=1, vocab_size=5)

    def loss():
        return cross_entropy(model(tokens), targets)

    loss().backward()
    with no_grad():
        for name, parameter in model.named_parameters():
            expected = np.empty_like(parameter.data)
            for index in np.ndindex(parameter.shape):
                there = parameter.data[index]
                parameter.data[index] = there + 1e-5
                above = loss().item()
                parameter.data[index] = there - 1e-5
                below = loss().item()
                parameter.data[index] = there
                expected[index] = (above - below) / 2e-5
            assert parameter.grad.dtype == np.float64
            np.testing.assert_allclose(parameter.grad, expected, atol=1e-8, rtol=1e-5, err_msg=name)


def test_gradients_are_float32_and_reach_every_weight():
    for tied in (False, True):
        model = random_model(10, tie_embeddings=tied)
        cross_entropy(model(random_tokens((2, 16))), random_tokens((2, 16), seed=1)).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad.dtype == np.float32 and parameter.grad.shape == parameter.shape
            assert np.abs(parameter.grad).max() > 1e-5, name


def test_unembed():
    rng = np.random.default_rng(0)
    for shape in [(1, 1, 4), (2, 3, 4), (4,)]:
        x = Tensor(rng.standard_normal(shape), requires_grad=True, dtype=np.float64)
        table = Tensor(rng.standard_normal((7, 4)), requires_grad=True, dtype=np.float64)
        out = unembed(x, table)
        np.testing.assert_allclose(out.data, x.data @ table.data.T)
        grad = rng.standard_normal(out.shape)
        out.backward(grad)
        np.testing.assert_allclose(x.grad, grad @ table.data)
        np.testing.assert_allclose(table.grad, np.einsum("nv,nd->vd", grad.reshape(-1, 7), x.data.reshape(-1, 4)))
    with no_grad():
        assert not unembed(x, table).requires_grad


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unembed_sends_back_the_dtype_of_its_inputs(dtype):
    sent = []

    def watched(array):
        def backward(grad):
            sent.append(grad.dtype)
            return (grad,)
        return record(array, backward, Tensor(array, requires_grad=True, dtype=dtype))
    unembed(watched(np.ones((1, 1), dtype)), watched(np.ones((1, 1), dtype))).backward(np.ones((1, 1), dtype))
    assert sent == [dtype, dtype]


def test_no_grad_records_nothing():
    model = random_model(11)
    assert model([[1, 2]]).requires_grad
    with no_grad():
        assert not model([[1, 2]]).requires_grad


# ---- against other people's code ----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def llama():
    """A function that builds a LlamaForCausalLM with the weights of a model: (torch, the Llama)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        pytest.importorskip("transformers")
    return lambda model: (torch, hugging_face.llama(model, attn_implementation="eager"))


@pytest.mark.parametrize("name", ["grouped", "multi-head", "tied", "wide heads"])
def test_logits_and_gradients_equal_transformers(llama, name):
    model = random_model(12, **{"vocab_size": 50, "embed_dim": 32, "intermediate_dim": 40, **VARIANTS[name]})
    torch, peer = llama(model)
    tokens = random_tokens((3, 12), vocab_size=50)
    theirs = peer(torch.from_numpy(tokens)).logits
    ours = model(tokens)
    assert theirs.std() > 0.3
    np.testing.assert_allclose(ours.data, theirs.detach().numpy(), atol=1e-4)

    targets = random_tokens((3, 12), seed=1, vocab_size=50)
    loss = cross_entropy(ours, targets)
    their_loss = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), torch.from_numpy(targets).flatten())
    assert loss.item() == pytest.approx(their_loss.item(), abs=1e-5)
    loss.backward()
    their_loss.backward()
    translated = hugging_face.llama_arrays(model.config, {n: p.grad for n, p in model.named_parameters()})
    assert set(translated) == {n for n, _ in peer.named_parameters()}
    for parameter_name, gradient in translated.items():
        np.testing.assert_allclose(gradient, peer.get_parameter(parameter_name).grad.numpy(), atol=1e-5, rtol=1e-3,
                                   err_msg=parameter_name)


def test_greedy_continuation_equals_transformers(llama):
    model = random_model(13, vocab_size=50, embed_dim=32, intermediate_dim=40, max_seq_len=64)
    torch, peer = llama(model)
    ids = [3, 1, 4]
    for _ in range(40):
        with torch.no_grad():
            ids.append(int(peer(torch.tensor([ids])).logits[0, -1].argmax()))
    assert len(set(ids[3:])) > 5, "the comparison must see tokens that vary"
    assert generate_naive(model, [3, 1, 4], 40) == ids


# ---- cache and residual stream --------------------------------------------------------------------------------------

@pytest.mark.parametrize("chunks", [[7], [1] * 7, [3, 4], [2, 1, 1, 3]])
def test_a_cache_gives_the_same_logits_for_every_split(chunks):
    model = random_model(14)
    tokens = random_tokens((2, 7))
    cache, parts, start = ListCache(2, TINY.num_layers), [], 0
    for size in chunks:
        parts.append(logits_of(model, tokens[:, start:start + size], cache=cache))
        start += size
    assert cache.advanced == chunks, "advance is called once for each forward, with its number of tokens"
    np.testing.assert_allclose(np.concatenate(parts, axis=1), logits_of(model, tokens), atol=1e-5)


def test_hidden_states_are_the_residual_stream():
    model = random_model(15, num_layers=3)
    tokens = random_tokens((2, 4))
    with no_grad():
        states = list(model.hidden_states(tokens))
        assert len(states) == 3 and all(x.shape == (2, 4, TINY.embed_dim) for x in states)
        positions = np.tile(np.arange(4), (2, 1))
        x = model.embedding(tokens)
        for block, state in zip(model.blocks, states):
            x = block(x, positions)
            np.testing.assert_array_equal(x.data, state.data)
        np.testing.assert_array_equal(model.head(model.norm(x)).data, model(tokens).data)


def test_hidden_states_commit_when_the_last_block_has_run():
    model = random_model(16)
    cache = ListCache(1, 2)
    states = model.hidden_states([[1, 2, 3]], cache=cache)
    assert cache.snapshot() == (0, [], [(0, True), (0, True)]), "nothing runs before the first state is asked for"
    next(states)
    assert cache.advanced == []
    next(states)
    assert cache.advanced == [3]
    assert list(states) == [] and cache.advanced == [3]

    stopped = ListCache(1, 2)                       # a forward that was given up is overwritten by the next one
    next(model.hidden_states([[9, 9]], cache=stopped))
    np.testing.assert_allclose(logits_of(model, [[1, 2, 3]], cache=stopped), logits_of(model, [[1, 2, 3]]), atol=1e-6)


def test_hidden_states_refuse_when_the_first_state_is_asked_for():
    for tokens, error, words in (("x", TypeError, "whole numbers"), ([[99]], ValueError, r"0\.\.10, .* 99\b")):
        states = random_model(17).hidden_states(tokens)
        with pytest.raises(error, match=words):
            next(states)


# ---- generate_naive -------------------------------------------------------------------------------------------------

def test_generate_naive_follows_the_reference():
    model = random_model(22)
    prompt = [3, 1]
    expected = list(prompt)
    for _ in range(8):
        expected.append(int(reference(model, [expected])[0, -1].argmax()))
    assert len(set(expected)) > 3
    generated = generate_naive(model, prompt, 8)
    assert generated == expected and prompt == [3, 1] and all(type(i) is int for i in generated)
    assert generate_naive(model, prompt, 0) == prompt
    assert generate_naive(model, np.array(prompt), 8) == expected
    assert generate_naive(model, (3, 1), 8) == expected
    for ids in (np.array([3]), [np.int32(3)], range(3, 4)):
        assert [type(i) for i in generate_naive(model, ids, 0)] == [int], "Python ints, also those of the prompt"
    seen = []

    def watched(tokens, **how):
        logits = model(tokens, **how)
        seen.append((is_grad_enabled(), logits.shape))
        return logits
    assert generate_naive(watched, prompt, 3) == expected[:5]
    assert seen == [(False, (1, 1, 11))] * 3, "nothing is recorded, and no other logits are computed than are read"


def test_generate_naive_fills_the_context_and_not_more():
    model = random_model(18)
    assert len(generate_naive(model, [1, 2], 15)) == 17              # the last token is never read
    with pytest.raises(ValueError, match="max_seq_len is 16"):
        generate_naive(model, [1, 2], 16)
    with pytest.raises(ValueError, match="empty"):
        generate_naive(model, [], 1)
    with pytest.raises(TypeError, match="float64"):
        generate_naive(model, [1.7], 1)
    with pytest.raises(ValueError, match=r"0\.\.10, .* 99\b"):
        generate_naive(model, [99], 1)
    assert generate_naive(model, [1, 2], -3) == [1, 2]


# ---- weights --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tied", [False, True])
def test_names_and_shapes_of_the_weights(tied):
    config = dataclasses.replace(TINY, head_dim=6, tie_embeddings=tied)
    expected = {"embedding.weight": (11, 8)}
    for n in range(2):
        expected |= {f"blocks.{n}.attention_norm.weight": (8,), f"blocks.{n}.attention.qkv.weight": (8, 48),
                     f"blocks.{n}.attention.out.weight": (24, 8), f"blocks.{n}.mlp_norm.weight": (8,),
                     f"blocks.{n}.mlp.gate_up.weight": (8, 20), f"blocks.{n}.mlp.down.weight": (10, 8)}
    expected |= {"norm.weight": (8,)} | ({} if tied else {"head.weight": (8, 11)})
    model = Transformer(config, seed=0)
    state = model.state_dict()
    assert {name: array.shape for name, array in state.items()} == expected and list(state) == list(expected)
    assert all(array.dtype == np.float32 for array in state.values())
    assert model.num_parameters() == count_parameters(config) == sum(math.prod(shape) for shape in expected.values())


def test_loading_weights():
    source, target = random_model(19), Transformer(TINY, seed=1)
    before = target.state_dict()
    target.load_state_dict(source.state_dict())
    for name, array in target.state_dict().items():
        assert array is before[name]
        np.testing.assert_array_equal(array, source.state_dict()[name])
    # not all of their matrices lie in the same order, so BLAS may add in another one
    np.testing.assert_allclose(logits_of(target, [[1, 2, 3]]), logits_of(source, [[1, 2, 3]]), rtol=0, atol=1e-6)


def test_a_tied_model_refuses_a_head():
    tied = random_model(20, tie_embeddings=True)
    before = {name: array.copy() for name, array in tied.state_dict().items()}
    with pytest.raises(ValueError, match="head.weight"):
        tied.load_state_dict(random_model(21).state_dict())
    for name, array in tied.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_seed_decides_the_weights():
    def weights(seed):
        return Transformer(TINY, seed=seed).state_dict()
    for a, b in zip(weights(3).values(), weights(3).values()):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(weights(3).values(), weights(np.random.default_rng(3)).values()):
        np.testing.assert_array_equal(a, b)
    for (name, a), b in zip(weights(3).items(), weights(4).values()):
        assert "norm" in name or not np.array_equal(a, b), name
    without = [Transformer(TINY).state_dict()["embedding.weight"] for _ in range(2)]
    assert not np.array_equal(*without), "no seed: new weights every time"
    matrices = [array for name, array in weights(3).items() if "norm" not in name]
    assert len({float(array.flat[0]) for array in matrices}) == len(matrices), "no two layers start alike"


def test_packed_arrays_are_the_same_in_one_block():
    """Of any shape, dtype and layout, an empty one and one zero at every place included; the originals stay apart."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal((2, 3, 4)).T, np.zeros((0, 4), np.float32),
              np.broadcast_to(np.float32(0), (7, 2)), np.arange(5), np.float32([1.5]), rng.standard_normal((4, 3)), np.ones((2, 2))]
    views = pack(arrays)
    for view, array in zip(views, arrays, strict=True):
        tall = array.shape in ((7, 2), (4, 3))
        assert view.dtype == array.dtype and (view.T if tall else view).flags.c_contiguous and view.flags.writeable
        np.testing.assert_array_equal(view, array)
        assert view.ctypes.data % 64 == 0 or not view.size
    for number, view in enumerate(views):
        view[...] = number                                              # no view reaches into another
    assert [view.ravel()[:1].tolist() for view in views] == [[0], [1], [], [3], [4], [5], [6], [7]]
    assert all((view == number).all() for number, view in enumerate(views)) and arrays[5][0] == 1.5


@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_of_a_model_lie_in_one_block(tied):
    places = sorted((p.data.ctypes.data, p.data.nbytes) for p in Transformer(dataclasses.replace(TINY, tie_embeddings=tied), seed=0).parameters())
    assert all(begin % 64 == 0 for begin, _ in places)
    assert all(0 <= after - (begin + size) < 64 for (begin, size), (after, _) in zip(places, places[1:]))


def test_the_longer_side_of_a_matrix_lies_together():
    """Loading weights leaves it so."""
    model, state = Transformer(TINY, seed=0), {}
    for _ in range(2):
        for name, array in model.state_dict().items():
            tall = name.endswith(("embedding.weight", "mlp.down.weight"))
            assert (array.T if tall else array).flags.c_contiguous, name
            state[name] = np.ascontiguousarray(array) + 1
        model.load_state_dict(state)


def test_residual_projections_start_smaller():
    model = Transformer(TransformerConfig(40, 64, 8, 4, 2, 96, 32, tie_embeddings=False), seed=0)
    for name, array in model.state_dict().items():
        if "norm" in name:
            np.testing.assert_array_equal(array, 1)
        else:
            small = name.endswith(("attention.out.weight", "mlp.down.weight"))
            assert array.std() == pytest.approx(0.02 / 4 if small else 0.02, rel=0.1), name


# ---- errors -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tokens, error, words", [
    ([[1, 11]], ValueError, r"0\.\.10, .* 11\b"),
    ([[-1, 2]], ValueError, r"0\.\.10, .* -1\b"),
    ([[1, -2**63]], ValueError, r"0\.\.10, .* -9223372036854775808"),
    ([[1.0, 2.0]], TypeError, "float64"),
    (np.array([[True, False]]), TypeError, "bool"),
    ([["a"]], TypeError, "whole numbers"),
    (Tensor([[1.0]]), TypeError, "Tensor"),
    (Tensor([[1.0]], requires_grad=True), TypeError, "Tensor"),
    ([1, 2], ValueError, r"\(2,\).*\(batch, length\)"),
    (3, ValueError, r"\(batch, length\)"),
    ([[[1]]], ValueError, r"\(1, 1, 1\)"),
    ([], ValueError, "empty"),
    ([[]], ValueError, r"empty .*\(1, 0\)"),
    (np.zeros((0, 3), int), ValueError, "tokens is empty"),
    (np.zeros((1, 0), np.uint8), ValueError, "tokens is empty"),
    ([[1, 2], [3]], ValueError, "rows of tokens differ in length"),
    (np.array([[2**63]], np.uint64), ValueError, "tokens contains 9223372036854775808"),
    ([[2**64 - 1]], ValueError, "tokens contains 18446744073709551615"),
    ([[1] * 17], ValueError, "position 16.*max_seq_len is 16"),
])
def test_wrong_tokens(tokens, error, words):
    refuse(error, words, tokens)


@pytest.mark.parametrize("options, error, words", [
    ({"positions": [[0, 1]]}, ValueError, r"\(1, 2\).*\(1, 3\)"),
    ({"positions": [0, 1, 2]}, ValueError, r"\(3,\).*\(1, 3\)"),
    ({"positions": [[0, 1, 2]] * 2}, ValueError, r"\(2, 3\).*\(1, 3\)"),
    ({"positions": [[0.0, 1.0, 2.0]]}, TypeError, "float64"),
    ({"positions": Tensor([[0, 1, 2]])}, TypeError, "float32"),
    ({"positions": [[0, 1], [2]]}, ValueError, "rows of positions differ in length"),
    ({"positions": []}, ValueError, r"\(0,\).*\(1, 3\)"),
    ({"positions": np.array([[2**63, 1, 2]], np.uint64)}, ValueError, "positions contains 9223372036854775808"),
    ({"positions": [[0, 1, 16]]}, ValueError, "position 16.*max_seq_len is 16"),
    ({"positions": [[2**62, 0, 1]]}, ValueError, "max_seq_len is 16"),
    ({"logits_to_keep": 0}, ValueError, "logits_to_keep is 0.*1 to 3"),
    ({"logits_to_keep": -1}, ValueError, "logits_to_keep is -1"),
    ({"logits_to_keep": 4}, ValueError, "logits_to_keep is 4.*1 to 3"),
    ({"logits_to_keep": 1.0}, ValueError, r"logits_to_keep is 1\.0"),
    ({"logits_to_keep": True}, ValueError, "logits_to_keep is True"),
])
def test_wrong_options(options, error, words):
    refuse(error, words, [[1, 2, 3]], **options)


def refuse(error, words, tokens, **options):
    """The error comes at once, says `words`, and leaves the model and the cache as they were."""
    model, cache = random_model(22), ListCache(1, 2)
    before = {name: array.copy() for name, array in model.state_dict().items()}
    for arguments in ({}, {"cache": cache}):
        with pytest.raises(error, match=re.compile(words, re.DOTALL)):
            model(tokens, **arguments, **options)
    assert cache.snapshot() == (0, [], [(0, True), (0, True)])
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_cache_that_does_not_fit():
    model = random_model(23)
    for cache, words in ((ListCache(1, 3), "cache has 3 layers, but the model has 2"),
                         (ListCache(2, 2), "batch of 2, but tokens has 1 row")):
        with pytest.raises(ValueError, match=words):
            model([[1, 2]], cache=cache)
        assert cache.seq_pos == 0 and all(layer.size == 0 for layer in cache.layers)
    for cache in (ListCache.Layer(), [], True):
        with pytest.raises(TypeError, match=f"cache is a {type(cache).__name__}, .*`layers`"):
            model([[1]], cache=cache)


def test_a_full_context_is_refused_before_the_cache_changes():
    model, cache = random_model(24), ListCache(1, 2)
    logits_of(model, [[1] * 15], cache=cache)
    before = cache.snapshot()
    with pytest.raises(ValueError, match="position 16"):
        model([[1, 2]], cache=cache)
    assert cache.snapshot() == before
    logits_of(model, [[1]], cache=cache)


@pytest.mark.parametrize("changes, words", [
    ({"vocab_size": 0}, "vocab_size is 0"),
    ({"embed_dim": -8}, "embed_dim is -8"),
    ({"num_layers": 0}, "num_layers is 0"),
    ({"num_layers": True}, "num_layers is True"),
    ({"num_heads": 2.0}, r"num_heads is 2\.0"),
    ({"num_heads": 0}, "num_heads is 0"),
    ({"num_kv_heads": 0}, "num_kv_heads is 0"),
    ({"num_kv_heads": None}, "num_kv_heads is None"),
    ({"intermediate_dim": "10"}, "intermediate_dim is '10'"),
    ({"max_seq_len": 0}, "max_seq_len is 0"),
    ({"num_kv_heads": 3}, "num_heads is 4.*num_kv_heads, which is 3"),
    ({"num_kv_heads": 8}, "num_heads is 4.*num_kv_heads, which is 8"),
    ({"embed_dim": 10}, "embed_dim is 10.*4 heads"),
    ({"embed_dim": 12}, "head_dim is 3.*even"),
    ({"head_dim": 5}, "head_dim is 5.*even"),
    ({"head_dim": 0}, "head_dim is 0"),
    ({"rope_base": 0.0}, r"rope_base is 0\.0"),
    ({"rope_base": float("nan")}, "rope_base is nan"),
    ({"rope_base": 10**400}, "rope_base is 1000"),
    ({"rope_base": True}, "rope_base is True"),
    ({"rope_base": np.float32("inf")}, "rope_base is .*inf"),
    ({"norm_eps": "1e-5"}, "norm_eps is '1e-5'"),
    ({"norm_eps": np.array([1e-5])}, "norm_eps is array"),
    ({"norm_eps": None}, "norm_eps is None"),
    ({"norm_eps": 0}, "norm_eps is 0"),
    ({"norm_eps": 1e-46}, "norm_eps is 1e-46, .* float32"),
    ({"norm_eps": np.longdouble("1e-46")}, "norm_eps is .* float32"),
    ({"norm_eps": -1e-5}, "norm_eps is -1e-05"),
    ({"tie_embeddings": "no"}, "tie_embeddings is 'no'"),
])
def test_impossible_configurations(changes, words):
    with pytest.raises(ValueError, match=words):
        TransformerConfig(**{**dataclasses.asdict(TINY), "head_dim": None, **changes})


def test_configuration():
    assert TINY.head_dim == 2
    assert dataclasses.replace(TINY, head_dim=8).head_dim == 8
    config = TransformerConfig(*np.array([11, 10, 1, 4, 2, 10, 16]), head_dim=np.int32(4))     # NumPy's ints are welcome
    assert all(type(v) is int for v in dataclasses.astuple(config)[:8])
    assert TransformerConfig(**dataclasses.asdict(config)) == config and hash(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.embed_dim = 3


def test_parts_can_be_used_alone():
    rng = np.random.default_rng(0)
    mlp = MLP(4, 6, rng=rng)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    gate, up = np.split(x @ mlp.gate_up.weight.data, 2, axis=-1)
    np.testing.assert_allclose(mlp(Tensor(x)).data, gate / (1 + np.exp(-gate)) * up @ mlp.down.weight.data, atol=1e-6)
    tokens = np.array([[1, 2]])
    assert token_array(tokens) is tokens, "the right kind of array is passed on without a copy"
    assert isinstance(Transformer(TINY, seed=0).blocks[0], Block)
