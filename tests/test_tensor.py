"""Lesson 01: values, gradients, dtypes, memory and errors of Tensor."""
import builtins
import copy
import gc
import platform
import re
import subprocess
import sys
import threading
import time
import weakref
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from tinytorch.core import tensor as module
from tinytorch.core.tensor import (Tensor, add_to_class, as_tensor, check_gradients, concatenate, is_grad_enabled,
                                   matmul_arrays, no_grad, record, topological_order, unbroadcast)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def positive(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2.0, shape)


def leaf(array, dtype=np.float32):
    return Tensor(np.array(array, dtype=dtype), requires_grad=True, dtype=dtype)


MASK = np.array([[True, False, True], [False, False, True]])

# name, our function, PyTorch's function (None: the same code runs on both), inputs
OPS = [
    ("add", lambda a, b: a + b, None, (normal(3, 4), normal(3, 4, seed=1))),
    ("add, row", lambda a, b: a + b, None, (normal(3, 4), normal(4))),
    ("add, column", lambda a, b: a + b, None, (normal(3, 1), normal(2, 1, 4))),
    ("add, scalar array", lambda a, b: a + b, None, (normal(), normal(2, 3))),
    ("add, number", lambda a: 2.5 + a + 1, None, (normal(2, 3),)),
    ("sub", lambda a, b: a - b, None, (normal(3, 1), normal(2, 1, 4))),
    ("sub, number", lambda a: a - 3, None, (normal(3),)),
    ("rsub", lambda a: 1 - a, None, (normal(2, 3),)),
    ("mul", lambda a, b: a * b, None, (normal(3, 4), normal(3, 4, seed=1))),
    ("mul, broadcast", lambda a, b: a * b, None, (normal(3, 1), normal(2, 1, 4))),
    ("mul, number", lambda a: 2 * a * 0.5, None, (normal(3),)),
    ("div", lambda a, b: a / b, None, (normal(3, 4), positive(3, 4))),
    ("div, broadcast", lambda a, b: a / b, None, (normal(4), positive(2, 3, 1))),
    ("rdiv", lambda a: 1 / a, None, (positive(2, 3),)),
    ("neg", lambda a: -a, None, (normal(2, 3),)),
    ("square", lambda a: a ** 2, None, (normal(2, 3),)),
    ("cube", lambda a: a ** 3, None, (normal(2, 3),)),
    ("pow 1.5", lambda a: a ** 1.5, None, (positive(2, 3),)),
    ("pow -2", lambda a: a ** -2, None, (positive(2, 3),)),
    ("pow 0", lambda a: a ** 0, None, (normal(2, 3),)),
    ("pow 1", lambda a: a ** 1, None, (normal(2, 3),)),
    ("exp", lambda a: a.exp(), None, (normal(2, 3),)),
    ("exp, scalar array", lambda a: a.exp(), None, (normal(),)),
    ("log", lambda a: a.log(), None, (positive(2, 3),)),
    ("sqrt", lambda a: a.sqrt(), None, (positive(2, 3),)),
    ("tanh", lambda a: a.tanh(), None, (normal(2, 3),)),
    ("sum", lambda a: a.sum(), None, (normal(2, 3, 4),)),
    ("sum, axis 0", lambda a: a.sum(0), None, (normal(2, 3, 4),)),
    ("sum, axis 1 of a square", lambda a: a.sum(axis=1), None, (normal(3, 3),)),
    ("sum, axis -2, kept", lambda a: a.sum(axis=-2, keepdims=True), None, (normal(2, 3, 4),)),
    ("sum, axes", lambda a: a.sum(axis=(0, -1)), None, (normal(2, 3, 4),)),
    ("sum, axes, kept", lambda a: a.sum(axis=(2, 0), keepdims=True), None, (normal(2, 3, 4),)),
    ("sum, kept", lambda a: a.sum(keepdims=True), lambda a: a.sum((0, 1), keepdim=True), (normal(2, 3),)),
    ("sum, scalar array", lambda a: a.sum(), None, (normal(),)),
    ("mean", lambda a: a.mean(), None, (normal(2, 3, 4),)),
    ("mean, axis 1", lambda a: a.mean(1), None, (normal(2, 3, 4),)),
    ("mean, axes, kept", lambda a: a.mean(axis=(0, -1), keepdims=True), None, (normal(2, 3, 4),)),
    ("max", lambda a: a.max(), lambda a: a.amax(), (normal(2, 3, 4),)),
    ("max, axis 1", lambda a: a.max(axis=1), lambda a: a.amax(1), (normal(2, 3, 4),)),
    ("max, axis -1, kept", lambda a: a.max(-1, keepdims=True), lambda a: a.amax(-1, keepdim=True), (normal(2, 3, 4),)),
    ("max, axes", lambda a: a.max(axis=(0, -1)), lambda a: a.amax((0, -1)), (normal(2, 3, 4),)),
    ("matmul", lambda a, b: a @ b, None, (normal(3, 4), normal(4, 5))),
    ("matmul, square", lambda a, b: a @ b, None, (normal(3, 3), normal(3, 3, seed=1))),
    ("matmul, dot", lambda a, b: a @ b, None, (normal(4), normal(4, seed=1))),
    ("matmul, vector @ matrix", lambda a, b: a @ b, None, (normal(4), normal(4, 5))),
    ("matmul, matrix @ vector", lambda a, b: a @ b, None, (normal(3, 4), normal(4))),
    ("matmul, batch @ matrix", lambda a, b: a @ b, None, (normal(2, 3, 4), normal(4, 5))),
    ("matmul, two batch axes @ matrix", lambda a, b: a @ b, None, (normal(2, 2, 3, 4), normal(4, 5))),
    ("matmul, batch @ vector", lambda a, b: a @ b, None, (normal(2, 3, 4), normal(4))),
    ("matmul, vector @ batch", lambda a, b: a @ b, None, (normal(4), normal(2, 4, 5))),
    ("matmul, matrix @ batch", lambda a, b: a @ b, None, (normal(3, 4), normal(2, 4, 5))),
    ("matmul, batch @ batch", lambda a, b: a @ b, None, (normal(2, 3, 4), normal(2, 4, 5))),
    ("matmul, broadcast batches", lambda a, b: a @ b, None, (normal(2, 1, 3, 4), normal(3, 4, 5))),
    ("matmul, batch of one", lambda a, b: a @ b, None, (normal(1, 3, 4), normal(2, 4, 1))),
    ("reshape", lambda a: a.reshape(3, 2), None, (normal(2, 3),)),
    ("reshape, tuple and -1", lambda a: a.reshape((2, -1)), None, (normal(2, 3, 4),)),
    ("reshape, -1", lambda a: a.reshape(-1), None, (normal(2, 3),)),
    ("reshape, of a transposed", lambda a: a.swapaxes(0, 1).reshape(-1), None, (normal(2, 3),)),
    ("transpose", lambda a: a.transpose(), lambda a: a.permute(2, 1, 0), (normal(2, 3, 4),)),
    ("transpose, axes", lambda a: a.transpose(1, 2, 0), lambda a: a.permute(1, 2, 0), (normal(2, 3, 4),)),
    ("transpose, tuple, negative", lambda a: a.transpose((-1, 0, 1)), lambda a: a.permute(2, 0, 1), (normal(2, 3, 4),)),
    ("swapaxes", lambda a: a.swapaxes(-1, 0), None, (normal(2, 3, 4),)),
    ("index, int", lambda a: a[1], None, (normal(2, 3, 4),)),
    ("index, negative", lambda a: a[-1, 2], None, (normal(2, 3, 4),)),
    ("index, one element", lambda a: a[1, 2, 3], None, (normal(2, 3, 4),)),
    ("index, slices", lambda a: a[:, 1:, ::2], None, (normal(2, 3, 4),)),
    ("index, reversed", lambda a: a[::-1], lambda a: a.flip(0), (normal(3, 2),)),
    ("index, None and Ellipsis", lambda a: a[None, ..., 1], None, (normal(2, 3),)),
    ("index, array with repeats", lambda a: a[np.array([0, 2, 0, 0])], None, (normal(3, 2),)),
    ("index, 2-D array", lambda a: a[np.array([[0, 1], [1, 1]])], None, (normal(3, 2),)),
    ("index, list", lambda a: a[[1, 1]], None, (normal(3, 2),)),
    ("index, pairs with repeats", lambda a: a[np.array([0, 1, 0]), np.array([2, 2, 2])], None, (normal(2, 3),)),
    ("index, array and slice", lambda a: a[:, np.array([0, 0, 1]), 1:], None, (normal(2, 3, 4),)),
    ("index, mask", lambda a: a[MASK], None, (normal(2, 3),)),
    ("index, mask of rows", lambda a: a[np.array([False, True])], None, (normal(2, 3),)),
    ("index, empty", lambda a: a[:0], None, (normal(2, 3),)),
]


@pytest.mark.parametrize("name, function, theirs, inputs", OPS, ids=[op[0] for op in OPS])
class TestEveryOp:
    def test_gradient_against_central_differences(self, name, function, theirs, inputs):
        assert check_gradients(function, *inputs) < 1e-7

    def test_forward_and_gradient_against_pytorch(self, name, function, theirs, inputs):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        ours = [leaf(x, np.float64) for x in inputs]
        peers = [torch.tensor(x, requires_grad=True) for x in inputs]
        out, peer = function(*ours), (theirs or function)(*peers)
        np.testing.assert_allclose(out.data, peer.detach().numpy(), rtol=1e-12, atol=1e-14)
        grad = normal(*out.shape, seed=7)
        out.backward(grad)
        peer.backward(torch.tensor(grad))
        for a, b in zip(ours, peers):
            np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_keeps_its_dtype_forward_and_backward(self, name, function, theirs, inputs, dtype):
        tensors = [leaf(x, dtype) for x in inputs]
        out = function(*tensors)
        for node in topological_order(out):
            assert node.dtype == dtype and type(node.data) is np.ndarray
            if node._backward is not None:
                parts = node._backward(np.ones(node.shape, dtype))
                assert [part.dtype for part, parent in zip(parts, node._parents) if parent.requires_grad] == [
                    dtype for parent in node._parents if parent.requires_grad]
        out.backward(np.ones(out.shape))
        for tensor in tensors:
            assert type(tensor.grad) is np.ndarray and tensor.grad.dtype == dtype
            assert tensor.grad.shape == tensor.shape and tensor.grad.flags.c_contiguous and tensor.grad.flags.writeable

    def test_no_grad_gives_the_same_numbers_and_records_nothing(self, name, function, theirs, inputs):
        tensors = [leaf(x) for x in inputs]
        expected = function(*tensors)
        with no_grad():
            out = function(*tensors)
        np.testing.assert_array_equal(out.data, expected.data)
        assert not out.requires_grad and out._parents == () and out._backward is None

    def test_leaves_its_inputs_and_the_given_gradient_alone(self, name, function, theirs, inputs):
        tensors = [leaf(x) for x in inputs]
        before = [tensor.data.copy() for tensor in tensors]
        out = function(*tensors)
        grad = np.ones(out.shape, np.float32)
        out.backward(grad)
        np.testing.assert_array_equal(grad, 1)
        arrays = [grad, *(t.data for t in tensors), *(t.grad for t in tensors)]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
        for tensor, data in zip(tensors, before):
            np.testing.assert_array_equal(tensor.data, data)


class TestConcatenate:
    @pytest.mark.parametrize("axis", [0, 1, -1])
    def test_values_and_gradient(self, axis):
        shapes = {0: [(2, 3), (1, 3), (0, 3)], 1: [(2, 3), (2, 1)], -1: [(2, 3), (2, 1), (2, 2)]}[axis]
        arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
        out = concatenate([Tensor(a, dtype=np.float64) for a in arrays], axis)
        np.testing.assert_array_equal(out.data, np.concatenate(arrays, axis))
        assert check_gradients(lambda *tensors: concatenate(tensors, axis), *arrays) < 1e-8

    def test_axis_none_flattens(self):
        a, b = leaf([[1.0], [2.0]]), leaf(3.0)
        out = concatenate([a, b], axis=None)
        out.backward([1, 2, 3])
        assert out.data.tolist() == [1, 2, 3] and a.grad.tolist() == [[1], [2]] and b.grad == 3

    def test_arrays_keep_the_digits_of_the_tensors(self):
        out = concatenate([np.array([0.1]), leaf([0.2], np.float64)])
        assert out.dtype == np.float64 and out.data.tolist() == [0.1, 0.2]

    def test_the_same_tensor_twice_and_an_array_beside_it(self):
        x = leaf([1.0, 2.0])
        out = concatenate([x, np.array([5.0]), x])
        out.backward([1, 2, 3, 4, 5])
        assert out.dtype == np.float32 and out.data.tolist() == [1, 2, 5, 1, 2]
        assert x.grad.tolist() == [1 + 4, 2 + 5]


# Broadcasting

shapes = hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=0, max_dims=4, min_side=1, max_side=3)


@given(shapes, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_gradients_of_any_broadcast(found, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(0.5, 2.0, shape) for shape in found.input_shapes)
    grad = rng.standard_normal(found.result_shape)
    for function, by_a, by_b in [
        (lambda x, y: x + y, np.ones_like(grad), np.ones_like(grad)),
        (lambda x, y: x - y, np.ones_like(grad), -np.ones_like(grad)),
        (lambda x, y: x * y, b, a),
        (lambda x, y: x / y, 1 / b, -a / b**2),
    ]:
        x, y = leaf(a, np.float64), leaf(b, np.float64)
        function(x, y).backward(grad)
        np.testing.assert_allclose(x.grad, sum_to(grad * by_a, a.shape), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(y.grad, sum_to(grad * by_b, b.shape), rtol=1e-12, atol=1e-12)


def sum_to(grad, shape):
    """By definition: every element of the result adds its gradient to the operand's element that it was made from."""
    out = np.zeros(shape)
    source = np.broadcast_to(np.arange(out.size).reshape(shape), grad.shape)
    np.add.at(out.reshape(-1), source, grad)
    return out


@given(shapes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_unbroadcast_by_definition(found):
    grad = np.random.default_rng(0).standard_normal(found.result_shape)
    for shape in found.input_shapes:
        np.testing.assert_allclose(unbroadcast(grad, shape), sum_to(grad, shape), rtol=1e-12, atol=1e-12)


def test_unbroadcast_with_axes_of_length_zero():
    assert unbroadcast(np.ones((0, 3)), (3,)).tolist() == [0, 0, 0]
    assert unbroadcast(np.ones((2, 0)), (2, 1)).tolist() == [[0], [0]]
    assert unbroadcast(np.ones((0,)), (1,)).tolist() == [0]


@given(hnp.mutually_broadcastable_shapes(signature="(m,k),(k,n)->(m,n)", max_dims=2, min_side=1, max_side=3))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_gradients_of_any_matmul(found):
    a, b = (np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate(found.input_shapes))
    np.testing.assert_allclose(matmul_arrays(a, b), a @ b, rtol=1e-12, atol=1e-14)
    assert check_gradients(lambda x, y: x @ y, a, b) < 1e-6


# The walk backward

class TestBackward:
    def test_a_node_used_twice_accumulates(self):
        x = leaf([3.0])
        (x * x + x).backward()
        assert x.grad.tolist() == [7.0]
        y = x * 2                                   # not a leaf
        (y * y + y).backward()
        assert x.grad.tolist() == [7.0 + 2 * (2 * 6 + 1)]

    def test_paths_of_different_length(self):
        x = leaf([0.5, -1.0])
        def function(x):
            a = x * 2
            b = a.tanh()
            c = b * a + x
            return c * b + a
        assert check_gradients(function, x.data) < 1e-7

    def test_repeated_calls_add_up_and_keep_the_earlier_array(self):
        x = leaf([1.0, 2.0])
        y = (x * x).sum()
        y.backward()
        first = x.grad
        y.backward()
        assert first.tolist() == [2, 4] and x.grad.tolist() == [4, 8]

    def test_only_leaves_keep_a_gradient(self):
        x, constant = leaf([1.0]), Tensor([2.0])
        y = x * constant
        y.sum().backward()
        assert x.grad.tolist() == [2] and y.grad is None and constant.grad is None

    def test_on_a_leaf(self):
        x = leaf([1.0, 2.0])
        grad = np.array([5.0, 6.0], np.float32)
        x.backward(grad)
        grad[:] = 0
        assert x.grad.tolist() == [5, 6]

    def test_a_tensor_as_gradient(self):
        x = leaf([1.0, 2.0])
        (x * 3).backward(Tensor([1.0, 10.0]))
        assert x.grad.tolist() == [3, 30]

    def test_size_one_of_any_shape_needs_no_gradient(self):
        x = leaf([[2.0]])
        (x * x).backward()
        assert x.grad.tolist() == [[4.0]]

    def test_leaves_do_not_share_gradients(self):
        x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        ((x + y) + x).backward([1, 1])
        assert x.grad.tolist() == [2, 2] and y.grad.tolist() == [1, 1]
        x.grad += 100
        assert y.grad.tolist() == [1, 1]

    def test_mixed_dtypes_give_each_leaf_its_own(self):
        x, y = leaf([1.0]), leaf([2.0], np.float64)
        out = x * y
        out.backward()
        assert out.dtype == np.float64 and x.grad.dtype == np.float32 and y.grad.dtype == np.float64

    @pytest.mark.parametrize("step", [lambda y: y + 1.0, lambda y: y * 1.0, lambda y: y.reshape(2), lambda y: y[:]],
                             ids=["add", "mul", "reshape", "getitem"])
    def test_a_chain_of_5000(self, step):
        x = leaf([1.0, 2.0])
        y = x
        for _ in range(5000):
            y = step(y)
        start = time.perf_counter()
        y.backward([1, 2])
        assert time.perf_counter() - start < 2
        assert x.grad.tolist() == [1, 2]

    def test_time_grows_with_the_nodes_and_not_with_the_paths(self):
        x = leaf(1.0)
        y = x
        for _ in range(30):
            y = y + y
        assert len(topological_order(y)) == 31
        start = time.perf_counter()
        y.backward()
        assert time.perf_counter() - start < 1
        assert x.grad == 2.0**30

    def test_every_operation_goes_back_once(self):
        calls = []
        def step(x, name):
            return record(x.data * 2, lambda grad: (calls.append(name), (grad * 2,))[1], x)
        x = leaf(1.0)
        a = step(x, "a")
        b = step(a, "b")
        (a + b + step(b, "c") + a).backward()
        assert sorted(calls) == ["a", "b", "c"] and calls.index("c") < calls.index("b") < calls.index("a")
        assert x.grad == 2 + 4 + 8 + 2

    def test_operands_that_need_no_gradient_are_not_walked(self):
        x, constant = leaf([1.0]), Tensor([1.0])
        for _ in range(100):
            constant = constant * 1.0
        assert len(topological_order(x * constant)) == 2

    def test_freeing_a_long_chain(self):
        """In a process of its own, in a thread with a stack as small as on Windows: a crash would take the tests with it."""
        program = (
            "import threading, numpy as np\n"
            "from tinytorch.core.tensor import Tensor\n"
            "def run():\n"
            "    y = x = Tensor([1.0], requires_grad=True)\n"
            "    for _ in range(100_000):\n"
            "        y = y + 1.0\n"
            "    y.backward()\n"
            "    del y\n"
            "    print(x.grad[0])\n"
            "threading.stack_size(1024 * 1024)\n"
            "thread = threading.Thread(target=run)\n"
            "thread.start(); thread.join()\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60,
                              cwd=Path(__file__).parents[1])
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1.0", "")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns the memory of every large array to the system")
def test_the_memory_of_freed_arrays_is_kept():
    """Fresh pages are counted: forty arrays of 4 MB need thousands, but the third time there are old ones for all.

    They are more than glibc keeps by itself, 64 MB at most.
    """
    program = (
        "import resource, numpy as np\n"
        "from tinytorch.core.tensor import Tensor\n"
        "t = Tensor(np.ones(1 << 20))\n"
        "for _ in range(3):\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    many = [t + t for _ in range(40)]\n"
        "    del many\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", cwd=Path(__file__).parents[1])
    assert done.returncode == 0 and int(done.stdout) < 500, done


class TestBackwardErrors:
    def test_non_scalar_without_gradient(self):
        x = leaf([1.0, 2.0])
        with pytest.raises(ValueError, match=r"shape \(2,\).*only a Tensor of one element"):
            (x * 2).backward()
        assert x.grad is None

    def test_one_element_of_any_shape_needs_no_gradient(self):
        x = leaf([[3.0]])
        (x * x).backward()
        assert x.grad.tolist() == [[6.0]]

    def test_gradient_of_the_wrong_shape(self):
        x = leaf([1.0, 2.0])
        with pytest.raises(ValueError, match=r"shape \(3,\).*shape \(2,\)"):
            (x * 2).backward(np.ones(3))
        with pytest.raises(ValueError, match=r"shape \(\).*shape \(2,\)"):
            (x * 2).backward(1.0)
        assert x.grad is None

    def test_nothing_to_differentiate(self):
        with pytest.raises(RuntimeError, match="requires_grad"):
            Tensor([1.0]).sum().backward()
        x = leaf([1.0])
        with no_grad():
            y = x.sum()
        with pytest.raises(RuntimeError, match="no_grad"):
            y.backward()

    @pytest.mark.parametrize("parts, message", [
        ((None, None), "no gradient for parent 0"),
        ((np.zeros(2, np.float32), None), "no gradient for parent 1"),
        ((np.zeros(2, np.float32), np.zeros((2, 1), np.float32)), r"shape \(2, 1\) for parent 1 of shape \(2,\)"),
        ((np.zeros(2, np.float32),), "tuple of 2 gradients"),
        (np.zeros((2, 2), np.float32), "tuple of 2 gradients"),
        (None, "tuple of 2 gradients"),
    ])
    def test_an_operation_that_gives_no_gradient(self, parts, message):
        x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
        def doubtful(a, b):
            def backward(grad):
                return parts
            return record(a.data + b.data, backward, a, b)
        with pytest.raises(RuntimeError, match="doubtful.*" + message):
            (x * 2 + doubtful(x * 1.0, y)).sum().backward()
        assert x.grad is None and y.grad is None    # nothing is half done

    def test_none_for_a_parent_that_needs_nothing(self):
        x, y = leaf([1.0, 2.0]), Tensor([3.0, 4.0])
        out = record(x.data * y.data, lambda grad: (grad * y.data, None), x, y)
        out.sum().backward()
        assert x.grad.tolist() == [3, 4] and y.grad is None


# dtypes and foreign operands

@pytest.mark.parametrize("scalar", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0), True],
                         ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name, function", [
    ("t + s", lambda t, s: t + s), ("s + t", lambda t, s: s + t), ("t - s", lambda t, s: t - s),
    ("s - t", lambda t, s: s - t), ("t * s", lambda t, s: t * s), ("s * t", lambda t, s: s * t),
    ("t / s", lambda t, s: t / s), ("s / t", lambda t, s: s / t),
])
def test_numbers_keep_gradient_and_dtype(name, function, scalar):
    for dtype in (np.float32, np.float64):
        for data in (3.0, [3.0, 4.0]):
            t = leaf(data, dtype)
            out = function(t, scalar)
            assert isinstance(out, Tensor) and out.dtype == dtype and out.requires_grad
            np.testing.assert_allclose(out.data, function(t.data, float(scalar)), rtol=1e-6)
            out.sum().backward()
            assert t.grad.dtype == dtype and t.grad.any()


@pytest.mark.parametrize("function", [
    lambda t, a: t + a, lambda t, a: a + t, lambda t, a: t - a, lambda t, a: a - t, lambda t, a: t * a,
    lambda t, a: a * t, lambda t, a: t / a, lambda t, a: a / t, lambda t, a: t @ a, lambda t, a: a @ t,
])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_arrays_keep_gradient_and_dtype(function, dtype):
    array = np.array([[1, 2], [3, 4]], dtype)
    t = leaf([[5.0, 6.0], [7.0, 8.0]])
    out = function(t, array)
    assert isinstance(out, Tensor) and out.dtype == np.float32
    np.testing.assert_allclose(out.data, function(t.data, array.astype(np.float32)))
    out.sum().backward()
    assert t.grad.dtype == np.float32 and t.grad.any()


@pytest.mark.parametrize("function", [
    lambda t, a: t + a, lambda t, a: a + t, lambda t, a: t - a, lambda t, a: a - t, lambda t, a: t * a,
    lambda t, a: a * t, lambda t, a: t / a, lambda t, a: a / t, lambda t, a: t @ a, lambda t, a: a @ t,
])
def test_arrays_are_not_rounded_beside_a_float64_tensor(function):
    array = np.full((2, 2), 0.1)
    t = leaf([[1.0, 2.0], [3.0, 4.0]], np.float64)
    np.testing.assert_array_equal(function(t, array).data, function(t.data, array))


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5, np.float64(2.5), np.float32(3), np.int64(2), 0, -1])
def test_powers_keep_dtype(exponent):
    for data in (2.0, [2.0, 3.0]):
        t = leaf(data)
        out = t ** exponent
        out.sum().backward()
        assert out.dtype == t.grad.dtype == np.float32
        np.testing.assert_allclose(out.data, t.data ** float(exponent), rtol=1e-6)
        np.testing.assert_allclose(t.grad, float(exponent) * t.data ** (float(exponent) - 1), rtol=1e-6)


@pytest.mark.parametrize("make", [
    lambda: np.array([0, 1]), lambda: [0, 1], lambda: np.array([True, True, False]), lambda: [True, True, False],
])
@pytest.mark.parametrize("wrap", [lambda index: index, lambda index: (index, 0), lambda index: (index, slice(1))])
def test_an_index_that_changes_before_the_way_back(make, wrap):
    x, index = leaf(np.ones((3, 2))), make()
    out = x[wrap(index)]
    index[:] = index[::-1] if len(index) == 3 else [2, 2]
    out.sum().backward()
    assert x.grad[:, 0].tolist() == [1, 1, 0]


def test_axes_that_change_before_the_way_back():
    x, axes = leaf(np.arange(6).reshape(1, 2, 3)), [2, 0, 1]
    out = x.transpose(axes)
    axes[:] = [0, 1, 2]
    out.backward(out.data)
    np.testing.assert_array_equal(x.grad, x.data)


def test_power_zero_has_gradient_zero_everywhere():
    t = leaf([0.0, 2.0])
    (t ** 0).sum().backward()
    assert t.grad.tolist() == [0, 0]


@pytest.mark.parametrize("function", [
    lambda t: t.mean(), lambda t: t.mean(0), lambda t: t.sqrt(), lambda t: t.mean().sqrt(), lambda t: t.sum() ** 0.5,
    lambda t: t.max().exp(), lambda t: 1 / t.sum(), lambda t: (t - t.mean(-1, keepdims=True)).tanh().log(),
])
def test_no_silent_float64(function):
    t = leaf([[0.0, 2.0]])
    with np.errstate(all="ignore"):
        assert function(t).dtype == np.float32


def test_construction():
    assert Tensor([1, 2]).dtype == np.float32                           # numbers of any kind become float32
    assert Tensor(np.arange(3)).data.tolist() == [0, 1, 2]
    assert Tensor(np.float64(1.5)).dtype == np.float32
    assert Tensor([1.0], dtype=np.float64).dtype == np.float64
    assert Tensor(Tensor([1.0, 2.0])).shape == (2,)
    assert Tensor(3).shape == () and Tensor(3).item() == 3.0
    for dtype in (np.int64, np.int32, bool, np.complex64, object):
        with pytest.raises(TypeError, match="floating-point"):
            Tensor([1], dtype=dtype)
    with pytest.raises(TypeError, match="None"):
        Tensor(None)
    with pytest.raises(TypeError, match="None"):
        Tensor([1.0]) + None
    with pytest.raises(TypeError, match="dtype is None"):
        Tensor([1.0], dtype=None)
    for data in ([None, 1.0], np.array([1.0, None]), "1.5", ["1"], b"1", 1j, np.array([1j]), np.array("2020", "M8[D]")):
        with pytest.raises(TypeError, match="needs real numbers"):
            Tensor(data)
    assert Tensor(10**30).item() == pytest.approx(1e30)                 # object to NumPy, a number all the same
    assert Tensor([Fraction(1, 2), True]).data.tolist() == [0.5, 1.0]
    with pytest.raises(ValueError):
        Tensor([[1.0], [1.0, 2.0]])


def test_memory_is_shared_as_documented():
    array = np.arange(6, dtype=np.float32)
    t = Tensor(array)
    assert t.data is array
    view = t.reshape(2, 3)
    for other in (view, view.transpose(), view.swapaxes(0, 1), t[1:4]):
        assert np.shares_memory(other.data, array)
    for other in (t + 0, t[np.array([0, 1])], t.max(), Tensor(array, dtype=np.float64), t[0]):
        assert not np.shares_memory(other.data, array)


def test_views_of_a_leaf_see_an_update_in_place():
    t = leaf([1.0, 2.0])
    view = t.reshape(2, 1)
    t.data += 1
    assert view.data.tolist() == [[2], [3]]


class TestForeign:
    def test_numpy_functions_refuse(self):
        t = leaf([1.0])
        for function in (np.exp, np.sqrt, np.tanh, np.negative):
            with pytest.raises(TypeError, match="Tensor"):
                function(t)
        with pytest.raises(TypeError):
            np.add(np.ones(1), t)
        with pytest.raises(TypeError):
            np.sum(t)

    def test_in_place_into_an_array_never_loses_the_gradient_silently(self):
        t, array = leaf([1.0]), np.ones(1, np.float32)
        try:
            array += t
        except TypeError:
            return
        assert isinstance(array, Tensor) and array.requires_grad

    def test_turning_into_an_array(self):
        t = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match="gradient"):
            np.asarray(t)
        with no_grad():
            assert np.asarray(t) is not None and np.asarray(t).dtype == np.float32
        assert np.asarray(Tensor([1.0, 2.0])).tolist() == [1, 2]
        assert np.asarray(Tensor([1.0]), dtype=np.float64).dtype == np.float64
        fixed = Tensor([1.0])
        assert not np.shares_memory(np.array(fixed), fixed.data)

    def test_what_does_not_exist(self):
        t, u = Tensor([1.0]), Tensor([2.0])
        for function in (lambda: t < u, lambda: t >= 1, lambda: t // 2, lambda: t % 2, lambda: t & u, lambda: ~t,
                         lambda: 2 ** t, lambda: t << 1):
            with pytest.raises(TypeError):
                function()
        for function in (lambda: t == u, lambda: t != u, lambda: t == 1.0, lambda: 1.0 == t, lambda: t == np.ones(1),
                         lambda: np.ones(1) == t, lambda: np.float32(1) == t, lambda: t is not None and t == None,
                         lambda: t in [u], lambda: [u].index(t)):
            with pytest.raises(TypeError, match="cannot be compared.*a is b"):
                function()
        with pytest.raises(TypeError, match="item assignment"):
            t[0] = 1.0
        with pytest.raises(TypeError, match="number"):
            t ** u
        with pytest.raises(TypeError, match="number"):
            t ** np.ones(1)
        with pytest.raises(IndexError):
            t[Tensor([0.0])]

    def test_a_tensor_is_itself_only(self):
        t, u = Tensor([1.0]), Tensor([1.0])
        assert len({t, u, t}) == 2 and {t: 1, u: 2}[u] == 2 and t in {t} and u not in {t} and t in [t, u]
        assert copy.deepcopy([t, t])[0].data.tolist() == [1]

    def test_truth(self):
        assert Tensor(1.0) and not Tensor(0.0) and Tensor([[2.0]])
        for several in (Tensor([1.0, 2.0]), Tensor([0.0, 0.0])):
            with pytest.raises(ValueError, match="ambiguous"):
                bool(several)

    def test_size_and_iteration(self):
        t = leaf([[1.0, 2.0], [3.0, 4.0]])
        assert (t.shape, t.ndim, t.size, len(t)) == ((2, 2), 2, 4, 2)
        first, second = t
        (first * second).sum().backward()
        assert t.grad.tolist() == [[3, 4], [1, 2]]
        for function in (len, iter, list):
            with pytest.raises(TypeError):
                function(Tensor(1.0))

    def test_item(self):
        assert type(Tensor([[2.5]]).item()) is float
        with pytest.raises(ValueError):
            Tensor([1.0, 2.0]).item()

    def test_repr(self):
        assert repr(Tensor([1.0, 2.0])) == "Tensor([1., 2.])"
        assert repr(leaf([1.0], np.float64)) == "Tensor([1.], dtype=float64, requires_grad=True)"


def test_shapes_that_do_not_fit_are_named():
    for a, b in [((2, 3), (4, 5)), ((2, 2, 3), (4, 5)), ((3,), (4,)), ((), (3,)), ((2, 3, 4), (3, 4, 5))]:
        with pytest.raises(ValueError) as caught:
            Tensor(np.ones(a)) @ Tensor(np.ones(b))
        assert str(a) in str(caught.value) and str(b) in str(caught.value)
    with pytest.raises(ValueError, match="broadcast"):
        Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueError):
        Tensor([1.0, 2.0]).reshape(3)
    with pytest.raises(IndexError):
        Tensor([1.0, 2.0])[5]


def test_empty_tensors():
    a, b = leaf(np.ones((2, 0))), leaf(np.ones((0, 3)))
    out = a @ b
    assert out.data.tolist() == [[0, 0, 0], [0, 0, 0]]
    out.sum().backward()
    assert a.grad.shape == (2, 0) and b.grad.shape == (0, 3)
    c = leaf(np.ones((0, 2, 3)))
    out = c @ leaf(np.ones((3, 4)))
    out.backward(np.ones((0, 2, 4)))
    assert out.shape == (0, 2, 4) and c.grad.shape == (0, 2, 3)
    assert leaf(np.ones((2, 0))).sum(axis=1).data.tolist() == [0, 0]
    assert leaf(np.ones((0, 3))).mean(axis=1).shape == (0,)


def test_ties_share_the_gradient_of_max():
    x = leaf([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    x.max(axis=1).backward([1, 3])
    np.testing.assert_allclose(x.grad, [[0, 0.5, 0.5], [1, 1, 1]])
    y = leaf([5.0, 5.0, 1.0, 5.0])
    y.max().backward()
    np.testing.assert_allclose(y.grad, [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


def test_a_batch_times_one_matrix_is_one_product(monkeypatch):
    seen = []
    monkeypatch.setattr(module.np, "dot", lambda a, b: seen.append((a.shape, b.shape)) or a @ b)
    Tensor(np.ones((2, 3, 4))) @ Tensor(np.ones((4, 5)))
    assert seen == [((6, 4), (4, 5))]


def test_a_frozen_operand_costs_no_product():
    frozen, x = Tensor(np.ones((3, 3))), leaf(np.ones((2, 3)))
    assert (x @ frozen)._backward(np.ones((2, 3), np.float32))[1] is None
    assert (frozen @ x.transpose())._backward(np.ones((3, 2), np.float32))[0] is None


# no_grad

class TestNoGrad:
    def test_nesting_and_exceptions(self):
        assert is_grad_enabled()
        with no_grad():
            with no_grad():
                assert not is_grad_enabled()
            assert not is_grad_enabled()
            with pytest.raises(KeyError):
                with no_grad():
                    raise KeyError
            assert not is_grad_enabled()
        assert is_grad_enabled()

    def test_one_object_entered_twice(self):
        quiet = no_grad()
        with quiet:
            with quiet:
                assert not is_grad_enabled()
            assert not is_grad_enabled()
        assert is_grad_enabled()

    def test_decorator(self):
        @no_grad()
        def double(x, depth):
            """Twice x."""
            assert not is_grad_enabled()
            return double(x, depth - 1) if depth else x * 2
        x = leaf([1.0])
        assert not double(x, 3).requires_grad and is_grad_enabled()
        assert (double.__name__, double.__doc__) == ("double", "Twice x.")
        with pytest.raises(TypeError):
            double()
        assert is_grad_enabled()

    def test_each_thread_has_its_own(self):
        x, found = leaf([1.0]), {}
        inside, leave = threading.Event(), threading.Event()
        def other():
            found["start"] = is_grad_enabled()
            with no_grad():
                inside.set()
                leave.wait(10)
                found["inside"] = (x * 2).requires_grad
        thread = threading.Thread(target=other)
        with no_grad():
            thread.start()
            assert inside.wait(10)
        assert is_grad_enabled() and (x * 2).requires_grad
        leave.set()
        thread.join()
        assert found == {"start": True, "inside": False}

    def test_generators_that_interleave(self):
        def steps():
            for _ in range(2):
                with no_grad():
                    value = is_grad_enabled()
                yield value
        a, b = steps(), steps()
        assert [next(a), next(b), next(a), next(b)] == [False] * 4
        assert is_grad_enabled()

    def test_nothing_is_held(self):
        x = leaf(np.ones(4))
        with no_grad():
            y = x * 2
            watch = weakref.ref(y.data)
            z = y + 1
        del y
        gc.collect()
        assert watch() is None and z.data.tolist() == [3] * 4

    def test_a_constant_result_holds_nothing_either(self):
        y = Tensor(np.ones(4)) * 2
        assert y._parents == () and y._backward is None


# Tools

class TestCheckGradients:
    @staticmethod
    def wrong_at(number, index, off):
        def function(a, b):
            def backward(grad):
                parts = [grad * b.data, grad * a.data]
                parts[number][index] += off
                return tuple(parts)
            return record(a.data * b.data, backward, a, b)
        return function

    def test_names_input_and_index_and_both_values(self):
        a, b = normal(2, 3), normal(2, 3, seed=1)
        with pytest.raises(AssertionError, match=r"Input 1, index \(1, 2\)") as caught:
            check_gradients(self.wrong_at(1, (1, 2), 0.25), a, b)
        found, expected = map(float, re.search(r"gives ([^,]+), .* give (.+)\.$", str(caught.value)).groups())
        assert found - expected == pytest.approx(0.25, abs=1e-6)

    def test_returns_the_largest_error(self):
        a, b = normal(2, 3), normal(2, 3, seed=1)
        assert check_gradients(self.wrong_at(0, (0, 1), 3e-6), a, b) == pytest.approx(3e-6, rel=0.2)
        assert check_gradients(self.wrong_at(0, (0, 1), 0.5), a, b, tolerance=1.0) > 0.1

    def test_a_missing_gradient_and_nan_fail(self):
        with pytest.raises(AssertionError, match="Input 1"):
            check_gradients(lambda a, b: a + Tensor(b.data, dtype=np.float64), normal(2), normal(2, seed=1))
        with pytest.raises(AssertionError, match="nan"):
            check_gradients(lambda a: record(a.data, lambda grad: (grad * np.nan,), a), normal(2))

    def test_an_input_that_does_not_matter(self):
        assert check_gradients(lambda a, b: a * 2, normal(2), normal(3)) < 1e-8

    def test_float32_inside_is_reported(self):
        with pytest.raises(AssertionError, match="float32"):
            check_gradients(lambda a: record(a.data.astype(np.float32), lambda grad: (grad,), a), normal(2))

    def test_leaves_its_inputs_alone(self):
        a = normal(2, 2)
        before = a.copy()
        check_gradients(lambda x: x * x, a)
        check_gradients(lambda x: x.reshape(-1), a)                     # a view of the input
        np.testing.assert_array_equal(a, before)
        assert check_gradients(lambda x: x * x, np.array([1, 2])) < 1e-8     # integers become float64

    def test_derivatives_of_any_size(self):
        assert check_gradients(lambda x: x * 1e6, normal(3)) < 1e-5
        assert check_gradients(lambda x: x.exp(), np.array([10.0, -10.0])) < 1e-5

    def test_epsilon(self):
        # the central difference of x**3 at 1 is 3 + epsilon**2; 3 is above 1, so the error is relative
        weight = abs(np.random.default_rng(0).standard_normal(1)[0])
        error = check_gradients(lambda x: x * x * x, np.ones(1), epsilon=1e-2, tolerance=1.0)
        assert error == pytest.approx(1e-4 * weight / max(1, 3.0001 * weight), rel=1e-6)


def test_add_to_class():
    class Box:
        pass

    @add_to_class(Box)
    def sum(self):
        return 7

    assert Box().sum() == 7 and Box.sum.__qualname__.endswith("Box.sum")
    assert sum is builtins.sum                                          # outside the class the name is as before
    assert module.sum([1, 2]) == 3 and module.max(1, 2) == 2            # the module's own builtins survive


def test_as_tensor():
    t = Tensor([1.0], dtype=np.float64)
    assert as_tensor(t, Tensor([1.0])) is t
    assert as_tensor(2, t).dtype == np.float64 and not as_tensor(2, t).requires_grad


def test_a_small_network_learns():
    """All together: tanh regression by gradient descent reaches a fraction of its first loss, in float32."""
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 64, dtype=np.float32)[:, None]
    y = np.sin(2 * x)
    w1, b1 = leaf(rng.standard_normal((1, 16))), leaf(np.zeros(16))
    w2, b2 = leaf(rng.standard_normal((16, 1)) * 0.3), leaf(np.zeros(1))
    losses = []
    for _ in range(300):
        loss = (((x @ w1 + b1).tanh() @ w2 + b2 - y) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        for p in (w1, b1, w2, b2):
            assert p.grad.dtype == np.float32
            p.data -= 0.1 * p.grad
            p.grad = None
    assert losses[-1] < 0.1 * losses[0]
