"""Attention against slow references written straight from the formulas, and against PyTorch where it is installed."""
import math
import tracemalloc
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytorch.core import attention as module_03
from tinytorch.core.attention import (
    Attention,
    Rotary,
    apply_rotary,
    cache_mask,
    grouped_attention,
    merge_heads,
    query_chunks,
    scaled_dot_product_attention,
    split_heads,
    visible,
)
from tinytorch.core.tensor import Tensor, check_gradients, no_grad, record

HEADS = pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (4, 1), (1, 1)], ids=["MHA", "GQA", "MQA", "one"])


@pytest.fixture(params=[64, 2, 1], ids=["whole", "pairs of queries", "single queries"])
def chunk(request, monkeypatch):
    """The same test with the queries in chunks."""
    monkeypatch.setattr(module_03, "QUERY_CHUNK", request.param)


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def causal(T, S, batch=1):
    """The last T of S tokens ask."""
    return visible(np.tile(np.arange(S - T, S), (batch, 1)), np.tile(np.arange(S), (batch, 1)))


# ---------------------------------------------------------------------------------------------------------- references


def slow_rotary(x, positions, base):
    """Every pair turned by its angle, with cos and sin, one at a time."""
    B, H, T, D = x.shape
    out = np.empty(x.shape)
    for b, h, t, i in np.ndindex(B, H, T, D // 2):
        angle = int(positions[b, t]) * base ** (-2 * i / D)
        even, odd = float(x[b, h, t, 2 * i]), float(x[b, h, t, 2 * i + 1])
        out[b, h, t, 2 * i] = even * math.cos(angle) - odd * math.sin(angle)
        out[b, h, t, 2 * i + 1] = even * math.sin(angle) + odd * math.cos(angle)
    return out


def slow_visible(q, p, window, sinks):
    """Whether one query at position q sees one key at position p."""
    if p < 0 or q < 0 or p > q:
        return False
    return window is None or p > q - window or p < sinks


def slow_attention(query, key, value, mask=None):
    """One query at a time, in float64."""
    B, H, T, D = query.shape
    kv_heads, S = key.shape[1:3]
    out = np.zeros(query.shape)
    for b, h, t in np.ndindex(B, H, T):
        kv = h // (H // kv_heads)
        row = mask[b, t] if mask is not None and mask.ndim == 3 else mask[b, kv, t] if mask is not None else [True] * S
        seen = [s for s in range(S) if row[s]]
        if not seen:
            continue
        scores = [math.fsum(float(query[b, h, t, d]) * float(key[b, kv, s, d]) for d in range(D)) / math.sqrt(D)
                  for s in seen]
        top = max(scores)
        exps = [math.exp(score - top) for score in scores]
        for e, s in zip(exps, seen):
            out[b, h, t] += e / math.fsum(exps) * value[b, kv, s].astype(np.float64)
    return out


def sent_back(function, *arrays):
    """The gradients as the function itself sends them back, before backward casts them for `.grad`."""
    sent = {}

    def watched(number, leaf):
        def backward(grad):
            sent[number] = grad
            return (grad,)
        return record(leaf.data, backward, leaf)
    out = function(*(watched(i, Tensor(a, requires_grad=True, dtype=a.dtype)) for i, a in enumerate(arrays)))
    out.backward(np.ones(out.shape, out.dtype))
    return [sent[i] for i in range(len(arrays))]


class FakeLayer:
    """The least that attention asks of a cache layer: it keeps everything, by concatenation."""

    def __init__(self, window=None, sinks=0, transposed=False):
        self.window, self.sinks, self.transposed = window, sinks, transposed
        self.key = self.value = self.positions = None

    @property
    def length(self):
        return self.positions.shape[1]

    @property
    def padded(self):
        return bool((self.positions < 0).any())

    def append(self, key, value, positions):
        if self.positions is None:
            self.key, self.value, self.positions = key.data, value.data, positions
        else:
            self.key = np.concatenate([self.key, key.data], axis=2)
            self.value = np.concatenate([self.value, value.data], axis=2)
            self.positions = np.concatenate([self.positions, positions], axis=1)
        key = self.key
        if self.transposed:
            key = np.ascontiguousarray(key.swapaxes(-1, -2)).swapaxes(-1, -2)
        return Tensor(key), Tensor(self.value)


class FakeCache:
    def __init__(self, layers=1, **kw):
        self.layers = [FakeLayer(**kw) for _ in range(layers)]

    def update(self, layer_idx, key, value, positions):
        return self.layers[layer_idx].append(key, value, positions)


# -------------------------------------------------------------------------------------------------------------- rotary


@pytest.mark.parametrize("base", [10000.0, 100000.0])
@pytest.mark.parametrize("head_dim", [2, 6, 64])
def test_rotary_is_the_textbook_formula(head_dim, base):
    positions = np.array([[0, 1, 2], [5, 300, 7], [511, 0, 40]])
    x = draw(3, 2, 3, head_dim)
    out = apply_rotary(x, Rotary(head_dim, 512, base)(positions))
    np.testing.assert_allclose(out, slow_rotary(x, positions, base), atol=1e-5)
    assert out.dtype == np.float32


def test_rotary_stays_accurate_at_late_positions():
    """Angles of thousands of radians need float64; float32 angles would be off by 1e-3 here."""
    positions = np.array([[32767, 32766]])
    x = draw(1, 1, 2, 8)
    out = apply_rotary(x, Rotary(8, 32768)(positions))
    np.testing.assert_allclose(out, slow_rotary(x, positions, 10000.0), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("table", [np.complex64, np.complex128])
def test_rotary_keeps_the_dtype(dtype, table):
    rotation = Rotary(8, 16)(np.array([[3, 9]])).astype(table)
    x = draw(1, 2, 2, 8, dtype=dtype)
    out = apply_rotary(x, rotation)
    assert out.shape == x.shape and out.dtype == dtype
    np.testing.assert_allclose(out, slow_rotary(x, np.array([[3, 9]]), 10000.0), atol=1e-6)


def test_rotary_table_is_complex64():
    assert Rotary(8, 16).table.dtype == np.complex64
    assert Rotary(8, 16)(np.array([[1, 2]])).shape == (1, 1, 2, 4)


@pytest.mark.parametrize("head_dim", [2, 4])
@pytest.mark.parametrize("view", ["heads", "transposed", "reversed", "slice", "repeated"])
def test_rotary_of_views(view, head_dim):
    """Inputs come as views of a projection; any strides give the same numbers, and the input is left alone."""
    positions = np.array([[4, 7, 2]])
    x = {
        "heads": lambda: draw(1, 3, 2, head_dim).swapaxes(1, 2),
        "transposed": lambda: draw(1, 2, head_dim, 3).swapaxes(2, 3),
        "reversed": lambda: draw(1, 2, 3, head_dim)[..., ::-1],
        "slice": lambda: draw(1, 2, 3, 9)[..., 1:1 + head_dim],
        "repeated": lambda: np.broadcast_to(np.float32(3), (1, 2, 3, head_dim)),
    }[view]()
    before = x.copy()
    out = apply_rotary(x, Rotary(head_dim, 16)(positions))
    np.testing.assert_allclose(out, slow_rotary(x, positions, 10000.0), atol=1e-6)
    np.testing.assert_array_equal(x, before)


def test_rotary_keeps_lengths_and_position_zero():
    x = draw(1, 2, 3, 8)
    out = apply_rotary(x, Rotary(8, 100)(np.array([[0, 50, 99]])))
    np.testing.assert_allclose(np.linalg.norm(out, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-6)
    np.testing.assert_array_equal(out[:, :, 0], x[:, :, 0])


@given(q=st.integers(0, 400), p=st.integers(0, 400), shift=st.integers(0, 600), seed=st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_rotary_scores_depend_on_the_difference_only(q, p, shift, seed):
    rotary = Rotary(16, 1001)
    a, b = draw(1, 1, 1, 16, seed=seed), draw(1, 1, 1, 16, seed=seed + 1)

    def score(q, p):
        turned = [apply_rotary(x, rotary(np.array([[at]]))) for x, at in ((a, q), (b, p))]
        return float((turned[0] * turned[1]).sum())
    assert score(q, p) == pytest.approx(score(q + shift, p + shift), abs=2e-5)


def test_backward_leaves_the_gradient_it_is_given_alone():
    """An addition hands the same array to both of its parts."""
    rotation = Rotary(2, 8)(np.array([[3]]))
    x, other = (Tensor(np.ones((1, 1, 1, 2)), requires_grad=True) for _ in range(2))
    wide = Tensor(np.ones((1, 1, 6)), requires_grad=True)
    cases = {"attention": lambda: scaled_dot_product_attention(x, x, x),
             **{f"split {i}": lambda i=i: split_heads(wide, 1, 1, rotation)[i] for i in range(3)},
             "merge": lambda: merge_heads(x).reshape(1, 1, 1, 2)}
    for name, function in cases.items():
        other.grad = None
        (function() + other).backward(np.full((1, 1, 1, 2), 7, np.float32))
        np.testing.assert_array_equal(other.grad, np.full((1, 1, 1, 2), 7), err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_operation_sends_back_the_dtype_of_its_input(dtype):
    rotation = Rotary(2, 8)(np.array([[3]]))
    x, wide = draw(1, 1, 1, 2, dtype=dtype), draw(1, 1, 6, dtype=dtype)
    for function, arrays in ((merge_heads, [x]), (scaled_dot_product_attention, [x, x, x]),
                             *((lambda x, i=i: split_heads(x, 1, 1, rotation)[i], [wide]) for i in range(3))):
        assert [grad.dtype for grad in sent_back(function, *arrays)] == [dtype] * len(arrays)


def test_numpy_scalars_among_the_arguments_bring_no_float64():
    module = Attention(4, 1, 1, 2, Rotary(2, 8, base=np.float64(100)), np.random.default_rng(0), out_std=np.float64(0.1))
    assert module.rotary.table.dtype == np.complex64
    assert all(parameter.dtype == np.float32 for parameter in module.parameters())
    assert module(Tensor(draw(1, 1, 4)), np.array([[3]])).dtype == np.float32


def test_rotary_refuses():
    for head_dim in (5, 0, -2):
        with pytest.raises(ValueError, match=f"head_dim is {head_dim},.*must be even and at least 2"):
            Rotary(head_dim, 8)
    with pytest.raises(ValueError, match="Position 8 is beyond the 8 positions"):
        Rotary(4, 8)(np.array([[0, 8]]))
    with pytest.raises(TypeError, match="float16"):
        apply_rotary(draw(1, 1, 1, 4, dtype=np.float16), Rotary(4, 8)(np.array([[0]])))


def test_rotary_of_padding_is_harmless():
    """However negative a padding position is, it gets the rotation of position 0."""
    rotary = Rotary(4, 8)
    np.testing.assert_array_equal(rotary(np.array([[-1, -1000, 3]])), rotary(np.array([[0, 0, 3]])))


# ------------------------------------------------------------------------------------------------------------- visible

numbers = st.integers(-3, 12)


@given(data=st.data(), batch=st.integers(1, 3), T=st.integers(1, 4), S=st.integers(1, 6),
       heads=st.sampled_from([None, 1, 3]), window=st.none() | st.integers(1, 6), sinks=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_visible_against_nested_loops(data, batch, T, S, heads, window, sinks):
    def positions(*shape):
        size = math.prod(shape)
        return np.array(data.draw(st.lists(numbers, min_size=size, max_size=size))).reshape(shape)
    q = positions(batch, T)
    p = positions(batch, S) if heads is None else positions(batch, heads, S)
    seen = visible(q, p, window, sinks)
    assert seen.dtype == bool
    assert seen.shape == ((batch, T, S) if heads is None else (batch, heads, T, S))
    for index in np.ndindex(seen.shape):
        b, *h, t, s = index
        assert seen[index] == slow_visible(int(q[b, t]), int(p[(b, *h, s)]), window, sinks), index


def test_visible_is_aligned_to_the_end():
    """Two new tokens after three cached ones: the rectangle's last row sees all, the row above all but one."""
    seen = visible(np.array([[3, 4]]), np.arange(5)[None])
    assert seen.tolist() == [[[True, True, True, True, False], [True] * 5]]


def test_visible_does_not_depend_on_the_order_of_the_slots():
    """A ring buffer holds tokens in any order; only positions count."""
    order = np.array([3, 0, 4, 1, 2])
    q = np.array([[2, 4]])
    np.testing.assert_array_equal(visible(q, order[None], 2, 1), visible(q, np.arange(5)[None], 2, 1)[..., order])


@pytest.mark.parametrize("window", [0, -1])
def test_visible_refuses_an_empty_window(window):
    with pytest.raises(ValueError, match="window"):
        visible(np.array([[0]]), np.array([[0]]), window)


# ----------------------------------------------------------------------------------------------------------- attention


@HEADS
@pytest.mark.parametrize("batch, T, S", [(1, 1, 1), (3, 1, 5), (3, 4, 4), (2, 3, 7)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_against_loops(heads, kv_heads, batch, T, S, masked, chunk):
    q, k, v = draw(batch, heads, T, 4), draw(batch, kv_heads, S, 4, seed=1), draw(batch, kv_heads, S, 4, seed=2)
    mask = causal(T, S, batch) if masked else None
    out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.data, slow_attention(q, k, v, mask), atol=1e-5)


@HEADS
@pytest.mark.parametrize("per_head", [False, True])
def test_attention_with_any_mask(heads, kv_heads, per_head, chunk):
    """Random masks, with rows that see nothing, and masks that differ between key/value heads."""
    q, k, v = draw(3, heads, 4, 6), draw(3, kv_heads, 5, 6, seed=1), draw(3, kv_heads, 5, 6, seed=2)
    shape = (3, kv_heads, 4, 5) if per_head else (3, 4, 5)
    mask = np.random.default_rng(0).random(shape) < 0.4
    mask[1, ..., 2, :] = False
    kept = mask.copy()
    out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask).data
    np.testing.assert_allclose(out, slow_attention(q, k, v, mask), atol=1e-5)
    assert not out[1, :, 2].any()
    np.testing.assert_array_equal(mask, kept)


def test_attention_leaves_its_inputs_alone():
    arrays = [draw(2, 4, 3, 8), draw(2, 2, 5, 8, seed=1), draw(2, 2, 5, 8, seed=2)]
    before = [array.copy() for array in arrays]
    q, k, v = (Tensor(array, requires_grad=True) for array in arrays)
    scaled_dot_product_attention(q, k, v, causal(3, 5, 2)).backward(np.ones((2, 4, 3, 8), np.float32))
    for array, old in zip(arrays, before):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_see_nothing_give_zeros_and_zero_gradients(dtype):
    q, k, v = (Tensor(draw(2, heads, n, 4, seed=n, dtype=dtype), requires_grad=True, dtype=dtype)
               for heads, n in ((4, 3), (2, 5), (2, 5)))
    mask = causal(3, 5, 2)
    mask[0] = False                                 # row 0 of the batch sees nothing at all
    mask[1, 0] = False
    with np.errstate(all="raise"):
        out = scaled_dot_product_attention(q, k, v, mask)
        out.backward(np.ones(out.shape, dtype))
    assert not out.data[0].any() and not out.data[1, :, 0].any() and out.data[1, :, 1:].all()
    assert not q.grad[0].any() and not k.grad[0].any() and not v.grad[0].any() and not q.grad[1, :, 0].any()
    assert all(np.isfinite(t.grad).all() and t.grad[1].any() for t in (q, k, v))


@pytest.mark.parametrize("size", [1e4, 1e15])
def test_huge_scores_neither_overflow_nor_warn(size):
    q, k, v = draw(1, 2, 3, 4) * np.float32(size), draw(1, 1, 3, 4, seed=1), draw(1, 1, 3, 4, seed=2)
    out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), causal(3, 3)).data
    np.testing.assert_allclose(out, slow_attention(q, k, v, causal(3, 3)), atol=1e-5)


def test_a_hidden_key_never_wins():
    """However low the score of the visible key is."""
    q, k, v = (np.array(rows, np.float32)[None, None] for rows in ([[1e15]], [[-1e15], [0]], [[3], [5]]))
    assert scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), np.array([[[True, False]]])).data.item() == 3


@pytest.mark.parametrize("mask", [None, np.ones((1, 1, 1), bool)], ids=["no mask", "mask"])
def test_a_real_nan_is_not_hidden(mask):
    q, v = np.full((1, 1, 1, 1), np.nan, np.float32), np.ones((1, 1, 1, 1), np.float32)
    assert np.isnan(scaled_dot_product_attention(Tensor(q), Tensor(v), Tensor(v), mask).data.item())


def test_hidden_keys_have_no_influence():
    q, k, v = draw(1, 2, 2, 4), draw(1, 1, 4, 4, seed=1), draw(1, 1, 4, 4, seed=2)
    mask = np.array([[[True, True, False, False], [True, True, True, False]]])
    out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask).data
    k[:, :, 3], v[:, :, 3] = 1e6, -1e6
    np.testing.assert_array_equal(scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask).data, out)


def test_a_key_of_zeros_is_a_token():
    """Its score is 0, which is not the same as hidden. One of two keys, for if all were hidden, all would count again."""
    q, k, v = draw(1, 1, 2, 4), draw(1, 1, 2, 4, seed=1), draw(1, 1, 2, 4, seed=2)
    k[:, :, 0] = 0
    for mask in (None, causal(2, 2)):
        out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask).data
        np.testing.assert_allclose(out, slow_attention(q, k, v, mask), rtol=1e-5, atol=1e-6)


@HEADS
@pytest.mark.parametrize("mask", ["none", "causal", "per head", "empty rows"])
def test_attention_gradient(heads, kv_heads, mask, chunk):
    T, S = 3, 4
    masks = {"none": None, "causal": causal(T, S, 2),
             "per head": np.random.default_rng(1).random((2, kv_heads, T, S)) < 0.6,
             "empty rows": causal(T, S, 2) & np.array([True, False])[:, None, None]}
    arrays = [draw(2, n, length, 4, seed=length, dtype=np.float64)
              for n, length in ((heads, T), (kv_heads, S), (kv_heads, S))]
    check_gradients(lambda q, k, v: scaled_dot_product_attention(q, k, v, masks[mask]), *arrays)


def test_backward_twice_gives_twice_the_gradient():
    q, k, v = (Tensor(draw(1, n, 3, 4, seed=n), requires_grad=True) for n in (4, 2, 2))
    out = scaled_dot_product_attention(q, k, v, causal(3, 3))
    out.backward(np.ones(out.shape, np.float32))
    once = [t.grad.copy() for t in (q, k, v)]
    out.backward(np.ones(out.shape, np.float32))
    for t, grad in zip((q, k, v), once):
        np.testing.assert_allclose(t.grad, 2 * grad, rtol=1e-6)


@pytest.mark.parametrize("dtypes", [(np.float16, np.float16), (np.float64, np.float64), (np.float64, np.float32),
                                    (np.float32, np.float64)], ids=str)
def test_the_dtype_is_that_of_the_query(dtypes):
    """A cache may store another precision; a float32 model stays float32."""
    q = Tensor(draw(1, 4, 1, 8), requires_grad=True)
    k, v = (Tensor(draw(1, 2, 6, 8, seed=s), requires_grad=True, dtype=dtype) for s, dtype in enumerate(dtypes, 1))
    out = scaled_dot_product_attention(q, k, v)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.data, slow_attention(q.data, k.data, v.data), atol=1e-5)
    out.backward(np.ones(out.shape, np.float32))
    assert (q.grad.dtype, k.grad.dtype, v.grad.dtype) == (np.float32, *dtypes)


def test_attention_refuses_with_sentences():
    def call(q=(2, 4, 3, 8), k=(2, 2, 5, 8), v=None, mask=None):
        return scaled_dot_product_attention(Tensor(np.zeros(q)), Tensor(np.zeros(k)), Tensor(np.zeros(v or k)), mask)
    call()
    for message, arguments in {
        "4 query heads cannot share 3": dict(k=(2, 3, 5, 8)),
        "4 query heads cannot share 0": dict(k=(2, 0, 5, 8)),
        "2 query heads cannot share 4": dict(q=(2, 2, 3, 8), k=(2, 4, 5, 8)),
        "same shape": dict(v=(2, 2, 4, 8)),
        "head_dim is 8, but the keys' is 6": dict(k=(2, 2, 5, 6)),
        "batch of the query is 2, but that of the keys is 1": dict(k=(1, 2, 5, 8)),
        "four axes": dict(q=(4, 3, 8)),
        r"mask has shape \(2, 5, 3\)": dict(mask=np.ones((2, 5, 3), bool)),
        r"mask has shape \(3, 5\)": dict(mask=np.ones((3, 5), bool)),
        r"mask has shape \(2, 4, 3, 5\)": dict(mask=np.ones((2, 4, 3, 5), bool)),
        "bools.*float64": dict(mask=np.ones((2, 3, 5))),
    }.items():
        with pytest.raises(ValueError, match=message):
            call(**arguments)


@pytest.mark.parametrize("window, sinks, padding", [(None, 0, 0), (None, 0, 100), (30, 0, 0), (30, 2, 70)])
def test_a_long_text_in_chunks_is_the_whole(window, sinks, padding, monkeypatch):
    chunks = []

    def counted(query, *others):
        chunks.append(query.shape[2])
        return grouped_attention(query, *others)
    monkeypatch.setattr(module_03, "grouped_attention", counted)
    positions = np.arange(150)[None] - padding
    mask = visible(positions, positions, window, sinks)
    q, k, v = draw(1, 4, 150, 8), draw(1, 2, 150, 8, seed=1), draw(1, 2, 150, 8, seed=2)
    out = scaled_dot_product_attention(Tensor(q), Tensor(k), Tensor(v), mask).data
    np.testing.assert_allclose(out, grouped_attention(q, k, v, mask)[0], atol=1e-6)
    assert chunks == [64, 64, 22]


def test_chunks_get_the_keys_that_they_see():
    positions = np.arange(200)[None] - 70
    assert [(q.start, q.stop, k.start, k.stop) for q, k in query_chunks(visible(positions, positions))] == [
        (0, 64, 0, 1), (64, 128, 70, 128), (128, 192, 70, 192), (192, 256, 70, 200)]
    late = visible(np.arange(900, 1000)[None], np.arange(1000)[None], window=50)
    assert [(k.start, k.stop) for _, k in query_chunks(late)] == [(851, 964), (915, 1000)]
    assert [(k.start, k.stop) for _, k in query_chunks(np.ones((2, 3, 65, 7), bool))] == [(0, 7), (0, 7)]


@pytest.mark.parametrize("layout", ["tokens x head_dim", "head_dim x tokens"])
@pytest.mark.parametrize("H, T", [(16, 1), (16, 4), (2, 1), (3, 1)])
def test_keys_are_neither_repeated_nor_copied(layout, H, T):
    """One key buffer of 4 MB serves all query heads; what is allocated follows the scores, not the keys."""
    B, kv_heads, S, D = 1, 1, 8192, 128
    shape = (B, kv_heads, S + 8, D) if layout == "tokens x head_dim" else (B, kv_heads, D, S + 8)
    buffer = np.zeros(shape, np.float32)
    keys = buffer[:, :, :S] if layout == "tokens x head_dim" else buffer[..., :S].swapaxes(-1, -2)
    q, k, v = Tensor(draw(B, H, T, D)), Tensor(keys), Tensor(np.ones((B, kv_heads, S, D)))
    assert np.shares_memory(k.data, buffer)
    mask = causal(T, S)
    scores = H * T * S * 4
    with no_grad():
        tracemalloc.start()
        scaled_dot_product_attention(q, k, v, mask)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1.3 * scores + 100_000, f"{peak} bytes for scores of {scores} and keys of {keys.nbytes}"


def test_probabilities_of_grouped_attention():
    q, k, v = draw(2, 4, 3, 8), draw(2, 2, 5, 8, seed=1), draw(2, 2, 5, 8, seed=2)
    out, weights, total = grouped_attention(q, k, v, causal(3, 5, 2))
    assert out.shape == (2, 4, 3, 8) and weights.shape == (2, 2, 6, 5) and total.shape == (2, 2, 6, 1)
    np.testing.assert_allclose((weights / total).sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose((weights / total @ v).reshape(out.shape), out, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- against torch


@HEADS
@pytest.mark.parametrize("mask", ["none", "causal", "random"])
@pytest.mark.parametrize("T, S", [(1, 6), (5, 5), (3, 8)])
def test_attention_against_torch(heads, kv_heads, mask, T, S):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = [draw(3, n, length, 8, seed=i) for i, (n, length) in enumerate(((heads, T), (kv_heads, S), (kv_heads, S)))]
    masks = {"none": None, "causal": causal(T, S, 3), "random": np.random.default_rng(2).random((3, T, S)) < 0.5}
    mask = masks[mask]
    if mask is not None:
        mask[..., 0] = True                         # rows that see nothing are NaN in some versions of PyTorch
    grad = draw(3, heads, T, 8, seed=9)

    ours = [Tensor(array, requires_grad=True) for array in arrays]
    out = scaled_dot_product_attention(*ours, mask)
    out.backward(grad)
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *theirs, attn_mask=None if mask is None else torch.tensor(mask[:, None]), enable_gqa=True)
    expected.backward(torch.tensor(grad))
    np.testing.assert_allclose(out.data, expected.detach().numpy(), atol=2e-6)
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.grad, other.grad.numpy(), atol=5e-6)


# --------------------------------------------------------------------------------------------------------------- heads


POSITIONS = np.array([[5, 6, 7], [2, 0, 40]])


@HEADS
def test_heads_are_cut_where_the_columns_say_and_queries_and_keys_are_turned(heads, kv_heads):
    B, T, D = 2, 3, 4
    x = draw(B, T, (heads + 2 * kv_heads) * D)
    before = x.copy()
    query, key, value = split_heads(Tensor(x), heads, kv_heads, Rotary(D, 64)(POSITIONS))
    np.testing.assert_array_equal(x, before)
    assert query.shape == (B, heads, T, D) and key.shape == value.shape == (B, kv_heads, T, D)
    assert query.dtype == key.dtype == value.dtype == np.float32
    columns = np.stack(np.split(x, heads + 2 * kv_heads, axis=-1), axis=1)          # (B, heads, T, D)
    np.testing.assert_allclose(query.data, slow_rotary(columns[:, :heads], POSITIONS, 10000.0), atol=1e-5)
    np.testing.assert_allclose(key.data, slow_rotary(columns[:, heads:-kv_heads], POSITIONS, 10000.0), atol=1e-5)
    np.testing.assert_array_equal(value.data, columns[:, -kv_heads:])


def test_merge_puts_heads_side_by_side():
    x = draw(2, 3, 5, 4)
    merged = merge_heads(Tensor(x))
    assert merged.shape == (2, 5, 12)
    for h in range(3):
        np.testing.assert_array_equal(merged.data[..., 4 * h:4 * h + 4], x[:, h])


@HEADS
def test_heads_gradients(heads, kv_heads):
    x, rotation = draw(2, 3, (heads + 2 * kv_heads) * 4, dtype=np.float64), Rotary(4, 64)(POSITIONS)
    for part in range(3):
        check_gradients(lambda x: split_heads(x, heads, kv_heads, rotation)[part], x)
    check_gradients(merge_heads, draw(2, heads, 3, 2, dtype=np.float64))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_split_heads_gradient_of_a_sum(part):
    """The gradient of a sum is one number, repeated without memory of its own; no view can read that as pairs."""
    x = Tensor(draw(2, 3, 8), requires_grad=True)
    split_heads(x, 2, 1, Rotary(2, 64)(POSITIONS))[part].sum().backward()
    own = [slice(0, 4), slice(4, 6), slice(6, 8)][part]
    expected = np.zeros((2, 4, 3, 2))
    expected[:, own.start // 2:own.stop // 2] = 1
    if part < 2:
        expected = slow_rotary(expected, -POSITIONS, 10000.0)
    np.testing.assert_allclose(x.grad.reshape(2, 3, 4, 2).swapaxes(1, 2), expected, atol=1e-6)


def test_split_heads_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="33 columns cannot be cut into 8 heads"):
        split_heads(Tensor(np.zeros((1, 2, 33))), 4, 2, Rotary(4, 8)(np.array([[0, 1]])))
    with pytest.raises(ValueError, match="turns heads of 2 numbers.*32 columns.*8 heads make heads of 4"):
        split_heads(Tensor(np.zeros((1, 2, 32))), 4, 2, Rotary(2, 8)(np.array([[0, 1]])))
    with pytest.raises(TypeError, match="float16"):
        split_heads(Tensor(np.zeros((1, 2, 32)), dtype=np.float16), 4, 2, Rotary(4, 8)(np.array([[0, 1]])))


# ----------------------------------------------------------------------------------------------------------- the layer


def layer(heads=4, kv_heads=2, head_dim=4, width=12, seed=0):
    rng = np.random.default_rng(seed)
    module = Attention(width, heads, kv_heads, head_dim, Rotary(head_dim, 64), rng)
    for parameter in module.parameters():           # larger than a fresh model's, so that attention is not flat
        parameter.data[...] = rng.standard_normal(parameter.shape) * 0.5
    return module


def slow_layer(module, x, positions, window=None, sinks=0):
    heads, kv_heads, D = module.num_heads, module.num_kv_heads, module.head_dim
    B, T, _ = x.shape
    qkv = (x.astype(np.float64) @ module.qkv.weight.data).reshape(B, T, heads + 2 * kv_heads, D).transpose(0, 2, 1, 3)
    query, key = (slow_rotary(part, positions, 10000.0) for part in (qkv[:, :heads], qkv[:, heads:heads + kv_heads]))
    mask = np.array([[[slow_visible(int(q), int(p), window, sinks) for p in row] for q in row] for row in positions])
    mixed = slow_attention(query, key, qkv[:, heads + kv_heads:], mask)
    return mixed.transpose(0, 2, 1, 3).reshape(B, T, heads * D) @ module.out.weight.data


@HEADS
@pytest.mark.parametrize("positions", [
    [[0, 1, 2, 3]] * 3, [[5, 6, 7, 8]] * 3, [[-1, -1, 0, 1], [0, 1, 2, 3], [-1, -1, -1, -1]],
], ids=["from 0", "from 5", "left-padded"])
def test_layer_against_loops(heads, kv_heads, positions):
    module, positions = layer(heads, kv_heads), np.array(positions)
    x = draw(3, 4, 12)
    out = module(Tensor(x), positions)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.data, slow_layer(module, x, positions), atol=1e-5)


def test_layer_does_not_see_the_future():
    module, x = layer(), draw(1, 6, 12)
    positions = np.arange(6)[None]
    before = module(Tensor(x), positions).data
    x[:, 4:] += 1
    after = module(Tensor(x), positions).data
    np.testing.assert_allclose(after[:, :4], before[:, :4], atol=1e-6)
    assert abs(after[:, 4:] - before[:, 4:]).max() > 1e-2


def test_layer_parameters_and_their_names():
    module = Attention(12, 4, 2, 4, Rotary(4, 8), np.random.default_rng(0), out_std=0.001)
    assert {name: p.shape for name, p in module.named_parameters()} == {"qkv.weight": (12, 32), "out.weight": (16, 12)}
    assert module.out.weight.data.std() < 0.002 < 0.015 < module.qkv.weight.data.std()


def test_layer_trains():
    """Gradients reach the input and both weights, and agree with central differences."""
    module, positions = layer(), np.array([[0, 1, 2], [-1, 0, 1]])

    def run(x, qkv, out):
        module.qkv.weight, module.out.weight = qkv, out
        return module(x, positions)
    arrays = [draw(2, 3, 12), module.qkv.weight.data, module.out.weight.data]
    check_gradients(run, *(array.astype(np.float64) for array in arrays))


@pytest.mark.parametrize("chunks", [[6], [1, 1, 1, 1, 1, 1], [2, 4], [3, 1, 2]])
@pytest.mark.parametrize("limits", [{}, {"window": 3}, {"window": 2, "sinks": 1}], ids=["all", "window", "sinks"])
@pytest.mark.parametrize("transposed", [False, True])
def test_layer_with_a_cache_equals_without(chunks, limits, transposed):
    """Any split of the tokens gives what the whole gives; the second layer of the cache is the one used."""
    module, x = layer(), draw(3, 6, 12)
    positions = np.array([[0, 1, 2, 3, 4, 5], [-1, -1, 0, 1, 2, 3], [-1, 0, 1, 2, 3, 4]])
    expected = slow_layer(module, x, positions, **limits)
    cache, parts, start = FakeCache(2, transposed=transposed, **limits), [], 0
    with no_grad():
        for n in chunks:
            chunk = slice(start, start + n)
            parts.append(module(Tensor(x[:, chunk]), positions[:, chunk], cache, 1).data)
            start += n
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-5)
    assert cache.layers[0].positions is None


def test_layer_stores_turned_keys_and_plain_values():
    module, x, positions = layer(), draw(1, 3, 12), np.array([[7, 8, 9]])
    cache = FakeCache()
    with no_grad():
        module(Tensor(x), positions, cache)
        columns = module.qkv(Tensor(x)).data.reshape(1, 3, 8, 4).swapaxes(1, 2)
    np.testing.assert_allclose(cache.layers[0].key, slow_rotary(columns[:, 4:6], positions, 10000.0), atol=1e-5)
    np.testing.assert_array_equal(cache.layers[0].value, columns[:, 6:])


def described(length, window=None, sinks=0, padded=False):
    """A cache layer of which only the description matters; its positions explode when somebody reads them."""
    class Unread:
        def __getattribute__(self, name):
            raise AssertionError("the values of the positions were read")
    return types.SimpleNamespace(length=length, window=window, sinks=sinks, padded=padded, positions=Unread())


@pytest.mark.parametrize("layer", [
    described(9), described(4, window=4), described(3, window=4), described(6, window=4, sinks=2),
], ids=["all", "full window", "window not full", "sinks and window"])
def test_decode_builds_no_mask(layer):
    assert cache_mask(np.array([[8], [8]]), layer) is None


@pytest.mark.parametrize("T, limits", [
    (2, {}), (1, {"window": 4}), (1, {"window": 3, "sinks": 1}), (1, {"padded": True}),
], ids=["two queries", "window", "sinks", "padding"])
def test_the_mask_is_built_where_something_is_hidden(T, limits):
    layer = described(5, **limits)
    layer.positions = np.arange(5)[None]
    queries = np.arange(5 - T, 5)[None]
    expected = visible(queries, layer.positions, limits.get("window"), limits.get("sinks", 0))
    np.testing.assert_array_equal(cache_mask(queries, layer), expected)


def test_layer_refuses():
    with pytest.raises(ValueError, match="4 query heads cannot share 3"):
        Attention(12, 4, 3, 4, Rotary(4, 8))
    with pytest.raises(ValueError, match="head_dim is 6, but the rotary table is for 4"):
        Attention(12, 4, 2, 6, Rotary(4, 8))
    with pytest.raises(ValueError, match="Position 8"):
        Attention(12, 4, 2, 4, Rotary(4, 8))(Tensor(np.zeros((1, 1, 12))), np.array([[8]]))


def test_attention_over_arrays_says_that_tensors_are_needed():
    arrays = [np.ones((1, 2, 3, 4), np.float32)] * 3
    for i in range(3):
        mixed = [Tensor(array) if i != j else array for j, array in enumerate(arrays)]
        with no_grad(), pytest.raises(TypeError, match="A Tensor is needed"):
            scaled_dot_product_attention(*mixed)
