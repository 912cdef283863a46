"""Layers: values, gradients, dtypes, shapes and error messages."""
import gc
import inspect
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinytorch.core.layers import (Embedding, Linear, Module, RMSNorm, check_ids, cross_entropy, embedding, linear,
                                   matmul_few_rows, normal, rms_norm, silu, softmax, swiglu)
from tinytorch.core.tensor import Tensor, check_gradients, no_grad

INF = np.inf


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


# ---- slow references, written straight from the formula in float64 ----

def along(function, x, axis=-1):
    return np.apply_along_axis(lambda row: np.array(function(list(map(float, row)))), axis, np.asarray(x, np.float64))


def softmax_row(row):
    top = max(row)
    powers = [math.exp(v - top) for v in row]
    return [p / math.fsum(powers) for p in powers]


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v))


def swiglu_row(row):
    half = len(row) // 2
    return [g * sigmoid(g) * u for g, u in zip(row[:half], row[half:])]


def rms_row(row, eps):
    scale = math.sqrt(math.fsum(v * v for v in row) / len(row) + eps)
    return [v / scale for v in row]


def cross_entropy_reference(logits, targets, ignore_index=-100):
    """The loss and its gradient, row by row."""
    logits = np.asarray(logits, np.float64)
    counted = [index for index in np.ndindex(logits.shape[:-1]) if targets[index] != ignore_index]
    loss, grad = 0.0, np.zeros_like(logits)
    for index in counted:
        row, target = list(map(float, logits[index])), targets[index]
        top = max(row)
        loss += math.log(math.fsum(math.exp(v - top) for v in row)) + top - row[target]
        grad[index] = softmax_row(row)
        grad[index][target] -= 1
    return loss / len(counted), grad / len(counted)


# ---- gradients against central differences ----

IGNORING = np.array([[1, -100, 0], [3, 3, -100]])

GRADIENTS = {
    "softmax": (softmax, draw(2, 3, 4)),
    "softmax over axis 0": (lambda x: softmax(x, axis=0), draw(3, 4)),
    "softmax over the middle": (lambda x: softmax(x, axis=1), draw(2, 3, 4)),
    "softmax of one": (softmax, draw(3, 1)),
    "silu": (silu, 3 * draw(3, 4)),
    "silu of a scalar": (silu, draw()),
    "swiglu": (swiglu, 3 * draw(2, 3, 8)),
    "swiglu of one token": (swiglu, draw(1, 2)),
    "rms_norm": (rms_norm, draw(2, 3, 4), draw(4)),
    "rms_norm of one token": (rms_norm, draw(1, 1, 4), draw(4)),
    "rms_norm of a vector": (rms_norm, draw(4), draw(4)),
    "rms_norm with a large eps": (lambda x, w: rms_norm(x, w, eps=0.5), draw(3, 4), draw(4)),
    "linear": (linear, draw(2, 3, 4), draw(4, 5)),
    "linear with bias": (linear, draw(2, 3, 4), draw(4, 5), draw(5)),
    "linear of a matrix": (linear, draw(3, 4), draw(4, 5), draw(5)),
    "linear of a vector": (linear, draw(4), draw(4, 5), draw(5)),
    "embedding with repeats": (lambda w: embedding(w, np.array([[1, 1, 0], [4, 1, 0]])), draw(5, 3)),
    "embedding of one id": (lambda w: embedding(w, np.array(2)), draw(5, 3)),
    "cross_entropy": (lambda x: cross_entropy(x, np.array([2, 0, 3])), draw(3, 4)),
    "cross_entropy, some ignored": (lambda x: cross_entropy(x, IGNORING), draw(2, 3, 4)),
    "cross_entropy of one row": (lambda x: cross_entropy(x, np.array(1)), draw(4)),
}


@pytest.mark.parametrize("case", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradient(case):
    assert check_gradients(*case) < 1e-6


def test_gradients_of_a_stack_reach_every_parameter():
    ids, targets = np.array([[0, 1, 2, 1]]), np.array([[1, 2, -100, 0]])

    def loss(table, gain, wide, narrow):
        hidden = rms_norm(embedding(table, ids), gain)
        return cross_entropy(linear(swiglu(linear(hidden, wide)), narrow), targets)

    check_gradients(loss, draw(3, 4), draw(4), draw(4, 6), draw(3, 3))


@pytest.mark.parametrize("function, shapes", [
    (softmax, [(3, 4)]), (silu, [(3, 4)]), (swiglu, [(3, 4)]), (rms_norm, [(3, 4), (4,)]), (rms_norm, [(1, 4), (4,)]),
    (linear, [(3, 4), (4, 5), (5,)]), (lambda x: cross_entropy(x, np.array([1, 0, -100])), [(3, 4)]),
    (lambda w: embedding(w, np.array([1, 1])), [(3, 4)]),
])
def test_backward_twice_adds_the_same_again_and_inputs_stay(function, shapes):
    tensors = [Tensor(draw(*shape), requires_grad=True) for shape in shapes]
    before = [tensor.data.copy() for tensor in tensors]
    out = function(*tensors)
    value, upstream = out.data.copy(), np.float32(draw(*out.shape))
    sent = upstream.copy()
    out.backward(upstream)
    first = [tensor.grad.copy() for tensor in tensors]
    out.backward(upstream)
    for tensor, grad, data in zip(tensors, first, before):
        np.testing.assert_allclose(tensor.grad, 2 * grad, rtol=1e-6)
        np.testing.assert_array_equal(tensor.data, data)
    np.testing.assert_array_equal(upstream, sent)
    np.testing.assert_array_equal(out.data, value)


def test_frozen_weights_get_no_gradient():
    x = Tensor(draw(2, 3), requires_grad=True)
    weight = Tensor(draw(3, 3))
    (linear(x, weight)).sum().backward()
    assert weight.grad is None
    np.testing.assert_allclose(x.grad, np.broadcast_to(weight.data.sum(axis=1), (2, 3)), rtol=1e-6)


def test_no_grad_keeps_nothing():
    weight, gain = normal((4, 4), 1.0), Tensor(np.ones(4), requires_grad=True)
    with no_grad():
        out = cross_entropy(linear(rms_norm(embedding(weight, np.array([1, 2])), gain), weight), np.array([0, 1]))
    assert not out.requires_grad and out._parents == () and out._backward is None


# ---- values against the references ----

@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (3, 1, 5)])
def test_softmax(shape, axis):
    x = 5 * draw(*shape)
    np.testing.assert_allclose(softmax(Tensor(x), axis).data, along(softmax_row, x, axis), rtol=2e-6)


@pytest.mark.parametrize("row, expected", [
    ([1e4, 1e4], [0.5, 0.5]), ([-1e4, -1e4], [0.5, 0.5]), ([1e4, -1e4], [1, 0]), ([1e4, 1e4 - 1], softmax_row([1, 0])),
    ([-INF, 0, 0], [0, 0.5, 0.5]), ([-INF, -1e4], [0, 1]), ([3e38, -3e38], [1, 0]), ([-INF, -INF], [0, 0]),
    ([-INF, 1e4, -1e4, -INF], [0, 1, 0, 0]),
])
def test_softmax_at_the_edges(row, expected):
    x = Tensor([row, np.zeros(len(row))], requires_grad=True)     # the second row must not be disturbed by the first
    with np.errstate(over="ignore"):                              # 3e38 - (-3e38) is too large, and rightly so
        y = softmax(x)
    np.testing.assert_allclose(y.data, [expected, np.full(len(row), 1 / len(row))], rtol=1e-6)
    y.backward(draw(*y.shape))
    assert np.isfinite(x.grad).all()


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5),
                  elements=st.floats(-1e4, 1e4, width=32) | st.just(-INF)))
def test_softmax_sums_to_one_or_none(x):
    y = softmax(Tensor(x)).data
    alive = np.isfinite(x).any(axis=-1)
    np.testing.assert_allclose(y.sum(axis=-1), alive.astype(float), rtol=1e-5)
    assert ((y >= 0) & (y <= 1)).all() and y.dtype == np.float32


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 5), st.sampled_from([(), (3,), (1, 1), (2, 3), (1, 4)]), st.sampled_from([1.0, 1e4]))
def test_cross_entropy(data, classes, shape, size):
    logits = size * draw(*shape, classes, seed=data.draw(st.integers(0, 99)))
    targets = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, classes - 1) | st.just(-100)))
    if (targets == -100).all():
        targets[(0,) * len(shape)] = classes - 1
    x = Tensor(logits, requires_grad=True)
    loss = cross_entropy(x, targets)
    loss.backward()
    expected, grad = cross_entropy_reference(x.data, targets)
    assert loss.shape == () and loss.dtype == np.float32
    np.testing.assert_allclose(loss.item(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad, grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("row, target, expected", [
    ([1e4, -1e4], 0, 0.0), ([1e4, -1e4], 1, 2e4), ([-1e4, -1e4], 0, math.log(2)), ([-INF, 0, 0], 1, math.log(2)),
    ([0, -INF], 1, INF),
])
def test_cross_entropy_at_the_edges(row, target, expected):
    x = Tensor([row], requires_grad=True)
    loss = cross_entropy(x, np.array([target]))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    onehot = np.arange(len(row)) == target
    np.testing.assert_allclose(x.grad[0], np.array(softmax_row(row)) - onehot, atol=1e-7)


def test_cross_entropy_never_looks_at_ignored_rows():
    logits = np.array([[np.nan, INF], [1, 2], [-INF, -INF]])
    x = Tensor(logits, requires_grad=True)
    loss = cross_entropy(x, [-100, 1, -100])
    loss.backward()
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-6)
    assert (x.grad[[0, 2]] == 0).all() and x.grad[1, 1] < 0


def test_cross_entropy_with_a_class_as_ignore_index():
    logits, targets = draw(4, 3), np.array([0, 1, 0, 2])
    loss = cross_entropy(Tensor(logits), targets, ignore_index=0)
    assert loss.item() == pytest.approx(cross_entropy_reference(logits, targets, 0)[0], rel=1e-6)


def test_cross_entropy_passes_the_incoming_gradient_on():
    x = Tensor(draw(2, 3), requires_grad=True)
    (cross_entropy(x, [0, 2]) * 3).backward()
    np.testing.assert_allclose(x.grad, 3 * cross_entropy_reference(x.data, np.array([0, 2]))[1], rtol=1e-5)


def test_cross_entropy_keeps_one_array_of_the_size_of_the_logits():
    """No one-hot matrix: the forward keeps the exponentials, the backward makes the gradient."""
    import tracemalloc

    x = Tensor(np.zeros((256, 1024)), requires_grad=True)
    targets = np.zeros(256, int)
    gc.collect()
    tracemalloc.start()
    try:
        loss = cross_entropy(x, targets)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loss.item() == pytest.approx(math.log(1024), rel=1e-6)
    assert kept < 1.1 * x.data.nbytes and peak < 1.2 * x.data.nbytes


def test_silu_and_swiglu_far_out():
    x = np.array([-3e38, -1e4, -100, -20, -1, 0, 1, 20, 100, 1e4, 3e38])
    expected = np.array([v * sigmoid(v) if v > -700 else 0.0 for v in x])
    np.testing.assert_allclose(silu(Tensor(x)).data, expected, rtol=1e-6, atol=1e-6)
    both = Tensor(np.stack([x, np.ones_like(x)], axis=-1), requires_grad=True)
    y = swiglu(both)
    np.testing.assert_allclose(y.data[:, 0], expected, rtol=1e-6, atol=1e-6)
    y.backward(np.ones(y.shape))
    np.testing.assert_allclose(both.grad[:, 0], [0, 0, 0, 0, sigmoid(-1) - sigmoid(-1) * sigmoid(1), 0.5,
                                                 sigmoid(1) + sigmoid(-1) * sigmoid(1), 1, 1, 1, 1], atol=1e-5)


@pytest.mark.parametrize("shape", [(2,), (1, 1, 6), (3, 2, 8)])
def test_swiglu(shape):
    x = 4 * draw(*shape)
    np.testing.assert_allclose(swiglu(Tensor(x)).data, along(swiglu_row, x), rtol=2e-6, atol=5e-7)


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 0.5])
@pytest.mark.parametrize("shape", [(4,), (1, 1, 4), (3, 4), (2, 3, 128), (3, 1, 1)])
def test_rms_norm(shape, eps):
    x, weight = draw(*shape), draw(shape[-1], seed=1)
    expected = along(lambda row: rms_row(row, eps), x) * weight
    np.testing.assert_allclose(rms_norm(Tensor(x), Tensor(weight), eps).data, expected, rtol=2e-6, atol=1e-6)


def test_rms_norm_of_small_and_zero_vectors():
    weight = Tensor(np.ones(4))
    for x in (np.zeros((1, 4)), np.zeros((3, 4)), np.full((1, 4), 1e-3), np.full((3, 4), 1e-3)):
        expected = along(lambda row: rms_row(row, 1e-5), x)
        np.testing.assert_allclose(rms_norm(Tensor(x), weight).data, expected, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_float64_eps_makes_nothing_float64(rows):
    x = Tensor(draw(rows, 4), requires_grad=True)
    for y in (rms_norm(x, Tensor(np.ones(4)), np.float64(1e-5)), RMSNorm(4, eps=np.float64(1e-5))(x)):
        assert y.dtype == np.float32
        assert y._backward(np.ones(y.shape, np.float32))[0].dtype == np.float32
        np.testing.assert_array_equal(y.data, rms_norm(x, Tensor(np.ones(4)), 1e-5).data)


@pytest.mark.parametrize("eps", [0, 0.0, 1e-50, 5e-38, -1e-5, INF, np.nan])
@pytest.mark.parametrize("rows", [1, 2])
def test_rms_norm_refuses_an_eps_that_cannot_serve_zeros(eps, rows):
    for norm in (RMSNorm(4, eps), lambda x: rms_norm(x, Tensor(np.ones(4)), eps)):
        with pytest.raises(ValueError, match="eps is " + re.escape(str(float(eps)))):
            norm(Tensor(np.zeros((rows, 4))))


def test_rms_norm_of_one_vector_equals_it_in_a_batch():
    x, weight = Tensor(draw(3, 128)), Tensor(draw(128))
    together = rms_norm(x, weight).data
    for i in range(3):
        np.testing.assert_allclose(rms_norm(Tensor(x.data[i:i + 1]), weight).data[0], together[i], rtol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["K x M", "M x K", "slice of a buffer", "slice of the other", "backwards", "shared"])
def test_matmul_few_rows_is_the_matrix_product(rows, dtype, layout):
    """Whatever the number of rows and however the matrices lie in memory; nothing is written to."""
    a = draw(2, 3, rows, 5).astype(dtype)
    b = {
        "K x M": draw(2, 3, 5, 7).astype(dtype),
        "M x K": draw(2, 3, 7, 5).astype(dtype).swapaxes(-1, -2),
        "slice of a buffer": draw(2, 3, 9, 7).astype(dtype)[:, :, :5],
        "slice of the other": draw(2, 3, 5, 9).astype(dtype)[..., :7],
        "backwards": draw(2, 3, 5, 7).astype(dtype)[..., ::-1],
        "shared": draw(2, 1, 5, 7).astype(dtype),
    }[layout]
    before = a.copy(), b.copy()
    product = matmul_few_rows(a, b)
    assert product.shape == (2, 3, rows, 7) and product.dtype == dtype
    np.testing.assert_allclose(product, np.einsum("bhnk,bhkm->bhnm", a, np.broadcast_to(b, (2, 3, 5, 7))), atol=1e-5)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])
    np.testing.assert_allclose(matmul_few_rows(a[1, 2], b[1, -1]), product[1, 2], rtol=1e-5)        # two plain matrices


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1, 1, 4), (3, 4), (3, 2, 4), (2, 1, 3, 4)])
def test_linear(shape):
    x, weight, bias = draw(*shape), draw(4, 5), draw(5)
    expected = np.einsum("...i,io->...o", x, weight)
    np.testing.assert_allclose(linear(Tensor(x), Tensor(weight)).data, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(linear(Tensor(x), Tensor(weight), Tensor(bias)).data, expected + bias, rtol=1e-5,
                               atol=1e-6)


def test_linear_reads_views():
    x, weight = draw(3, 4, 2).transpose(1, 0, 2)[::2], draw(5, 2).T
    np.testing.assert_allclose(linear(Tensor(x), Tensor(weight)).data, x @ weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ids", [3, [0], [[4, 4, 0]], np.array([[1], [2], [0]], np.uint8), np.array([2, 1], np.int32)])
def test_embedding(ids):
    weight = draw(5, 3)
    out = embedding(Tensor(weight), ids)
    assert out.shape == np.shape(ids) + (3,)
    np.testing.assert_array_equal(out.data, weight.astype(np.float32)[np.asarray(ids)])


@pytest.mark.parametrize("make", [list, np.array])
def test_ids_and_targets_that_change_before_the_way_back(make):
    weight, logits = Tensor(draw(5, 3), requires_grad=True), Tensor(draw(2, 3), requires_grad=True)
    ids, targets = make([0, 1]), make([0, 1])
    out, loss = embedding(weight, ids), cross_entropy(logits, targets)
    ids[:], targets[:] = [3, 3], [2, 2]
    out.backward(np.ones(out.shape))
    loss.backward()
    assert weight.grad[:, 0].tolist() == [1, 1, 0, 0, 0]
    assert (logits.grad < 0).tolist() == [[True, False, False], [False, True, False]]


def test_embedding_is_a_copy():
    weight = Tensor(draw(5, 3))
    embedding(weight, [0, 1, 2]).data[:] = 0
    assert (weight.data != 0).all()


# ---- against PyTorch ----

def torch_cases(torch):
    f = torch.nn.functional
    targets = np.array([[1, -100, 0], [3, 3, -100]])
    ids = np.array([[1, 1, 0], [4, 1, 0]])
    t = torch.from_numpy
    return {
        "softmax": (softmax, lambda x: f.softmax(x, -1), draw(2, 3, 4)),
        "softmax, large": (softmax, lambda x: f.softmax(x, -1), 1e4 * draw(3, 4)),
        "softmax, axis 1": (lambda x: softmax(x, 1), lambda x: f.softmax(x, 1), draw(2, 3, 4)),
        "silu": (silu, f.silu, 4 * draw(3, 40)),
        "swiglu": (swiglu, lambda x: f.silu(x[..., :20]) * x[..., 20:], 4 * draw(2, 3, 40)),
        "rms_norm": (rms_norm, lambda x, w: f.rms_norm(x, (64,), w, 1e-5), draw(2, 3, 64), draw(64)),
        "rms_norm, one": (rms_norm, lambda x, w: f.rms_norm(x, (64,), w, 1e-5), draw(1, 1, 64), draw(64)),
        "linear": (linear, lambda x, w, b: f.linear(x, w.T, b), draw(2, 3, 64), draw(64, 32), draw(32)),
        "linear, one": (linear, lambda x, w: f.linear(x, w.T), draw(1, 1, 64), draw(64, 32)),
        "embedding": (lambda w: embedding(w, ids), lambda w: f.embedding(t(ids), w), draw(5, 3)),
        "cross_entropy": (lambda x: cross_entropy(x, targets),
                          lambda x: f.cross_entropy(x.reshape(-1, 4), t(targets.ravel())), draw(2, 3, 4)),
        "cross_entropy, large": (lambda x: cross_entropy(x, targets),
                                 lambda x: f.cross_entropy(x.reshape(-1, 4), t(targets.ravel())), 1e4 * draw(2, 3, 4)),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("default")              # PyTorch's own warnings are not ours
def test_values_and_gradients_equal_those_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    for name, (ours, theirs, *arrays) in torch_cases(torch).items():
        arrays = [array.astype(dtype) for array in arrays]
        tensors = [Tensor(array, requires_grad=True, dtype=dtype) for array in arrays]
        peers = [torch.tensor(array, requires_grad=True) for array in arrays]
        out, expected = ours(*tensors), theirs(*peers)
        upstream = draw(*out.shape).astype(dtype)
        out.backward(upstream)
        expected.backward(torch.from_numpy(np.asarray(upstream)))
        close = dict(rtol=1e-5, atol=2e-6) if dtype == np.float32 else dict(rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(out.data, expected.detach().numpy(), err_msg=name, **close)
        for tensor, peer in zip(tensors, peers):
            np.testing.assert_allclose(tensor.grad, peer.grad.numpy(), err_msg=name, **close)


# ---- dtypes and shapes ----

OPS = {
    "softmax": (softmax, [(3,)], (3,)),
    "silu": (silu, [(4,)], (4,)),
    "swiglu": (swiglu, [(4,)], (2,)),
    "rms_norm": (rms_norm, [(4,), 4], (4,)),
    "linear": (linear, [(4,), (4, 5), 5], (5,)),
}


@pytest.mark.parametrize("leading", [(), (1,), (1, 1), (3,), (3, 2), (0,), (0, 2), (2, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPS)
def test_shapes_and_dtypes_stay(name, dtype, leading):
    function, (features, *others), out_features = OPS[name]
    inputs = [Tensor(np.ones(leading + features), requires_grad=True, dtype=dtype)]
    inputs += [Tensor(np.ones(shape), requires_grad=True, dtype=dtype) for shape in others]
    out = function(*inputs)
    assert isinstance(out.data, np.ndarray)
    assert out.shape == leading + out_features and out.dtype == dtype
    out.backward(np.ones(out.shape))
    assert all(tensor.grad.shape == tensor.shape and tensor.grad.dtype == dtype for tensor in inputs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_stay_in_cross_entropy_and_embedding(dtype):
    logits = Tensor(np.ones((3, 4)), requires_grad=True, dtype=dtype)
    loss = cross_entropy(logits, np.array([0, -100, 2]))
    loss.backward()
    assert loss.dtype == dtype and logits.grad.dtype == dtype
    out = embedding(logits, np.zeros((0, 2), int))
    assert out.shape == (0, 2, 4) and out.dtype == dtype
    out.backward(np.zeros(out.shape))
    assert embedding(logits, np.array(1)).shape == (4,)


def test_layers_are_float32():
    model = [Linear(3, 4, bias=True), Embedding(3, 4), RMSNorm(4)]
    assert {parameter.dtype for layer in model for parameter in layer.parameters()} == {np.dtype(np.float32)}
    assert all(parameter.requires_grad for layer in model for parameter in layer.parameters())


# ---- errors ----

def x(*shape):
    return Tensor(np.ones(shape))


ERRORS = {
    "negative id": (ValueError, "token ids must lie in 0..4, but one of them is -1", lambda: embedding(x(5, 2), [0, -1])),
    "id too large": (ValueError, "one of them is 5", lambda: embedding(x(5, 2), np.array([[0, 5]]))),
    "large unsigned id": (ValueError, "one of them is 255", lambda: embedding(x(5, 2), np.array([255], np.uint8))),
    "float ids": (TypeError, "must be integers, but their dtype is float64", lambda: embedding(x(5, 2), [0.0, 1.0])),
    "bool ids": (TypeError, "must be integers", lambda: embedding(x(5, 2), [True])),
    "linear width": (ValueError, r"expects 4 features on the last axis, but the input has shape \(8, 3\)",
                     lambda: linear(x(8, 3), x(4, 6))),
    "linear width that would reshape": (ValueError, "expects 4 features", lambda: linear(x(2, 6), x(4, 6))),
    "linear of a scalar": (ValueError, "expects 4 features", lambda: linear(x(), x(4, 6))),
    "linear bias of one number": (ValueError, r"needs a bias of shape \(6,\), but it has shape \(1,\)",
                                  lambda: linear(x(8, 4), x(4, 6), x(1))),
    "linear bias of a row": (ValueError, r"needs a bias of shape \(6,\), but it has shape \(1, 6\)",
                             lambda: linear(x(8, 4), x(4, 6), x(1, 6))),
    "linear bias for each row": (ValueError, r"needs a bias of shape \(6,\), but it has shape \(8, 6\)",
                                 lambda: linear(x(8, 4), x(4, 6), x(8, 6))),
    "odd swiglu": (ValueError, "must be even, but it is 3", lambda: swiglu(x(2, 3))),
    "rms_norm weight": (ValueError, r"4 features needs a weight of shape \(4,\), but it has shape \(1,\)",
                        lambda: rms_norm(x(2, 4), x(1))),
    "rms_norm of width 1": (ValueError, "1 features", lambda: rms_norm(x(2, 1), x(4))),
    "target too large": (ValueError, "targets must lie in 0..2, but one of them is 3",
                         lambda: cross_entropy(x(2, 3), [0, 3])),
    "negative target": (ValueError, "one of them is -1", lambda: cross_entropy(x(2, 3), [0, -1])),
    "float targets": (TypeError, "targets must be integers", lambda: cross_entropy(x(2, 3), [0.0, 1.0])),
    "probabilities as targets": (ValueError, r"must have shape \(2,\), but they have shape \(2, 3\)",
                                 lambda: cross_entropy(x(2, 3), np.ones((2, 3)))),
    "targets with an axis too many": (ValueError, r"must have shape \(2, 4\)",
                                      lambda: cross_entropy(x(2, 4, 3), np.zeros((2, 4, 1), int))),
    "all ignored": (ValueError, r"all 2 are ignore_index \(-100\)", lambda: cross_entropy(x(2, 3), [-100, -100])),
    "no rows, as a list": (ValueError, "No target counts", lambda: cross_entropy(x(0, 3), [])),
    "no rows": (ValueError, "No target counts", lambda: cross_entropy(x(0, 3), np.zeros(0, int))),
    "no forward": (NotImplementedError, "Module has no forward", lambda: Module()(1)),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_error(case):
    error, message, call = case
    with pytest.raises(error, match=message):
        call()


def test_check_ids_gives_back_an_integer_array():
    assert check_ids([[1, 2]], 3, "ids").tolist() == [[1, 2]]
    assert check_ids(np.zeros((0, 2), int), 3, "ids").shape == (0, 2)
    assert check_ids([], 3, "ids").dtype == int                   # an empty list has no integers, but no other numbers either
    assert embedding(x(5, 2), []).shape == (0, 2)


# ---- modules ----

class Inner(Module):
    def __init__(self, rng):
        self.norm = RMSNorm(2)
        self.out = Linear(2, 3, bias=True, rng=rng)
        self.size, self.note, self.nothing = 2, "not a weight", None

    def forward(self, x, scale=1):
        return self.out(self.norm(x)) * scale


class Outer(Module):
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.embedding = Embedding(4, 2, rng)
        self.blocks = [Inner(rng), Inner(rng)]
        self.pair = (RMSNorm(2), [Tensor(np.ones(1))])
        self.again = self.blocks[0]                       # the same module under a second name
        self.tied = self.embedding.weight                 # the same Tensor under a second name
        self.table = np.ones(3)                           # an array is not a parameter

    def forward(self, ids):
        return self.blocks[1](self.embedding(ids), scale=2)


NAMES = ["embedding.weight", "blocks.0.norm.weight", "blocks.0.out.weight", "blocks.0.out.bias", "blocks.1.norm.weight",
         "blocks.1.out.weight", "blocks.1.out.bias", "pair.0.weight", "pair.1.0"]


def test_named_parameters_come_once_and_in_order():
    model = Outer()
    named = list(model.named_parameters())
    assert [name for name, _ in named] == NAMES
    assert named[0][1] is model.embedding.weight and named[-1][1] is model.pair[1][0]
    assert model.parameters() == [parameter for _, parameter in named]
    assert [name for name, _ in model.blocks[0].named_parameters("a.b")] == ["a.b.norm.weight", "a.b.out.weight",
                                                                            "a.b.out.bias"]


def test_modules_that_know_each_other_do_not_loop():
    parent, child = Module(), Linear(2, 2)
    parent.child, child.parent = child, parent
    assert [name for name, _ in parent.named_parameters()] == ["child.weight"]


def test_a_module_without_weights():
    assert Module().parameters() == [] and Module().state_dict() == {}
    Module().load_state_dict({})


def test_calling_a_module_calls_forward():
    model = Outer()
    ids = np.array([[1, 3, 3]])
    block = model.blocks[1]
    expected = 2 * (rms_norm(embedding(model.tied, ids), block.norm.weight).data @ block.out.weight.data)
    np.testing.assert_allclose(model(ids).data, expected, rtol=1e-5, atol=1e-7)


def test_the_call_of_a_class_is_a_function_that_can_be_wrapped(monkeypatch):
    """As one does to count or to time calls."""
    layer, x, shapes, call = Linear(2, 3), Tensor([[1, 2]]), [], Linear.__call__
    monkeypatch.setattr(Linear, "__call__", lambda self, x: shapes.append(x.shape) or call(self, x))
    np.testing.assert_array_equal(layer(x).data, layer.forward(x).data)
    assert shapes == [(1, 2)] and "args" in str(inspect.signature(Module()))


def test_state_dict_is_the_arrays_themselves():
    model = Outer()
    state = model.state_dict()
    assert list(state) == NAMES
    assert all(state[name] is parameter.data for name, parameter in model.named_parameters())


def snapshot(model):
    return {name: array.copy() for name, array in model.state_dict().items()}


def test_load_copies_into_the_same_arrays():
    source, target = Outer(1), Outer(2)
    arrays = target.state_dict()
    target.load_state_dict(source.state_dict())
    for name, array in target.state_dict().items():
        assert array is arrays[name]
        np.testing.assert_array_equal(array, source.state_dict()[name])
    source.embedding.weight.data[:] = 7
    assert (target.embedding.weight.data != 7).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, ">f4", bool])
def test_load_casts_to_the_dtype_of_the_parameter(dtype):
    layer = Linear(2, 3)
    value = np.arange(6).reshape(2, 3).astype(dtype)
    layer.load_state_dict({"weight": value})
    assert layer.weight.data.dtype == np.float32 and layer.weight.data.dtype.isnative
    np.testing.assert_array_equal(layer.weight.data, value.astype(np.float32))


def test_load_keeps_how_an_array_lies_in_memory():
    layer = Linear(2, 3)
    layer.weight.data = turned = np.zeros((3, 2), np.float32).T
    layer.load_state_dict({"weight": np.arange(6).reshape(2, 3)})
    assert layer.weight.data is turned and turned.flags.f_contiguous
    assert turned.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_load_accepts_tensors_and_lists():
    layer = RMSNorm(2)
    layer.load_state_dict({"weight": Tensor([1, 2])})
    assert layer.weight.data.tolist() == [1, 2]
    layer.load_state_dict({"weight": [3, 4]})
    assert layer.weight.data.tolist() == [3, 4]


@pytest.mark.parametrize("view", [lambda array: array, lambda array: array[:], lambda array: Tensor(array[:])],
                         ids=["array", "view", "Tensor"])
def test_a_state_of_the_modules_own_arrays_may_be_exchanged(view):
    """state_dict gives the arrays themselves; filling one parameter must not change what another is filled from."""
    first, second = Linear(2, 2), Linear(2, 2)
    module = Module()
    module.parts = [first, second]
    a, b = first.weight.data.copy(), second.weight.data.copy()
    state = module.state_dict()
    module.load_state_dict({f"parts.{i}.weight": view(state[f"parts.{1 - i}.weight"]) for i in range(2)})
    assert np.array_equal(first.weight.data, b) and np.array_equal(second.weight.data, a)


def test_a_state_that_does_not_fit_is_named_in_full_and_changes_nothing():
    model = Outer(1)
    before = snapshot(model)
    state = snapshot(Outer(2))
    del state["embedding.weight"], state["pair.1.0"]
    state["blocks.7.norm.weight"] = np.ones(2)
    state["tied"] = np.ones((4, 2))
    state["blocks.0.out.weight"] = np.ones((3, 2))
    state["blocks.0.out.bias"] = np.ones((1, 3))
    state["blocks.1.out.bias"] = np.ones(3, complex)
    with pytest.raises(ValueError, match="nothing was loaded") as caught:
        model.load_state_dict(state)
    message = str(caught.value)
    for part in ("missing: embedding.weight", "missing: pair.1.0", "unexpected: blocks.7.norm.weight",
                 "unexpected: tied", "blocks.0.out.weight has shape (3, 2), expected (2, 3)",
                 "blocks.0.out.bias has shape (1, 3), expected (3,)", "blocks.1.out.bias has dtype complex128"):
        assert part in message
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_scalar_is_not_spread_over_a_weight():
    layer = Linear(2, 3)
    with pytest.raises(ValueError, match=re.escape("weight has shape (), expected (2, 3)")):
        layer.load_state_dict({"weight": 1.0})


# ---- initial weights ----

def test_normal_is_seeded_and_has_the_deviation_asked_for():
    first, second = (normal((200, 300), 0.5, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first.data, second.data)
    assert first.requires_grad and first.dtype == np.float32 and first.shape == (200, 300)
    assert first.data.std() == pytest.approx(0.5, rel=0.02) and abs(first.data.mean()) < 0.01


def test_layers_without_a_generator_differ():
    assert (Linear(4, 4).weight.data != Linear(4, 4).weight.data).any()


def test_layers_start_as_documented():
    rng = np.random.default_rng(0)
    layer, table, norm = Linear(300, 200, bias=True, rng=rng), Embedding(300, 200, rng), RMSNorm(5)
    assert layer.weight.shape == (300, 200) and layer.bias.data.tolist() == [0.0] * 200
    assert table.weight.shape == (300, 200) and norm.weight.data.tolist() == [1.0] * 5 and norm.eps == 1e-5
    assert layer.weight.data.std() == pytest.approx(0.02, rel=0.02)
    assert table.weight.data.std() == pytest.approx(0.02, rel=0.02)
    assert Linear(3, 2, rng=rng, std=0.0).weight.data.tolist() == [[0, 0]] * 3
    assert Linear(3, 2).bias is None


def test_a_generator_of_zeros_makes_weights_that_are_never_touched():
    """Whoever loads weights afterwards does not pay for random ones."""
    made = []

    class Zeros(np.random.Generator):
        def normal(self, loc, scale, size):
            made.append(np.zeros(size, np.float32))
            return made[-1]

    layer = Linear(3, 2, rng=Zeros(np.random.PCG64(0)))
    assert layer.weight.data is made[0] and (made[0] == 0).all()


@pytest.mark.parametrize("call", [
    lambda array: softmax(array), lambda array: cross_entropy(array, [0, 1]), lambda array: silu(array),
    lambda array: swiglu(array), lambda array: rms_norm(array, Tensor(np.ones(2))),
    lambda array: linear(array, Tensor(np.ones((2, 2)))), lambda array: embedding(array, [0, 1]),
    lambda array: RMSNorm(2)(array), lambda array: Linear(2, 2)(array),
])
def test_a_forgotten_tensor_is_named(call):
    """An ndarray has a `data`, too: a memoryview, of which the errors would speak."""
    call(Tensor(np.ones((2, 2))))
    for wrong in np.ones((2, 2), np.float32), [[1.0, 1.0], [1.0, 1.0]]:
        with no_grad(), pytest.raises(TypeError, match=f"A Tensor is needed.*{type(wrong).__name__}"):
            call(wrong)
