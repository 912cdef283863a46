"""The KV cache: its contract, the behaviours that real caches got wrong, a random walk beside a list, and a model."""
import copy
import gc
import subprocess
import sys
import warnings
from functools import partial, partialmethod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from tinytorch.core.tensor import Tensor, no_grad
from tinytorch.generation.generate import first_difference, generate
from tinytorch.generation.kv_cache import (LONG, CacheFullError, ExactCache, KVCache, LayerCache, Slots, cache_bytes,
                                           enable_kv_cache)
from tinytorch.models.transformer import Transformer, TransformerConfig, generate_naive

B, LAYERS, HEADS, KV_HEADS, D, SLOTS = 2, 3, 4, 2, 6, 8


def make(batch_size=B, max_seq_len=SLOTS, num_layers=LAYERS, **kw):
    return KVCache(batch_size, max_seq_len, num_layers, HEADS, D, num_kv_heads=KV_HEADS, **kw)


def kv(tokens, seed=0, batch_size=B, dtype=np.float32):
    """A key and a value (B, Hkv, T, D)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, batch_size, KV_HEADS, tokens, D)).astype(dtype)


def feed(cache, tokens, seed=0, positions=None, advance=True):
    """Update every layer, each with numbers of its own; return what was stored, one (key, value) for each layer."""
    stored = [kv(tokens, (seed, layer), cache.batch_size) for layer in range(len(cache.layers))]
    for layer, (key, value) in enumerate(stored):
        cache.update(layer, key, value, positions)
    if advance:
        cache.advance(tokens)
    return stored


def snapshot(cache):
    """All that can be seen of a cache, copied."""
    seen = [cache.seq_pos]
    for i, layer in enumerate(cache.layers):
        seen += [layer.size, layer.length, layer.padded, layer.positions.tolist(), layer.next_positions(2).tolist()]
        seen += [array.data.tolist() for array in (*cache.get(i), *layer.read())]
    return seen


def equal(pair, key, value):
    for found, expected in zip(pair, (key, value)):
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.data, expected)


# Filling and reading

def test_the_current_token_is_part_of_what_its_query_sees():
    """Pitfall 1, from the very first token on."""
    cache = make()
    key, value = kv(SLOTS)
    for t in range(SLOTS):
        for layer in range(LAYERS):
            equal(cache.update(layer, key[:, :, t:t + 1], value[:, :, t:t + 1]), key[:, :, :t + 1], value[:, :, :t + 1])
        cache.advance()
    assert cache.seq_pos == SLOTS


def test_slot_i_holds_token_i_and_every_layer_its_own():
    """Pitfall 2."""
    cache = make()
    first, second = feed(cache, 5, seed=1), feed(cache, 2, seed=2)
    for layer in range(LAYERS):
        equal(cache.get(layer), *np.concatenate([first[layer], second[layer]], axis=3))


@pytest.mark.parametrize("chunks", [[8], [1] * 8, [3, 1, 4], [5, 3], [1, 6, 1]])
def test_positions_go_on_whatever_the_chunks(chunks):
    """Pitfalls 3 and 5."""
    cache = make()
    key, value = kv(8)
    start = 0
    for tokens in chunks:
        assert cache.next_positions(tokens).tolist() == [list(range(start, start + tokens))] * B
        part = np.s_[:, :, start:start + tokens]
        for layer in range(LAYERS):
            cache.update(layer, key[part], value[part])
        cache.advance(tokens)
        start += tokens
    for layer in range(LAYERS):
        equal(cache.get(layer), key, value)
        assert cache.layers[layer].positions.tolist() == [list(range(8))] * B
        assert not cache.layers[layer].padded


def test_a_key_of_zeros_is_a_token():
    """Pitfall 7."""
    cache = make()
    zeros = np.zeros((B, KV_HEADS, 3, D), np.float32)
    for layer in range(LAYERS):
        keys, values = cache.update(layer, zeros, zeros)
        assert keys.shape == values.shape == zeros.shape
    cache.advance(3)
    assert cache.seq_pos == 3 and cache.layers[0].length == 3


def test_get_gives_committed_tokens_only_and_changes_nothing():
    cache = make()
    assert [t.shape for t in cache.get(0)] == [(B, KV_HEADS, 0, D)] * 2
    stored = feed(cache, 3)
    cache.update(1, *kv(2, 5))
    before = snapshot(cache)
    for _ in range(2):
        equal(cache.get(1), *stored[1])
    assert snapshot(cache) == before
    assert cache.layers[1].size == 5


def test_tensors_and_arrays_are_taken_and_tensors_come_back():
    key, value = kv(3)
    array, tensor, lists = make(), make(), make()
    array.update(0, key, value)
    tensor.update(0, Tensor(key), Tensor(value))
    lists.update(0, key.tolist(), value.tolist())
    assert snapshot(array) == snapshot(tensor) == snapshot(lists)
    keys, values = array.layers[0].read()
    assert isinstance(keys, Tensor) and isinstance(values, Tensor)
    assert not keys.requires_grad and not values.requires_grad


def test_the_input_is_copied():
    cache = make()
    key, value = kv(2)
    keys, values = (array.copy() for array in (key, value))
    cache.update(0, key, value)
    key[:], value[:] = 7, 8
    equal(cache.layers[0].read(), keys, values)


def test_keys_and_values_of_the_cache_itself_can_be_appended():
    cache = make(num_layers=1)
    (key, value), = feed(cache, 3)
    equal(cache.update(0, *cache.get(0)), np.concatenate([key, key], 2), np.concatenate([value, value], 2))


# Staged and committed

@pytest.mark.parametrize("policy", ["exact", "windowed"])
@pytest.mark.parametrize("change", ["trim", "reset", "reorder"])
def test_an_interrupted_change_is_done_or_leaves_an_empty_cache(policy, change, monkeypatch):
    cache, twin = (make(max_seq_len=20, layer_cache={"exact": ExactCache, "windowed": windowed}[policy]) for _ in range(2))
    for each in (cache, twin):
        for seed in range(3):
            feed(each, 4, seed)
    arguments = {"trim": [2], "reset": [], "reorder": [[1, 0]]}[change]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        def interrupted(*args):
            raise KeyboardInterrupt
        patch.setattr(cache.layers[1], change, interrupted)     # the layer before has changed, the one behind has not
        getattr(cache, change)(*arguments)
    if change == "trim":
        twin.trim(2)
    else:
        twin.reset()
    assert cache.seq_pos == twin.seq_pos
    for layer in range(LAYERS):
        equal(cache.get(layer), *(part.data for part in twin.get(layer)))
    for each in (cache, twin):
        feed(each, 2, seed=9)
    assert cache.trim(0) == 0 and snapshot(cache) == snapshot(twin)


def test_the_next_forward_overwrites_what_a_failed_one_left():
    cache = make()
    first = feed(cache, 3)
    for layer in range(2):                                   # the last layer was never reached
        cache.update(layer, *kv(4, 50 + layer))
    second = feed(cache, 2, seed=9)
    assert cache.seq_pos == 5
    for layer in range(LAYERS):
        equal(cache.get(layer), *np.concatenate([first[layer], second[layer]], axis=3))
        assert cache.layers[layer].positions.tolist() == [[0, 1, 2, 3, 4]] * B


def test_positions_of_a_failed_forward_are_forgotten():
    cache = make()
    feed(cache, 2)
    cache.update(0, *kv(3), positions=np.full((B, 3), -1))   # padding that is never committed
    assert cache.layers[0].padded
    assert cache.next_positions(2).tolist() == [[2, 3]] * B
    cache.update(0, *kv(2))
    assert not cache.layers[0].padded
    assert cache.layers[0].positions.tolist() == [[0, 1, 2, 3]] * B


def test_a_second_update_replaces_what_the_layer_had_staged():
    cache = make()
    cache.update(0, *kv(2, 1))
    key, value = kv(3, 2)
    equal(cache.update(0, key, value), key, value)
    assert cache.layers[0].size == 3


def test_a_part_of_what_is_staged_can_be_committed():
    cache = make()
    stored = feed(cache, 4, advance=False)
    cache.advance(3)
    assert cache.seq_pos == 3
    for layer in range(LAYERS):
        equal(cache.get(layer), stored[layer][0][:, :, :3], stored[layer][1][:, :, :3])
        assert cache.layers[layer].size == 4                 # one is still staged
    cache.advance()
    assert cache.seq_pos == 4


@pytest.mark.parametrize("stage", [[0, 0, 0], [2, 0, 0], [2, 2, 1], [1, 2, 2]])
def test_advance_past_what_a_layer_has_staged_changes_nothing(stage):
    cache = make()
    feed(cache, 3)
    for layer, tokens in enumerate(stage):
        if tokens:
            cache.update(layer, *kv(tokens))
    before = snapshot(cache)
    with pytest.raises(ValueError, match="staged") as error:
        cache.advance(2)
    assert not isinstance(error.value, CacheFullError)
    assert snapshot(cache) == before
    cache.advance(min(stage))
    assert cache.seq_pos == 3 + min(stage)


def test_advance_past_the_end_changes_nothing():
    cache = make()
    feed(cache, 3)
    feed(cache, 2, advance=False)
    before = snapshot(cache)
    with pytest.raises(CacheFullError):
        cache.advance(SLOTS - 2)
    assert snapshot(cache) == before


@pytest.mark.parametrize("slots", [(8, 4), (4, 8)])
def test_a_cache_ends_where_its_smallest_layer_ends(slots):
    left = iter(slots)
    cache = make(num_layers=2, layer_cache=lambda batch, _, *sizes, dtype: ExactCache(batch, next(left), *sizes, dtype=dtype))
    assert cache.max_seq_len == 4
    for staged in (False, True):
        if staged:
            feed(cache, 4, advance=False)
        before = snapshot(cache)
        with pytest.raises(CacheFullError):             # also where not all of it is staged: the end comes first
            cache.advance(5)
        assert snapshot(cache) == before
    cache.advance(4)
    assert cache.seq_pos == 4


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", None])
def test_advance_and_trim_take_whole_numbers(wrong):
    cache = make()
    feed(cache, 3)
    feed(cache, 2, advance=False)
    before = snapshot(cache)
    with pytest.raises(ValueError):
        cache.advance(wrong)
    with pytest.raises(ValueError):
        cache.trim(wrong)
    with pytest.raises(ValueError):
        cache.layers[0].trim(wrong)
    assert snapshot(cache) == before


@pytest.mark.parametrize("change", ["trim", "reset", "copy", "reorder", "save", "load"])
def test_what_is_only_staged_is_dropped(change, tmp_path):
    cache = make()
    stored = feed(cache, 3)
    cache.update(0, *kv(2))
    cache.update(1, *kv(2))
    kept = 3
    if change == "trim":
        assert cache.trim(0) == 0
    elif change == "reset":
        cache.reset()
        kept = 0
    elif change == "copy":
        equal(cache.copy().layers[0].read(), *stored[0])
    elif change == "reorder":
        cache.reorder(range(B))
    else:
        cache.save(tmp_path / "cache")
        if change == "load":
            cache = KVCache.load(tmp_path / "cache")
    assert cache.seq_pos == kept
    assert [layer.size for layer in cache.layers] == [kept] * LAYERS
    for layer in range(LAYERS):
        equal(cache.layers[layer].read(), *stored[layer][:, :, :, :kept])
    with pytest.raises(ValueError):
        cache.advance()


# Errors leave everything as it was (pitfalls 10 and 17)

WRONG_SHAPES = {
    "larger batch": (B + 1, KV_HEADS, 2, D), "batch of one": (1, KV_HEADS, 2, D), "query heads": (B, HEADS, 2, D),
    "one head": (B, 1, 2, D), "narrow": (B, KV_HEADS, 2, D - 1), "width one": (B, KV_HEADS, 2, 1), "no tokens": (B, KV_HEADS, 0, D),
    "heads and tokens swapped": (B, 3, KV_HEADS, D), "rank 3": (KV_HEADS, 2, D), "rank 5": (1, B, KV_HEADS, 2, D), "scalar": (),
}


def ready():
    """A cache with committed tokens and some that are staged in two of three layers."""
    cache = make()
    feed(cache, 3)
    cache.update(0, *kv(2, 20))
    cache.update(1, *kv(4, 21))
    return cache


@pytest.mark.parametrize("shape", WRONG_SHAPES.values(), ids=WRONG_SHAPES)
@pytest.mark.parametrize("which", ["key", "value", "both"])
def test_wrong_shapes_are_refused_and_nothing_is_broadcast(shape, which):
    cache = ready()
    before = snapshot(cache)
    good, bad = kv(2)[0], np.ones(shape, np.float32)
    key, value = {"key": (bad, good), "value": (good, bad), "both": (bad, bad)}[which]
    for layer in range(LAYERS):
        with pytest.raises(ValueError, match="num_kv_heads"):
            cache.update(layer, key, value)
    assert snapshot(cache) == before


def test_key_and_value_of_different_lengths_are_refused():
    cache = ready()
    before = snapshot(cache)
    with pytest.raises(ValueError, match="same T"):
        cache.update(0, kv(2)[0], kv(1)[0])
    assert snapshot(cache) == before


@pytest.mark.parametrize("layer_idx", [-1, LAYERS, 99, True, False, 0.0, 1.0, None, "0", np.float32(0), slice(0, 1), [0]],
                         ids=repr)
def test_wrong_layers_are_refused(layer_idx):
    cache = ready()
    before = snapshot(cache)
    with pytest.raises(ValueError, match="layer_idx"):
        cache.update(layer_idx, *kv(1))
    with pytest.raises(ValueError, match="layer_idx"):
        cache.get(layer_idx)
    assert snapshot(cache) == before
    cache.update(np.int64(0), *kv(1))                        # a NumPy integer is one


def test_overflow_is_refused_before_anything_is_written():
    cache = ready()
    before = snapshot(cache)
    for layer in range(LAYERS):
        with pytest.raises(CacheFullError, match="3 of 8"):
            cache.update(layer, *kv(SLOTS - 3 + 1))
    assert snapshot(cache) == before
    feed(cache, SLOTS - 3, seed=4)                           # exactly full is fine
    full = snapshot(cache)
    for layer in range(LAYERS):
        with pytest.raises(CacheFullError):
            cache.update(layer, *kv(1))
    assert snapshot(cache) == full
    assert issubclass(CacheFullError, ValueError)


@pytest.mark.parametrize("positions", [
    np.zeros((B, 3), int), np.zeros((B + 1, 2), int), np.zeros(2, int), np.zeros((1, 2), int), np.zeros((B, 2)),
    np.zeros((B, 2), bool), 3, np.zeros((B, 1, 2), int), [["a", "b"]] * B], ids=str)
def test_wrong_positions_are_refused(positions):
    cache = ready()
    before = snapshot(cache)
    for layer in range(LAYERS):
        with pytest.raises(ValueError, match="positions"):
            cache.update(layer, *kv(2), positions=positions)
    assert snapshot(cache) == before


def test_ragged_lists_are_refused_with_a_sentence():
    cache = make(batch_size=1, num_layers=1)
    good, ragged = kv(2, batch_size=1), [[[[0.0] * D] * 2, [[0.0] * D]]]
    for arguments in ((ragged, good[1]), (good[0], ragged), (*good, [[0, 1], [2]])):
        with pytest.raises(ValueError, match="lists of different lengths"):
            cache.update(0, *arguments)
    with pytest.raises(ValueError, match="lists of different lengths"):
        make().reorder([[0], [1, 0]])
    assert cache.layers[0].size == 0


def test_unsigned_positions_do_not_wrap_to_padding():
    cache = make(batch_size=1, num_layers=1)
    for wrong in (2**63, 2**64 - 1):
        with pytest.raises(ValueError, match=str(wrong)):
            cache.update(0, *kv(2, batch_size=1), positions=np.array([[0, wrong]], np.uint64))
    assert cache.layers[0].size == 0
    cache.update(0, *kv(2, batch_size=1), positions=np.array([[0, 1]], np.uint64))
    assert cache.layers[0].positions.tolist() == [[0, 1]]


@pytest.mark.parametrize("dtype", [complex, bool, object, "U1"])
def test_what_is_no_number_is_refused(dtype):
    cache = ready()
    before = snapshot(cache)
    for key, value in ((kv(2)[0].astype(dtype), kv(2)[1]), (kv(2)[0], kv(2)[1].astype(dtype))):
        with pytest.raises(ValueError, match="dtype"):
            cache.update(0, key, value)
    assert snapshot(cache) == before


def test_a_cast_that_warns_changes_nothing():
    """Numbers too large for float16 make NumPy warn; with warnings as errors that is a failed update like any other."""
    cache = make(dtype=np.float16)
    for layer in range(LAYERS):
        cache.update(layer, *kv(2, layer))
    before = snapshot(cache)
    huge = np.full((B, KV_HEADS, 1, D), 1e6, np.float32)
    for key, value in ((huge, kv(1)[1]), (kv(1)[0], huge)):
        with pytest.raises(RuntimeWarning):
            cache.update(0, key, value)
    assert snapshot(cache) == before


@pytest.mark.parametrize("which", [0, 1])
def test_inputs_that_need_a_gradient_are_refused(which):
    cache = ready()
    before = snapshot(cache)
    pair = [Tensor(array) for array in kv(2)]
    pair[which] = Tensor(pair[which].data, requires_grad=True)
    for layer in range(LAYERS):
        with pytest.raises(RuntimeError, match=r"for inference only.*no_grad\(\)"):
            cache.update(layer, *pair)
    assert snapshot(cache) == before
    with no_grad():
        keys, values = cache.update(0, *pair)
    assert not keys.requires_grad and not values.requires_grad


def test_a_forward_with_gradients_is_refused():
    model = lively_model()
    cache = KVCache.for_model(model)
    with pytest.raises(RuntimeError, match=r"no_grad\(\)"):
        model([[1, 2, 3]], cache=cache)
    assert cache.seq_pos == 0 and cache.layers[0].size == 0


@pytest.mark.parametrize("name", ["batch_size", "max_seq_len", "num_layers", "num_heads", "head_dim", "num_kv_heads"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, 2.0, True, "2"])
def test_impossible_sizes_are_refused(name, wrong):
    sizes = dict(batch_size=1, max_seq_len=4, num_layers=2, num_heads=4, head_dim=8, num_kv_heads=2)
    with pytest.raises(ValueError, match=name):
        KVCache(**{**sizes, name: wrong})


def test_heads_that_cannot_be_shared_and_wrong_dtypes_are_refused():
    with pytest.raises(ValueError, match="multiple"):
        KVCache(1, 4, 2, 4, 8, num_kv_heads=3)
    with pytest.raises(ValueError, match="multiple"):
        KVCache(1, 4, 2, 4, 8, num_kv_heads=8)
    wrong = [np.int8, bool, complex, None, object, "S4", "no type", 3]
    if np.dtype(np.longdouble).itemsize > 8:
        wrong.append(np.longdouble)                          # safetensors cannot hold it
    for dtype in wrong:
        for call in (make, partial(ExactCache, 1, 4, 2, 4), partial(cache_bytes, 1, 4, 2, 4, 8)):
            with pytest.raises(ValueError, match="dtype is .*float32"):
                call(dtype=dtype)
    with pytest.raises(ValueError, match="max_seq_len"):
        ExactCache(1, None, 2, 4)
    with pytest.raises(TypeError, match="layer_cache"):
        make(layer_cache=lambda *sizes, dtype: object())


# State

def test_reset_is_a_new_beginning_without_touching_the_buffers():
    """Pitfall 9."""
    cache, fresh = make(), make()
    feed(cache, 4, seed=1, positions=np.array([[-1, -1, 0, 1], [0, 1, 2, 3]]))
    feed(cache, 2, seed=2)
    keys = cache.layers[0].read()[0].data
    before = keys.copy()
    cache.reset()
    np.testing.assert_array_equal(keys, before)              # nothing was cleared: it takes no time
    assert snapshot(cache) == snapshot(fresh)
    feed(cache, 3, seed=3)
    feed(fresh, 3, seed=3)
    assert snapshot(cache) == snapshot(fresh)


def test_trim():
    """Pitfall 12: nothing, some, all, too many; never growing."""
    cache = make()
    stored = feed(cache, 5)
    assert cache.trim(0) == 0 and cache.seq_pos == 5
    assert cache.trim(2) == 2 and cache.seq_pos == 3
    for layer in range(LAYERS):
        equal(cache.get(layer), stored[layer][0][:, :, :3], stored[layer][1][:, :, :3])
    more = feed(cache, 2, seed=6)
    for layer in range(LAYERS):
        equal(cache.get(layer), *np.concatenate([stored[layer][:, :, :, :3], more[layer]], axis=3))
        assert cache.layers[layer].positions.tolist() == [[0, 1, 2, 3, 4]] * B
    assert cache.trim(99) == 5 and cache.seq_pos == 0
    assert cache.trim(1) == 0 and cache.seq_pos == 0
    assert snapshot(cache) == snapshot(make())


def test_rows_go_on_from_the_largest_position_of_all_their_heads():
    class PerHead(ExactCache):
        """Its second head shows every token three positions later."""
        positions = property(lambda self: np.stack([super(PerHead, self).positions, super(PerHead, self).positions + 3], axis=1))
    layer = PerHead(B, SLOTS, KV_HEADS, D)
    layer.update(*kv(3), positions=np.array([[-1, 0, 1], [2, 1, 0]]))
    assert layer.next_positions().tolist() == [[5], [6]] and layer.next_positions(1, except_last=2).tolist() == [[3], [6]]


def test_a_layer_trims_no_more_than_it_has_seen():
    layer = make().layers[0]
    layer.update(*kv(3))
    assert layer.trim(5) == 3 and layer.size == layer.length == 0
    assert layer.trim(1) == 0 and layer.size == 0
    layer.update(*kv(2))
    with pytest.raises(ValueError, match="n is -1"):
        layer.trim(-1)
    assert layer.size == 2 and layer.positions.tolist() == [[0, 1]] * B


@pytest.mark.parametrize("refusing", range(LAYERS))
def test_a_trim_that_one_layer_refuses_changes_no_layer(refusing):
    class Refuses(ExactCache):
        def check_trim(self, n):
            if n > 2:
                raise ValueError("what that needs is dropped")
            return super().check_trim(n)
    kinds = iter([Refuses if layer == refusing else ExactCache for layer in range(LAYERS)])
    cache = make(layer_cache=lambda *sizes, **options: next(kinds)(*sizes, **options))
    feed(cache, 4)
    with pytest.raises(ValueError, match="is dropped"):
        cache.trim(3)
    assert cache.seq_pos == 4 and [layer.size for layer in cache.layers] == [4] * LAYERS
    assert cache.trim(2) == 2 and [layer.size for layer in cache.layers] == [2] * LAYERS


def test_trim_of_padding():
    cache = make()
    feed(cache, 2)
    feed(cache, 2, positions=np.array([[2, 3], [-1, 2]]))
    assert cache.layers[0].padded and cache.next_positions().tolist() == [[4], [3]]
    cache.trim(1)
    assert cache.layers[0].padded and cache.next_positions().tolist() == [[3], [2]]
    cache.trim(1)
    assert not cache.layers[0].padded and cache.next_positions().tolist() == [[2], [2]]


def test_padding_is_not_forgotten_when_a_position_fits_its_slot_again():
    cache = make()
    feed(cache, 2, positions=np.full((B, 2), -1))
    feed(cache, 2, positions=np.array([[2, 3]] * B))
    assert cache.layers[0].padded and cache.next_positions().tolist() == [[4]] * B


@pytest.mark.parametrize("positions", [[[0, 2, 5]] * 2, [[0, 1, 2], [3, 4, 5]], [[0, 2, 1]] * 2], ids=str)
def test_positions_that_do_not_count_on_need_a_mask(positions):
    """Not only padding does: also gaps, other starts, another order."""
    cache = make()
    feed(cache, 3, positions=np.array(positions))
    after = [[max(row) + 1] for row in positions]
    for change in (lambda: None, lambda: cache.reorder(range(B)), lambda: (feed(cache, 1), cache.trim(1))):
        change()
        assert [layer.padded for layer in cache.layers] == [True] * LAYERS
        assert cache.next_positions().tolist() == after
    cache.reset()
    assert not cache.layers[0].padded


@pytest.mark.parametrize("position", [1, 5])
def test_a_token_that_comes_late_or_behind_a_gap_needs_a_mask(position):
    cache = make()
    feed(cache, 3)
    feed(cache, 1, positions=np.full((B, 1), position))
    assert cache.layers[0].padded and cache.next_positions().tolist() == [[max(3, position + 1)]] * B


def test_views_stay_right_while_going_on():
    """Pitfall 11."""
    cache = make()
    held = []
    for t in range(SLOTS):
        for layer in range(LAYERS):
            held.append(cache.update(layer, *kv(1, (t, layer))))
        cache.advance()
        held.append(cache.get(t % LAYERS))
        if t == 0:
            copies = []
        copies += [[array.data.copy() for array in pair] for pair in held[len(copies):]]
    for pair, expected in zip(held, copies):
        equal(pair, *expected)


def test_the_exact_cache_hands_out_views():
    cache = make()
    feed(cache, 3)
    for first, again in zip(cache.get(0), cache.get(0)):
        assert np.shares_memory(first.data, again.data)


def test_keys_and_long_values_lie_so_that_products_read_neighbours():
    keys, values = Slots(2, 16, 3, 4).read(9)
    assert keys.shape == values.shape == (2, 3, 9, 4)
    assert keys.strides[2] == keys.itemsize and values.strides[3] == values.itemsize
    keys, values = Slots(2, LONG, 3, 4).read(9)
    assert keys.shape == values.shape == (2, 3, 9, 4)
    assert keys.strides[2] == keys.itemsize and values.strides[2] == values.itemsize


def test_a_long_cache_does_what_a_short_one_does(tmp_path):
    """Its values lie otherwise in memory, which nobody may notice."""
    seen = []
    for slots in (SLOTS, LONG):
        cache = make(max_seq_len=slots)
        feed(cache, 5, seed=1, positions=[[-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
        cache.trim(1)
        feed(cache, 2, seed=2)
        cache.reorder([1, 1])
        cache.save(tmp_path / "cache")
        seen.append([snapshot(each) for each in (cache, cache.copy(), KVCache.load(tmp_path / "cache"))])
    assert seen[0] == seen[1]
    assert seen[0][0] == seen[0][1] == seen[0][2]


def test_positions_and_copies_are_their_own():
    cache = make()
    feed(cache, 3)
    positions, twin = cache.layers[0].positions, cache.copy()
    nexts, state = cache.next_positions(2), cache.layers[0].state()
    before, kept_state = snapshot(twin), copy.deepcopy(state)
    positions += 100
    nexts += 100
    assert cache.layers[0].positions.tolist() == [[0, 1, 2]] * B
    assert cache.next_positions(2).tolist() == [[3, 4]] * B
    feed(cache, 2, seed=8)
    cache.reorder([1, 1])
    cache.trim(4)
    feed(cache, 3, seed=9)
    assert snapshot(twin) == before
    for name, array in kept_state.items():
        np.testing.assert_array_equal(state[name], array)
    kept = snapshot(cache)
    twin.reset()
    feed(twin, 5, seed=10)
    assert snapshot(cache) == kept


def test_a_stored_prompt_can_be_used_twice():
    """Pitfall 11."""
    prompt = make()
    feed(prompt, 4)
    first, second = prompt.copy(), prompt.copy()
    feed(first, 3, seed=1)
    feed(second, 3, seed=1)
    assert snapshot(first) == snapshot(second)
    assert prompt.seq_pos == 4


def test_pythons_own_deepcopy_works_too():
    cache = make()
    feed(cache, 3)
    twin = copy.deepcopy(cache)
    before = snapshot(twin)
    feed(cache, 2)
    assert snapshot(twin) == before


@pytest.mark.parametrize("rows", [[1, 0], [0, 0], [1, 1], (0, 1), np.array([1, 0]), np.array([1, 0], np.uint8)], ids=repr)
def test_reorder_moves_all_that_belongs_to_a_row(rows):
    """Pitfall 13."""
    cache = make()
    stored = feed(cache, 4, positions=np.array([[0, 1, 2, 3], [-1, -1, 0, 1]]))
    cache.reorder(rows)
    rows = list(rows)
    expected = np.array([[0, 1, 2, 3], [-1, -1, 0, 1]])[rows]
    for layer in range(LAYERS):
        equal(cache.get(layer), stored[layer][0][rows], stored[layer][1][rows])
        np.testing.assert_array_equal(cache.layers[layer].positions, expected)
    np.testing.assert_array_equal(cache.next_positions(), expected[:, -1:] + 1)
    feed(cache, 1, seed=2)
    np.testing.assert_array_equal(cache.layers[0].positions[:, -1], expected[:, -1] + 1)


def test_without_its_padded_rows_a_cache_is_not_padded():
    cache = make()
    feed(cache, 3, positions=np.array([[0, 1, 2], [-1, 0, 1]]))
    cache.reorder([0, 0])
    assert [layer.padded for layer in cache.layers] == [False] * LAYERS


@pytest.mark.parametrize("rows", [[0], [0, 1, 0], [0, B], [0, -1], [0.0, 1.0], [True, False], 0, [[0, 1]], [], None], ids=str)
def test_wrong_rows_are_refused(rows):
    cache = ready()
    before = snapshot(cache)
    with pytest.raises(ValueError, match="rows"):
        cache.reorder(rows)
    with pytest.raises(ValueError, match="rows"):
        cache.layers[0].reorder(rows)
    assert snapshot(cache) == before


@pytest.mark.parametrize("tokens", [0, 1, 5, SLOTS])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_save_load_continue(tokens, dtype, tmp_path):
    """Pitfall 14, the empty cache included."""
    cache = make(dtype=dtype)
    if tokens:
        positions = np.tile(np.arange(tokens), (B, 1))
        positions[1] -= 1                                    # the second row is padded by one
        feed(cache, tokens, positions=positions)
    cache.save(tmp_path / "cache.safetensors")
    loaded = KVCache.load(str(tmp_path / "cache.safetensors"))
    assert snapshot(loaded) == snapshot(cache)
    assert repr(loaded) == repr(cache) and loaded.nbytes == cache.nbytes and loaded.dtype == cache.dtype
    assert vars(loaded).keys() == vars(cache).keys()
    for name in ("batch_size", "max_seq_len", "num_layers", "num_heads", "num_kv_heads", "head_dim"):
        assert getattr(loaded, name) == getattr(cache, name)
    if tokens < SLOTS:
        for each in (cache, loaded):
            feed(each, 1, seed=3)
        assert snapshot(loaded) == snapshot(cache)
    assert [file.name for file in tmp_path.iterdir()] == ["cache.safetensors"]


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">f2", "=f8", "float16", float])
def test_any_byte_order_is_stored_in_that_of_the_machine(dtype, tmp_path):
    cache = make(dtype=dtype)
    assert cache.dtype.isnative and cache.dtype.itemsize == np.dtype(dtype).itemsize
    assert cache.layers[0].dtype == cache.layers[0].read()[0].dtype == cache.dtype
    feed(cache, 2)
    cache.save(tmp_path / "cache")
    assert snapshot(KVCache.load(tmp_path / "cache")) == snapshot(cache)


def test_a_state_that_does_not_fit_is_refused():
    layer, other = ExactCache(B, SLOTS, KV_HEADS, D), ExactCache(B, 2 * SLOTS, KV_HEADS, D)
    layer.update(*kv(3))
    other.update(*kv(SLOTS + 1))
    before = layer.state()
    wrong_heads = {**before, "values": before["values"][:, :1]}
    for state, error in ((other.state(), CacheFullError), (wrong_heads, ValueError)):
        with pytest.raises(error):
            layer.load_state(state)
        equal(layer.read(), before["keys"], before["values"])
    full = ExactCache(B, SLOTS, KV_HEADS, D)
    full.update(*kv(SLOTS, 1))
    for whole in (full, layer.copy()):                       # it replaces what the layer holds
        layer.load_state(whole.state())
        equal(layer.read(), *(part.data for part in whole.read()))


def test_a_saved_cache_takes_room_for_its_tokens_only(tmp_path):
    cache = make(max_seq_len=10_000)
    feed(cache, 2)
    cache.save(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_size < 10_000


def test_save_replaces_a_file_or_leaves_it(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    old, new = make(), make()
    feed(old, 2)
    feed(new, 5)
    old.save(path)
    content = path.read_bytes()

    def broken(arrays, file, metadata):
        file.write_bytes(b"half of it")
        raise OSError("disk full")
    def stuck(self, target):
        raise OSError("disk full")
    for where, what in (("safetensors.numpy.save_file", broken), ("os.replace", stuck)):
        with monkeypatch.context() as patch:
            patch.setattr(where, what)
            with pytest.raises(OSError, match="disk full"):
                new.save(path)
        assert path.read_bytes() == content
        assert [file.name for file in tmp_path.iterdir()] == ["cache"]
    new.save(path)
    assert KVCache.load(path).seq_pos == 5


def test_save_where_it_cannot(tmp_path):
    cache = ready()
    before = snapshot(cache)
    with pytest.raises(OSError, match="no folder"):
        cache.save(tmp_path / "nowhere" / "cache")
    assert snapshot(cache) == before
    for folder in (tmp_path, ".", "..", tmp_path.anchor):
        with pytest.raises(OSError, match="folder"):
            cache.save(folder)
        assert snapshot(cache) == before, "also what is staged is still there"
    name = "x" * 300                                         # longer than any file system takes
    with pytest.raises(OSError) as error:
        cache.save(tmp_path / name)
    assert name in str(error.value) and ".tmp" not in str(error.value), "not the name of a temporary file that nobody asked for"
    assert snapshot(cache) == before
    assert not list(tmp_path.iterdir())


def test_load_refuses_what_is_not_a_saved_cache(tmp_path):
    from safetensors.numpy import save_file
    path = tmp_path / "cache"
    with pytest.raises(FileNotFoundError, match="no file"):
        KVCache.load(path)
    with pytest.raises(ValueError, match="folder"):
        KVCache.load(tmp_path)
    for foreign in (b"", b"\0", b"A text of more than eight letters.", bytes(range(256)) * 40, b"\x80\x04\x95" + b"." * 50):
        path.write_bytes(foreign)
        with pytest.raises(ValueError, match=r"no safetensors file.*\.$"):
            KVCache.load(path)
    for metadata in (None, {"format": "pt"}, {"format": "tinytorch.kv_cache.1"}):
        save_file({"keys": np.zeros(3, np.float32)}, path, metadata)
        with pytest.raises(ValueError, match="not written by this package"):
            KVCache.load(path)


def test_load_refuses_a_damaged_file(tmp_path):
    """Cut anywhere, or with any single byte changed, it is refused with a ValueError."""
    cache = make(num_layers=1, batch_size=1)
    feed(cache, 2)
    path = tmp_path / "cache"
    cache.save(path)
    content = path.read_bytes()
    for cut in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError):
            KVCache.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError):
        KVCache.load(path)
    survived = 0
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1:])
        try:
            loaded = KVCache.load(path)
        except ValueError:
            continue
        survived += 1                                        # a byte that means nothing, such as a blank at the end
        assert snapshot(loaded) == snapshot(cache)
    assert survived < 5


def test_load_refuses_what_it_cannot_rebuild(tmp_path):
    """A file with a right checksum that describes no cache."""
    from tinytorch.generation.kv_cache import FORMAT
    from tinytorch.training.trainer import read_file, write_file
    cache = make(num_layers=2)
    feed(cache, 2)
    cache.save(tmp_path / "good")
    arrays, saved = read_file(tmp_path / "good", FORMAT)

    def refused(saved, arrays=arrays):
        write_file(tmp_path / "bad", arrays, saved, FORMAT)
        with pytest.raises(ValueError, match="rebuilt") as error:
            KVCache.load(tmp_path / "bad")
        return str(error.value)

    refused("no json")
    refused([])
    refused({})
    refused({**saved, "seq_pos": 3})
    refused({**saved, "layers": []})
    refused({**saved, "num_heads": 3})
    one, two = saved["layers"]
    refused({**saved, "layers": [one, {**two, "config": {**two["config"], "max_seq_len": 10 ** 15}}]})
    refused({**saved, "layers": [one, {**two, "config": {**two["config"], "head_dim": 0}}]})
    halves = {name: array.astype(np.float16) if name.startswith("layers.1") else array for name, array in arrays.items()}
    halves["layers.1.positions"] = arrays["layers.1.positions"]
    assert "different sizes" in refused({**saved, "layers": [one, {**two, "config": {**two["config"], "dtype": "float16"}}]}, halves)
    refused(saved, {name: array for name, array in arrays.items() if name != "layers.1.keys"})
    refused(saved, {**arrays, "layers.1.keys": arrays["layers.1.keys"][:, :1].copy()})
    stranger = [{**layer, "class": "ClassFromElsewhere", "module": "some.module"} for layer in saved["layers"]]
    assert "Import some.module" in refused({**saved, "layers": stranger})
    for name in ("KVCache", "Slots", "object", "LayerCache"):
        refused({**saved, "layers": [{**layer, "class": name} for layer in saved["layers"]]})


# Sizes and types

@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4, None])
def test_memory_follows_heads_dtype_and_slots(dtype, num_kv_heads):
    """Pitfall 15: the reported bytes are the allocated bytes."""
    cache = KVCache(2, 16, 3, 4, 8, num_kv_heads=num_kv_heads, dtype=dtype)
    heads = 4 if num_kv_heads is None else num_kv_heads
    numbers = 2 * 2 * 16 * 3 * heads * 8
    allocated = sum(array.nbytes for layer in cache.layers for array in (layer._slots.keys, layer._slots.values))
    assert cache.nbytes == allocated == numbers * np.dtype(dtype).itemsize
    assert cache.nbytes == cache_bytes(2, 16, 3, 4, 8, num_kv_heads=num_kv_heads, dtype=dtype)
    usage = cache.get_memory_usage()
    assert usage == {"total_mb": cache.nbytes / 2**20, "per_layer_mb": cache.nbytes / 2**20 / 3, "cache_tensors": 6,
                     "total_elements": numbers}
    for layer in cache.layers:
        keys, values = layer.update(*np.ones((2, 2, heads, 16, 8), dtype))
        for array in (keys.data, values.data):               # full: the views cover the whole buffer
            base = array if array.base is None else array.base
            assert base.nbytes == layer.nbytes // 2


@pytest.mark.parametrize("stored", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("given_dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_inputs_do_not_change_the_dtype(stored, given_dtype):
    """Pitfall 16."""
    cache = make(dtype=stored)
    key, value = np.abs(kv(2) * 10).astype(given_dtype)
    for _ in range(2):
        for array in (*cache.update(0, key, value), *cache.get(0), *cache.layers[0].read()):
            assert array.dtype == stored
    equal(cache.layers[0].read(), key.astype(stored), value.astype(stored))


def test_a_large_cache_costs_nothing_until_it_is_used():
    tracemalloc = pytest.importorskip("tracemalloc")
    cache = KVCache(1, 2**20, 2, 1, 2)
    assert cache.nbytes == 2**20 * 2 * 2 * 2 * 4
    tracemalloc.start()
    try:
        for _ in range(3):
            cache.reset()
            feed_one = np.ones((1, 1, 1, 2), np.float32)
            for layer in range(2):
                cache.update(layer, feed_one, feed_one)
            cache.advance()
            cache.get(0)
        assert tracemalloc.get_traced_memory()[1] < 100_000  # updating, reading and resetting copy no buffer
    finally:
        tracemalloc.stop()


def test_no_memory_is_held_after_a_cache_is_gone():
    cache = make()
    feed(cache, 3)
    layer = cache.layers[0]
    assert sum(isinstance(other, KVCache) for other in gc.get_referrers(layer)) == 0
    del cache
    assert layer.size == 3


def test_enable_kv_cache_returns_a_cache_and_prints_nothing(capsys):
    cache = enable_kv_cache(2, 8, 3, 4, 6)
    assert isinstance(cache, KVCache) and cache.layers[0].num_kv_heads == 4
    assert (cache.batch_size, cache.max_seq_len, cache.num_layers, cache.head_dim) == (2, 8, 3, 6)
    feed_all = np.ones((2, 2, 4, 1, 6))
    for layer in range(3):
        cache.update(layer, *feed_all)
    cache.advance()
    cache.get_memory_usage()
    repr(cache)
    assert capsys.readouterr() == ("", "")


def test_the_module_is_cheap_to_import():
    """Safetensors is imported when a cache is saved, not before."""
    code = ("import sys, numpy; before = set(sys.modules); import tinytorch.generation.kv_cache; "
            "new = set(sys.modules) - before; print(*sorted(name for name in new if not name.startswith('tinytorch')))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert "safetensors" not in out.stdout and "matplotlib" not in out.stdout
    loaded = {name.split(".")[0] for name in out.stdout.split()}
    assert loaded <= set(sys.stdlib_module_names), loaded


# Policies: the abstract class suffices for one that evicts

class LastTokens(LayerCache):
    """A sliding window. It keeps `spare` tokens more than it shows, so that as many can be undone."""

    def __init__(self, batch_size, max_seq_len, num_kv_heads, head_dim, dtype=np.float32, *, window, spare=4):
        super().__init__(batch_size, None, num_kv_heads, head_dim, dtype)
        self.window, self.spare = window, spare
        self.reset()

    def reset(self):
        self.size, self.padded = 0, False
        self._keys = self._values = np.zeros((self.batch_size, self.num_kv_heads, 0, self.head_dim), self.dtype)
        self._positions = np.zeros((self.batch_size, 0), np.int64)

    def update(self, key, value, positions=None):
        key, value, positions = self.check(key, value, positions)
        self.padded = self.padded or bool((positions != np.arange(self.size, self.size + key.shape[2])).any())
        first = max(0, self.length - (self.window - 1 + self.spare))     # evict before appending
        self._keys = np.concatenate([self._keys[:, :, first:], key], axis=2)
        self._values = np.concatenate([self._values[:, :, first:], value], axis=2)
        self._positions = np.concatenate([self._positions[:, first:], positions], axis=1)
        self.size += key.shape[2]
        return self.read()

    def read(self, except_last=0):
        stop = max(0, self.length - except_last)
        return Tensor(self._keys[:, :, :stop], dtype=self.dtype), Tensor(self._values[:, :, :stop], dtype=self.dtype)

    def check_trim(self, n):
        n = super().check_trim(n)
        left = self.size - n
        if 0 < left and self.length - n < min(left, self.window - 1):
            raise ValueError(f"{n} tokens cannot be undone: what the window would show then has been dropped.")
        return n

    def trim(self, n):
        n = self.check_trim(n)
        stop = max(0, self.length - n)
        self._keys, self._values = self._keys[:, :, :stop], self._values[:, :, :stop]
        self._positions = self._positions[:, :stop]
        self.size -= n
        return n

    def reorder(self, rows):
        rows = self.check_rows(rows)
        self._keys, self._values, self._positions = self._keys[rows], self._values[rows], self._positions[rows]

    length = property(lambda self: self._keys.shape[2])
    positions = property(lambda self: self._positions.copy())
    nbytes = property(lambda self: self._keys.nbytes + self._values.nbytes)

    def config(self):
        return {**super().config(), "window": self.window, "spare": self.spare}

    def state(self):
        return {"keys": self._keys.copy("F"), "values": self._values.copy(), "positions": self.positions,
                "counters": np.array([self.size, self.padded])}

    def load_state(self, state):
        self._keys, self._values, self._positions = state["keys"], state["values"], state["positions"]
        self.size, self.padded = int(state["counters"][0]), bool(state["counters"][1])


windowed = partial(LastTokens, window=4)


def test_a_policy_that_lacks_a_method_cannot_be_made():
    class Half(ExactCache):
        reorder = LayerCache.reorder
    with pytest.raises(TypeError, match="reorder"):
        Half(1, 4, 1, 2)


class FromTheContract(LayerCache):
    """A window of 4 tokens that holds up to 8: the methods and facts that the contract lists, and nothing else of this class.

    `size`, `padded` and `window` cannot be set, and the base class is begun last.
    """
    size = property(lambda self: self._dropped + self.length)
    length = property(lambda self: self._positions.shape[1])
    padded = property(lambda self: bool((self._positions < 0).any()))
    window = property(lambda self: 4)
    positions = property(lambda self: self._positions.copy())
    nbytes = property(lambda self: self._keys.nbytes + self._values.nbytes)

    def __init__(self, batch_size, max_seq_len, num_kv_heads, head_dim, dtype=np.float32):
        self._empty = np.zeros((2, batch_size, num_kv_heads, 0, head_dim), dtype), np.zeros((batch_size, 0), int)
        self.reset()
        super().__init__(batch_size, None, num_kv_heads, head_dim, dtype)

    def reset(self):
        (self._keys, self._values), self._positions = self._empty
        self._dropped = 0

    def update(self, key, value, positions=None):
        key, value = (part.data if isinstance(part, Tensor) else part for part in (key, value))
        if positions is None:
            start = self._positions.max(axis=1, initial=-1) + 1
            positions = start[:, None] + np.arange(key.shape[2])
        first = max(0, self.length - 7)
        self._dropped += first
        self._keys = np.concatenate([self._keys[:, :, first:], key], axis=2)
        self._values = np.concatenate([self._values[:, :, first:], value], axis=2)
        self._positions = np.concatenate([self._positions[:, first:], positions], axis=1)
        return Tensor(self._keys), Tensor(self._values)

    def trim(self, n):
        n = min(n, self.size)
        if n == self.size:
            self.reset()
        elif n:
            if self._dropped and self.length - n < 3:
                raise ValueError("What the window would show then is dropped.")
            self._keys, self._values = self._keys[:, :, :-n], self._values[:, :, :-n]
            self._positions = self._positions[:, :-n]
        return n

    def reorder(self, rows):
        self._keys, self._values, self._positions = self._keys[rows], self._values[rows], self._positions[rows]


def test_a_policy_written_from_the_contract_alone_serves_a_model():
    model = MODELS["GQA"]
    cache, twin = (KVCache.for_model(model, 3, layer_cache=policy) for policy in (FromTheContract, windowed))
    padded = np.where(np.arange(9) < [[0], [2], [5]], -1, np.arange(9) - [[0], [2], [5]])
    steps = [(PROMPTS[:, :9], padded), (PROMPTS[:, 9:10], None), (PROMPTS[:, 10:13], None), (PROMPTS[:, 13:20], None)]
    for change in (lambda cache: cache.trim(2), lambda cache: cache.reorder([2, 0, 2]), lambda cache: cache.reset()):
        for tokens, positions in steps:
            found, expected = (run(model, tokens, each, positions) for each in (cache, twin))
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
        for each in (cache, twin):
            change(each)
        assert cache.seq_pos == twin.seq_pos and cache.next_positions().tolist() == twin.next_positions().tolist()
    assert cache.seq_pos == cache.trim(1) == 0

    prompts = [PROMPTS[row, :length].tolist() for row, length in enumerate((9, 7, 4))]
    assert generate(model, prompts, 12, cache=cache) == generate(model, prompts, 12, cache=twin) != generate(model, prompts, 12)
    alone = KVCache.for_model(model, layer_cache=FromTheContract)
    assert first_difference(model, PROMPTS[0, :4], alone) is None
    assert first_difference(model, PROMPTS[0, :9], alone)[:2] == (0, 4)


@pytest.mark.parametrize("missing, step", [
    ("read", lambda cache, path: cache.get(1)), ("state", lambda cache, path: cache.copy()),
    ("state", lambda cache, path: cache.save(path)), ("state", lambda cache, path: cache.layers[0].copy()),
    ("load_state", lambda cache, path: cache.layers[0].load_state({}))])
def test_what_a_policy_lacks_is_named_by_whoever_needs_it(missing, step, tmp_path):
    cache = make(layer_cache=FromTheContract)
    feed(cache, 3)
    feed(cache, 2, advance=False)
    with pytest.raises(TypeError, match=f"^FromTheContract has no method {missing}\\."):
        step(cache, tmp_path / "cache")
    assert cache.seq_pos == 3 and [layer.size for layer in cache.layers] == [5] * LAYERS and not list(tmp_path.iterdir())


def test_a_policy_without_load_state_is_not_saved(tmp_path):
    """The file could never be loaded."""
    class Half(LastTokens):
        load_state = LayerCache.load_state
    cache = make(layer_cache=partial(Half, window=4))
    feed(cache, 3)
    with pytest.raises(TypeError, match="^Half has no method load_state\\."):
        cache.save(tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_a_trim_that_every_layer_refuses_changes_nothing():
    """Also where the policy says so in `trim` only."""
    cache = make(layer_cache=FromTheContract)
    for seed in range(5):
        feed(cache, 4, seed)
    feed(cache, 1, advance=False)
    with pytest.raises(ValueError, match="is dropped"):
        cache.trim(7)
    assert cache.seq_pos == 20 and [layer.size for layer in cache.layers] == [21] * LAYERS
    assert cache.trim(2) == 2 and [layer.size for layer in cache.layers] == [18] * LAYERS


def test_a_policy_that_does_not_begin_its_base_class_is_refused():
    class Forgetful(FromTheContract):
        def __init__(self, *sizes, dtype):
            self.batch_size, self.max_seq_len = sizes[:2]
    with pytest.raises(TypeError, match=r"^Forgetful has no num_kv_heads, head_dim, dtype\. .* super\(\).__init__\(batch_size, "):
        make(layer_cache=Forgetful)


def test_an_evicting_policy_keeps_the_clock_and_bounds_its_memory():
    cache = make(layer_cache=windowed)
    assert cache.max_seq_len is None
    key, value = kv(50)
    for t in range(50):
        assert cache.next_positions().tolist() == [[t]] * B
        for layer in range(LAYERS):
            cache.update(layer, key[:, :, t:t + 1], value[:, :, t:t + 1])
        cache.advance()
        assert cache.seq_pos == t + 1 and cache.layers[0].length == min(t + 1, 8)
    equal(cache.get(0), key[:, :, 42:], value[:, :, 42:])
    assert cache.get_memory_usage()["total_mb"] == cache.nbytes / 2**20
    assert cache.nbytes == LAYERS * 2 * B * KV_HEADS * 8 * D * 4


def test_an_evicting_policy_can_undo_a_staged_write():
    cache = make(layer_cache=windowed)
    feed(cache, 12)
    other = cache.copy()
    cache.update(0, *kv(3, 5))
    cache.update(1, *kv(3, 6))
    for layer in range(LAYERS):                              # meanwhile `get` shows no staged token
        for one, two in zip(cache.get(layer), other.get(layer)):
            np.testing.assert_array_equal(one.data, two.data[:, :, -one.shape[2]:])
    for each in (cache, other):
        feed(each, 2, seed=7)
        each.trim(1)
    for layer in range(LAYERS):                              # the window shows the same, whatever was staged before
        for one, two in zip(cache.get(layer), other.get(layer)):
            np.testing.assert_array_equal(one.data[:, :, -4:], two.data[:, :, -4:])
        assert cache.layers[layer].size == other.layers[layer].size == 13


def test_a_trim_that_one_layer_refuses_changes_no_layer():
    """Two policies in one cache: the callable may give each layer its own."""
    made = []

    def alternate(*sizes, dtype):
        made.append(len(made))
        return (ExactCache if len(made) % 2 else windowed)(*sizes, dtype=dtype)
    cache = make(max_seq_len=40, layer_cache=alternate)
    assert [type(layer) for layer in cache.layers] == [ExactCache, LastTokens, ExactCache]
    assert cache.max_seq_len == 40
    for seed in range(5):
        feed(cache, 4, seed)
    feed(cache, 1, advance=False)
    before = snapshot(cache)
    with pytest.raises(ValueError, match="dropped"):
        cache.trim(12)
    assert snapshot(cache) == before
    assert cache.trim(2) == 2
    assert [layer.size for layer in cache.layers] == [18] * LAYERS


@pytest.mark.parametrize("tokens", [0, 3, 4, 5, 30])
def test_an_evicting_policy_is_saved_copied_reordered_and_reset(tokens, tmp_path):
    """Pitfalls 9, 13 and 14 for every policy."""
    cache = make(layer_cache=windowed)
    for t in range(tokens):
        feed(cache, 1, seed=t, positions=np.array([[t], [t - 1]]))
    cache.save(tmp_path / "cache")
    loaded, copied = KVCache.load(tmp_path / "cache"), cache.copy()
    assert loaded.max_seq_len is None and loaded.layers[0].window == 4 and loaded.layers[0].spare == 4
    for twin in (loaded, copied):
        assert snapshot(twin) == snapshot(cache)
    for each in (cache, loaded, copied):
        feed(each, 3, seed=99)
        each.reorder([1, 0])
        feed(each, 3, seed=98)
    assert snapshot(loaded) == snapshot(cache) == snapshot(copied)
    cache.reset()
    assert snapshot(cache) == snapshot(make(layer_cache=windowed))


class Spaced(ExactCache):
    """Takes one argument more, and says so."""
    def __init__(self, *args, every=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.every = every

    def config(self):
        return {**super().config(), "every": self.every}


class Forgets(ExactCache):
    """Takes one argument more, and does not say so."""
    def __init__(self, batch_size, max_seq_len, num_kv_heads, head_dim, dtype=np.float32, every=2):
        super().__init__(batch_size, max_seq_len, num_kv_heads, head_dim, dtype)


class ForgetsBesideKwargs(Spaced):
    def __init__(self, *args, sinks=0, **kwargs):
        super().__init__(*args, **kwargs)


class InheritsWhatForgets(Forgets):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class AlwaysHalf(ExactCache):
    """Has no `dtype` in its constructor, but `config` gives one."""
    def __init__(self, batch_size, max_seq_len, num_kv_heads, head_dim):
        super().__init__(batch_size, max_seq_len, num_kv_heads, head_dim, np.float16)


@pytest.mark.parametrize("policy, names", [
    (partial(Forgets, every=3), "every"), (partial(ForgetsBesideKwargs, every=3), "sinks"), (InheritsWhatForgets, "every"),
    (lambda *sizes, dtype: AlwaysHalf(*sizes), "dtype")])
def test_a_policy_whose_config_is_not_what_its_constructor_takes_is_refused(policy, names, tmp_path):
    """A copy or a loaded cache would have the default of what is missing."""
    cache = make(layer_cache=policy)
    feed(cache, 3)
    feed(cache, 1, advance=False)
    before = snapshot(cache)
    for step in (cache.copy, cache.layers[0].copy, lambda: cache.save(tmp_path / "cache")):
        with pytest.raises(TypeError, match=f"differ in {names}\\."):
            step()
        assert snapshot(cache) == before, "also what is staged is still there"
    assert not list(tmp_path.iterdir())


class Beside:
    """A class beside a policy, with no constructor of its own."""


class InheritsSpaced(Beside, Spaced):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Tenth(Spaced):
    __init__ = partialmethod(Spaced.__init__, every=10)


@pytest.mark.parametrize("policy, every", [(partial(Spaced, every=3), 3), (partial(InheritsSpaced, every=4), 4), (Tenth, 10)])
def test_a_policy_whose_config_is_what_its_constructor_takes_is_copied_and_saved(policy, every, tmp_path):
    cache = make(layer_cache=policy)
    feed(cache, 3)
    cache.save(tmp_path / "cache")
    for twin in (cache.copy(), KVCache.load(tmp_path / "cache")):
        assert snapshot(twin) == snapshot(cache) and type(twin.layers[0]) is type(cache.layers[0])
        assert [layer.every for layer in twin.layers] == [every] * LAYERS


def test_of_two_policies_with_one_name_the_saved_module_decides_else_the_last(tmp_path):
    def policy(module):
        class Twice(ExactCache):
            pass
        Twice.__module__ = module
        return Twice
    first, second, third = policy("a"), policy("b"), policy("b")
    cache = make(layer_cache=first)
    cache.save(tmp_path / "cache")
    assert type(KVCache.load(tmp_path / "cache").layers[0]) is first
    first.__module__ = "gone"
    assert type(KVCache.load(tmp_path / "cache").layers[0]) is third      # as when a notebook cell was run twice
    assert second is not third


# A random walk beside a plain list

class CacheBesideAList(RuleBasedStateMachine):
    """What a KVCache does, and what a list of tokens for each layer would do."""

    @initialize(batch=st.integers(1, 3), layers=st.integers(1, 3), kv_heads=st.sampled_from([1, 2]), slots=st.integers(1, 12))
    def begin(self, batch, layers, kv_heads, slots):
        self.shape, self.slots, self.rng = (batch, kv_heads, 3), slots, np.random.default_rng(0)
        self.cache = KVCache(batch, slots, layers, 2, 3, num_kv_heads=kv_heads)
        self.tokens = [[] for _ in range(layers)]            # layer -> one (positions, key, value) for each token
        self.committed = 0
        self.views, self.twins = [], []

    # the reference

    def held(self, layer, stop=None):
        """positions (B, n), keys and values (B, Hkv, n, D) of the first `stop` tokens of a layer."""
        batch, heads, width = self.shape
        rows = self.tokens[layer][:stop]
        keys, values = (np.array([row[i] for row in rows], np.float32).reshape(-1, batch, heads, width).transpose(1, 2, 0, 3)
                        for i in (1, 2))
        return np.array([row[0] for row in rows], np.int64).reshape(-1, batch).T, keys, values

    def nexts(self, layer, num_tokens):
        """Where each row goes on."""
        starts = [1 + max([row[0][b] for row in self.tokens[layer]], default=-1) for b in range(self.shape[0])]
        return np.array(starts).clip(0)[:, None] + np.arange(num_tokens)

    def cut(self, stop):
        self.tokens = [rows[:stop] for rows in self.tokens]
        self.committed = min(self.committed, stop)

    # the rules

    def stage(self, layer, num_tokens, padding):
        batch, heads, width = self.shape
        key, value = self.rng.standard_normal((2, batch, heads, num_tokens, width)).astype(np.float32)
        free = self.slots - self.committed
        if num_tokens > free:
            with pytest.raises(CacheFullError):
                self.cache.update(layer, key, value)
            return
        self.tokens[layer] = self.tokens[layer][:self.committed]
        positions = self.nexts(layer, num_tokens)
        given_positions = None
        if padding:
            skip = self.rng.integers(0, num_tokens + 1, batch)
            positions = positions - skip[:, None]
            positions[np.arange(num_tokens) < skip[:, None]] = -1
            given_positions = positions.copy()
        self.views += [(view, view.data.copy()) for view in self.cache.update(layer, key, value, given_positions)]
        self.tokens[layer] += [(positions[:, t], key[:, :, t], value[:, :, t]) for t in range(num_tokens)]
        self.views = [(view, data) for view, data in self.views if view.shape[2] <= self.committed] \
            + self.views[-2:]                                # staged tokens may be overwritten

    @rule(data=st.data(), num_tokens=st.integers(1, 5), padding=st.sampled_from([False, False, True]))
    def update_one_layer(self, data, num_tokens, padding):
        self.stage(data.draw(st.integers(0, len(self.tokens) - 1)), num_tokens, padding)

    @rule(num_tokens=st.integers(1, 4), padding=st.sampled_from([False, False, True]))
    def forward(self, num_tokens, padding):
        if self.committed + num_tokens <= self.slots:
            for layer in range(len(self.tokens)):
                self.stage(layer, num_tokens, padding)
            self.cache.advance(num_tokens)
            self.committed += num_tokens

    @rule(num_tokens=st.integers(0, 14))
    def advance(self, num_tokens):
        after = self.committed + num_tokens
        if after > self.slots:
            with pytest.raises(CacheFullError):
                self.cache.advance(num_tokens)
        elif after > min(map(len, self.tokens)):
            with pytest.raises(ValueError):
                self.cache.advance(num_tokens)
        else:
            self.cache.advance(num_tokens)
            self.committed = after

    @rule(data=st.data(), fault=st.sampled_from(["batch", "heads", "width", "rank", "empty", "gradient", "positions", "layer"]))
    def failed_update(self, data, fault):
        layer, positions = data.draw(st.integers(0, len(self.tokens) - 1)), None
        batch, heads, width = self.shape
        shape = {"batch": (batch + 1, heads, 1, width), "heads": (batch, heads + 1, 1, width), "width": (batch, heads, 1, 1),
                 "rank": (heads, 1, width), "empty": (batch, heads, 0, width)}.get(fault, (batch, heads, 1, width))
        key = Tensor(np.ones(shape), requires_grad=fault == "gradient")
        if fault == "positions":
            positions = np.zeros((batch, 2), int)
        if fault == "layer":
            layer = len(self.tokens)
        with pytest.raises(RuntimeError if fault == "gradient" else ValueError):
            self.cache.update(layer, key, np.ones(shape), positions)

    @rule(n=st.integers(-1, 14))
    def trim(self, n):
        if n < 0:
            with pytest.raises(ValueError):
                self.cache.trim(n)
            return
        assert self.cache.trim(n) == min(n, self.committed)
        self.cut(self.committed - min(n, self.committed))
        self.views = []

    @precondition(lambda self: self.committed > 3)
    @rule()
    def reset(self):
        self.cache.reset()
        self.cut(0)
        self.views = []

    @rule(data=st.data())
    def reorder(self, data):
        batch = self.shape[0]
        rows = data.draw(st.lists(st.integers(0, batch - 1), min_size=batch, max_size=batch))
        self.cache.reorder(rows)
        self.cut(self.committed)
        self.tokens = [[tuple(part[rows] for part in row) for row in layer] for layer in self.tokens]
        self.views = []

    @rule(go_on_with_the_copy=st.booleans())
    def copy(self, go_on_with_the_copy):
        twin = self.cache.copy()
        self.cut(self.committed)
        self.views = []
        if go_on_with_the_copy:
            self.cache, twin = twin, self.cache
        self.twins = self.twins[-2:] + [(twin, snapshot(twin))]

    @rule()
    def save_and_load(self):
        path = self.folder / "cache"
        self.cache.save(path)
        self.cache = KVCache.load(path)
        self.cut(self.committed)
        self.views = []

    # what must hold after every step

    @invariant()
    def agree(self):
        assert self.cache.seq_pos == self.committed
        for layer in range(len(self.tokens)):
            cached = self.cache.layers[layer]
            positions, keys, values = self.held(layer)
            equal(cached.read(), keys, values)
            np.testing.assert_array_equal(cached.positions, positions)
            assert cached.size == cached.length == len(self.tokens[layer])
            assert cached.padded == (positions.tolist() != [list(range(cached.size))] * self.shape[0])
            np.testing.assert_array_equal(cached.next_positions(2), self.nexts(layer, 2))
            equal(self.cache.get(layer), *self.held(layer, self.committed)[1:])
        for view, data in self.views:
            np.testing.assert_array_equal(view.data, data)
        for twin, seen in self.twins:
            assert snapshot(twin) == seen


def test_a_random_walk_beside_a_list(tmp_path):
    CacheBesideAList.folder = tmp_path
    run_state_machine_as_test(CacheBesideAList, settings=settings(
        max_examples=40, stateful_step_count=25, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck)))


# With a model: cached equals uncached, by logits first

def lively_model(num_heads=4, num_kv_heads=2, seed=0, num_layers=2, max_seq_len=64):
    """Untied, with weights large enough that attention matters; a fresh tied model only repeats its last token."""
    config = TransformerConfig(61, 32, num_layers, num_heads, num_kv_heads, 48, max_seq_len, tie_embeddings=False)
    model = Transformer(config, seed=seed)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 0.35 / parameter.data.std()
    return model


MODELS = {"MHA": lively_model(4, 4), "GQA": lively_model(4, 2), "MQA": lively_model(4, 1)}
PROMPTS = np.random.default_rng(7).integers(0, 61, (3, 40))


def run(model, tokens, cache=None, positions=None):
    with no_grad():
        return model(tokens, cache=cache, positions=positions).data


def test_the_models_of_these_tests_can_tell_right_from_wrong():
    """Pitfall 29: the outputs vary, and mistakes that real caches make show in the logits."""
    for model in MODELS.values():
        out = generate_naive(model, PROMPTS[0, :5].tolist(), 20)
        assert len(set(out[5:])) > 8
        right = run(model, PROMPTS[:1, :9])[:, -1]
        cache = KVCache.for_model(model)
        run(model, PROMPTS[:1, :8], cache)
        restarted = run(model, PROMPTS[:1, 8:9], cache.copy(), np.zeros((1, 1), int))[:, -1]
        forgotten = run(model, PROMPTS[:1, 1:9], None, np.arange(1, 9)[None])[:, -1]
        for wrong in (restarted, forgotten):
            assert np.abs(wrong - right).max() > 0.05


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("prompt", [1, 2, 17])
@pytest.mark.parametrize("kind", MODELS)
def test_cached_logits_equal_uncached(kind, prompt, batch):
    """Pitfalls 1 to 4 and 8, and 6: P + N - 1 slots suffice."""
    model, new = MODELS[kind], 12
    tokens = PROMPTS[:batch, :prompt + new - 1]
    full = run(model, tokens)
    cache = KVCache.for_model(model, batch, max_seq_len=prompt + new - 1)
    logits = [run(model, tokens[:, :prompt], cache)]
    for t in range(prompt, prompt + new - 1):
        assert cache.next_positions().tolist() == [[t]] * batch
        logits.append(run(model, tokens[:, t:t + 1], cache))
    np.testing.assert_allclose(np.concatenate(logits, axis=1), full, atol=1e-4, rtol=0)
    assert cache.seq_pos == prompt + new - 1
    with pytest.raises(CacheFullError):
        run(model, tokens[:, :1], cache)


@pytest.mark.parametrize("kind", MODELS)
def test_cached_tokens_equal_generate_naive(kind):
    model = MODELS[kind]
    for prompt in (1, 2, 17):
        tokens = PROMPTS[1, :prompt].tolist()
        expected = generate_naive(model, tokens, 15)
        cache = KVCache.for_model(model, max_seq_len=prompt + 14)
        pending = tokens
        for _ in range(15):
            logits = run(model, [pending], cache)
            pending = [int(logits[0, -1].argmax())]
            tokens = tokens + pending
        assert tokens == expected


@given(kind=st.sampled_from(list(MODELS)), batch=st.sampled_from([1, 3]), length=st.sampled_from([1, 2, 17, 30]),
       cuts=st.sets(st.integers(1, 29), max_size=6))
@settings(max_examples=40, derandomize=True, deadline=None, database=None)
def test_any_split_into_chunks_gives_the_same(kind, batch, length, cuts):
    """Pitfall 5: logits, contents and positions."""
    model, tokens = MODELS[kind], PROMPTS[:batch, :length]
    whole, split = (KVCache.for_model(model, batch, max_seq_len=length) for _ in range(2))
    expected = run(model, tokens, whole)
    edges = [0, *sorted(cut for cut in cuts if cut < length), length]
    found = np.concatenate([run(model, tokens[:, a:b], split) for a, b in zip(edges, edges[1:])], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(found, run(model, tokens), atol=1e-4, rtol=0)
    for layer in range(len(model.blocks)):
        for one, two in zip(whole.get(layer), split.get(layer)):
            np.testing.assert_allclose(one.data, two.data, atol=1e-4, rtol=0)
        np.testing.assert_array_equal(whole.layers[layer].positions, split.layers[layer].positions)


@pytest.mark.parametrize("kind", MODELS)
def test_left_padded_rows_equal_the_same_rows_alone(kind):
    """Pitfall 24."""
    model, lengths, steps = MODELS[kind], [5, 1, 8], 6
    width = max(lengths)
    tokens, positions = np.zeros((3, width), int), np.full((3, width), -1)
    for row, length in enumerate(lengths):
        tokens[row, width - length:] = PROMPTS[row, :length]
        positions[row, width - length:] = np.arange(length)
    cache = KVCache.for_model(model, 3, max_seq_len=width + steps)
    logits = [run(model, tokens, cache, positions)[:, -1]]
    for step in range(steps):
        assert cache.next_positions()[:, 0].tolist() == [length + step for length in lengths]
        new = np.array([[PROMPTS[row, length + step]] for row, length in enumerate(lengths)])
        logits.append(run(model, new, cache)[:, -1])         # positions are the cache's affair
    for row, length in enumerate(lengths):
        alone = run(model, PROMPTS[row:row + 1, :length + steps])[0, length - 1:]
        np.testing.assert_allclose([step[row] for step in logits], alone, atol=1e-4, rtol=0)


def test_a_forward_that_fails_half_way_and_then_a_good_one():
    """Pitfall 10."""
    model = MODELS["GQA"]
    tokens = PROMPTS[:1]
    cache = KVCache.for_model(model)
    run(model, tokens[:, :6], cache)
    twin = cache.copy()
    with no_grad():
        states = model.hidden_states(tokens[:, 6:10], cache)
        next(states)                                         # one block has run; then something breaks
        states.close()
    assert cache.layers[0].size == 10 and cache.seq_pos == 6
    with pytest.raises(ValueError):
        run(model, [[1, 99]], cache)                         # no such token
    for each in (cache, twin):
        np.testing.assert_allclose(run(model, tokens[:, 6:9], each), run(model, tokens[:, :9])[:, 6:], atol=1e-4, rtol=0)
    assert snapshot(cache) == snapshot(twin)


def test_a_failing_block_leaves_the_cache_usable(monkeypatch):
    model = lively_model(num_layers=3)
    cache = KVCache.for_model(model)
    run(model, PROMPTS[:1, :4], cache)
    with monkeypatch.context() as patch:
        def broken(*args, **kwargs):
            raise KeyboardInterrupt
        patch.setattr(model.blocks[2], "forward", broken)
        with pytest.raises(KeyboardInterrupt):
            run(model, PROMPTS[:1, 4:9], cache)
    assert cache.seq_pos == 4
    logits = run(model, PROMPTS[:1, 4:6], cache)
    np.testing.assert_allclose(logits, run(model, PROMPTS[:1, :6])[:, 4:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("positions", [[0, 2, 5, 3], [5, 6, 7, 0], [0, 1, 4, 2]], ids=str)
def test_an_older_token_that_comes_late_does_not_look_into_its_future(positions):
    model, tokens, positions = MODELS["GQA"], PROMPTS[:1, :4], np.array([positions])
    cache = KVCache.for_model(model)
    run(model, tokens[:, :3], cache, positions[:, :3])
    late = run(model, tokens[:, 3:], cache, positions[:, 3:])
    np.testing.assert_allclose(late, run(model, tokens, positions=positions)[:, 3:], atol=1e-4, rtol=0)


def test_trim_with_a_model_equals_never_having_gone_there():
    model = MODELS["MHA"]
    cache = KVCache.for_model(model)
    run(model, PROMPTS[:1, :6], cache)
    run(model, PROMPTS[1:2, :9], cache)
    assert cache.trim(9) == 9
    np.testing.assert_allclose(run(model, PROMPTS[:1, 6:12], cache), run(model, PROMPTS[:1, :12])[:, 6:], atol=1e-4, rtol=0)


def test_reordered_rows_go_on_as_the_rows_they_were():
    model = MODELS["GQA"]
    cache = KVCache.for_model(model, 3)
    run(model, PROMPTS[:, :6], cache)
    cache.reorder([2, 0, 2])
    logits = run(model, PROMPTS[:, 10:13], cache)
    joined = np.concatenate([PROMPTS[[2, 0, 2], :6], PROMPTS[:, 10:13]], axis=1)
    np.testing.assert_allclose(logits, run(model, joined)[:, 6:], atol=1e-4, rtol=0)


def test_a_float16_cache_serves_a_float32_model():
    model = MODELS["GQA"]
    cache = KVCache.for_model(model, dtype=np.float16)
    logits = [run(model, PROMPTS[:1, :5], cache), run(model, PROMPTS[:1, 5:6], cache)]
    assert cache.dtype == np.float16 and [part.dtype for part in logits] == [np.float32] * 2
    full = run(model, PROMPTS[:1, :6])
    error = np.abs(np.concatenate(logits, axis=1) - full).max()
    assert 0 < error < 0.02 * np.abs(full).max()


def test_a_window_gives_the_same_in_any_chunks():
    """Pitfalls 5, 18 and 19, with a policy that this file wrote."""
    model, tokens = MODELS["GQA"], PROMPTS[:2, :30]
    one_by_one = KVCache.for_model(model, 2, layer_cache=windowed)
    expected = np.concatenate([run(model, tokens[:, t:t + 1], one_by_one) for t in range(30)], axis=1)
    for chunks in ([30], [3, 4, 5, 18], [17, 1, 1, 11]):
        cache = KVCache.for_model(model, 2, layer_cache=windowed)
        edges = np.cumsum([0, *chunks])
        found = np.concatenate([run(model, tokens[:, a:b], cache) for a, b in zip(edges, edges[1:])], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(expected[:, :4], run(model, tokens[:, :4]), atol=1e-4, rtol=0)
    assert np.abs(expected[:, 20:] - run(model, tokens)[:, 20:]).max() > 0.05


def test_for_model_takes_the_sizes_of_the_model():
    model = MODELS["GQA"]
    cache = KVCache.for_model(model)
    assert (cache.batch_size, cache.max_seq_len, cache.num_layers, cache.num_heads, cache.num_kv_heads, cache.head_dim) \
        == (1, 64, 2, 4, 2, 8)
    small = KVCache.for_model(model, 3, max_seq_len=5, dtype=np.float16, layer_cache=ExactCache)
    assert (small.batch_size, small.max_seq_len, small.dtype) == (3, 5, np.float16)
    assert small.nbytes == cache.nbytes * 3 * 5 // 64 // 2


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MODELS["MQA"]
        cache = KVCache.for_model(model, 3)
        run(model, PROMPTS[:, :3], cache, np.array([[-1, -1, -1], [-1, -1, 0], [0, 1, 2]]))
        assert np.isfinite(run(model, PROMPTS[:, 3:4], cache)).all()
