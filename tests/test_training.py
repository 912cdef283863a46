"""The optimiser, the loop and the files: against PyTorch step by step, against an uninterrupted run bit for bit."""
import errno
import json
import math
import os
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tinytorch.core.layers import cross_entropy
from tinytorch.core.tensor import Tensor, no_grad
from tinytorch.generation.kv_cache import KVCache
from tinytorch.models.transformer import Transformer, TransformerConfig
from tinytorch.training.trainer import (
    FORMAT, AdamW, Diverged, Trainer, TrainingConfig, adamw_update, clip_gradients, evaluate, is_decayed, learning_rate,
    load_checkpoint, load_model, next_batch, read_file, save_checkpoint, save_model, train_step, write_file,
)

SIZES = dict(vocab_size=19, embed_dim=16, num_layers=2, num_heads=4, num_kv_heads=2, intermediate_dim=24, max_seq_len=32)
CONFIG = TransformerConfig(**SIZES)
IDS = np.random.default_rng(0).integers(19, size=400)


def make_trainer(steps=12, config=CONFIG, data_id="numbers", **changes):
    options = {"warmup": 3, "peak_lr": 5e-3, **changes}
    return Trainer(Transformer(config, seed=1), lambda rng: [next_batch(IDS, 3, 8, rng), next_batch(IDS, 2, 5, rng)],
                   TrainingConfig(steps=steps, **options), data_id)


# --- the parts, against PyTorch ---

def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adamw_is_that_of_pytorch(decay):
    t = torch()
    rng = np.random.default_rng(3)
    start = rng.standard_normal((40, 7)).astype(np.float32)
    ours, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    theirs = t.nn.Parameter(t.tensor(start.copy()))
    optimiser = t.optim.AdamW([theirs], lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
    for step in range(1, 31):
        grad = (rng.standard_normal(start.shape) * 10.0 ** rng.integers(-6, 4)).astype(np.float32)
        lr = learning_rate(step, 30, 5, 0.02, 0.001)
        adamw_update(ours, grad, m, v, step, lr, decay, 0.9, 0.95, 1e-8)
        optimiser.param_groups[0]["lr"] = lr
        theirs.grad = t.tensor(grad)
        optimiser.step()
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("total, warmup, final", [(50, 10, 0.0), (50, 1, 0.01), (13, 4, 0.05)])
def test_the_schedule_is_that_of_pytorch(total, warmup, final):
    t = torch()
    optimiser = t.optim.SGD([t.nn.Parameter(t.zeros(1))], lr=0.1)
    up = t.optim.lr_scheduler.LinearLR(optimiser, start_factor=1 / warmup, total_iters=warmup - 1)
    down = t.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=total - warmup, eta_min=final)
    rates = []
    for step in range(total):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        (up if step < warmup - 1 else down).step()
    np.testing.assert_allclose([learning_rate(step, total, warmup, 0.1, final) for step in range(1, total + 1)], rates, rtol=1e-5)


@pytest.mark.parametrize("limit", [0.1, 5.0, 1e6])
def test_clipping_is_that_of_pytorch(limit):
    t = torch()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 3), (7,), (2, 2, 2))]
    theirs = [t.nn.Parameter(t.zeros(array.shape)) for array in arrays]
    for parameter, array in zip(theirs, arrays):
        parameter.grad = t.tensor(array.copy())
    expected = t.nn.utils.clip_grad_norm_(theirs, limit)
    assert clip_gradients(arrays, limit) == pytest.approx(float(expected), rel=1e-5)
    for array, parameter in zip(arrays, theirs):
        np.testing.assert_allclose(array, parameter.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [1e-18, 1e18, 1e25, 1e37])
def test_gradients_whose_squares_no_float32_holds_are_clipped(size):
    arrays = [np.array([[3 * size, 0], [0, 0]], np.float32), np.array([4 * size], np.float32)]
    assert clip_gradients(arrays, size) == pytest.approx(5 * size, rel=1e-6)
    np.testing.assert_allclose(arrays[0], np.array([[0.6, 0], [0, 0]]) * size, rtol=1e-6)
    np.testing.assert_allclose(arrays[1], [0.8 * size], rtol=1e-6)


def torch_forward(t, weights, tokens, c):
    """The same transformer in PyTorch, from our weights by name."""
    B, T = tokens.shape
    H, Hkv, D, group = c.num_heads, c.num_kv_heads, c.head_dim, c.num_heads // c.num_kv_heads

    def norm(x, gain):
        return x * t.rsqrt(x.pow(2).mean(-1, keepdim=True) + c.norm_eps) * gain

    angles = t.outer(t.arange(T).double(), c.rope_base ** (-t.arange(0, D, 2).double() / D))
    rotation = t.polar(t.ones_like(angles), angles).to(t.complex64)

    def rotate(x):
        return t.view_as_real(t.view_as_complex(x.reshape(*x.shape[:-1], D // 2, 2)) * rotation).flatten(-2)

    x = weights["embedding.weight"][tokens]
    for n in range(c.num_layers):
        w = lambda name: weights[f"blocks.{n}.{name}.weight"]
        q, k, v = (norm(x, w("attention_norm")) @ w("attention.qkv")).split([H * D, Hkv * D, Hkv * D], -1)
        q, k, v = (part.reshape(B, T, -1, D).transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(group, 1) for part in (rotate(k), v))
        y = t.nn.functional.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(B, T, H * D) @ w("attention.out")
        gate, up = (norm(x, w("mlp_norm")) @ w("mlp.gate_up")).chunk(2, -1)
        x = x + (t.nn.functional.silu(gate) * up) @ w("mlp.down")
    return norm(x, weights["norm.weight"]) @ weights["embedding.weight"].T


def test_fifty_steps_follow_pytorch():
    t = torch()
    model = Transformer(CONFIG, seed=1)
    weights = {name: t.nn.Parameter(t.tensor(array.copy())) for name, array in model.state_dict().items()}
    decayed = {name: is_decayed(name, parameter) for name, parameter in model.named_parameters()}
    theirs = t.optim.AdamW([{"params": [p for n, p in weights.items() if decayed[n]], "weight_decay": 0.1},
                            {"params": [p for n, p in weights.items() if not decayed[n]], "weight_decay": 0.0}],
                           betas=(0.9, 0.95), eps=1e-8)
    pattern = np.tile(np.arange(19), 40)
    rng, ours, curves = np.random.default_rng(0), AdamW(model), []
    for step in range(1, 51):
        inputs, targets = next_batch(pattern, 6, 12, rng)
        lr = learning_rate(step, 50, 10, 1e-2, 1e-3)
        loss, norm = train_step(model, ours, [(inputs, targets)], lr, 1.0)

        theirs.zero_grad()
        logits = torch_forward(t, weights, t.tensor(inputs), CONFIG)
        expected = t.nn.functional.cross_entropy(logits.reshape(-1, 19), t.tensor(targets).reshape(-1))
        expected.backward()
        expected_norm = t.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        for group in theirs.param_groups:
            group["lr"] = lr
        theirs.step()
        curves.append((loss, float(expected.detach())))
        assert norm == pytest.approx(float(expected_norm), rel=2e-2, abs=1e-3)
    loss, expected = np.array(curves).T
    assert np.abs(loss - expected).max() < 1e-3
    assert loss[-1] < 0.5 * loss[0]                                     # a curve that moves
    assert sum(decayed.values()) == 8 and not any(decayed[n] for n in decayed if "norm" in n or "embedding" in n)


# --- the whole model's gradients ---

def test_gradients_of_a_whole_model():
    """Against central differences in float64, for random directions through all parameters of each name."""
    model = Transformer(TransformerConfig(**{**SIZES, "tie_embeddings": False}), seed=2)
    rng = np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data = (parameter.data + 0.2 * rng.standard_normal(parameter.shape)).astype(np.float64)
    inputs, targets = rng.integers(19, size=(2, 2, 6))
    loss = cross_entropy(model(inputs), targets)
    assert loss.dtype == np.float64
    loss.backward()
    for name, parameter in model.named_parameters():
        for _ in range(3):
            direction = rng.standard_normal(parameter.shape)
            values = []
            for sign in (1, -1):
                parameter.data += sign * 1e-5 * direction
                with no_grad():
                    values.append(cross_entropy(model(inputs), targets).item())
                parameter.data -= sign * 1e-5 * direction
            numeric = (values[0] - values[1]) / 2e-5
            assert float((parameter.grad * direction).sum()) == pytest.approx(numeric, rel=1e-4, abs=1e-6), name


def test_a_cache_is_refused_while_gradients_are_on():
    model = Transformer(CONFIG, seed=0)
    cache = KVCache.for_model(model)
    with pytest.raises(RuntimeError, match=r"no_grad\(\)"):
        model([[1, 2, 3]], cache=cache)
    assert cache.seq_pos == 0
    with no_grad():
        model([[1, 2, 3]], cache=cache)
    assert cache.seq_pos == 3


# --- optimiser ---

def test_the_parameters_are_views_and_the_model_computes_the_same():
    model = Transformer(CONFIG, seed=1)
    with no_grad():
        before, logits = {name: array.copy() for name, array in model.state_dict().items()}, model([[1, 2, 3]]).data.copy()
        optimiser = AdamW(model)
        after = model.state_dict()
        assert list(after) == list(before)
        for name, array in after.items():
            np.testing.assert_array_equal(array, before[name])
        # all matrices lie row by row now, in a new model each along its longer side: BLAS adds in another order
        np.testing.assert_allclose(model([[1, 2, 3]]).data, logits, rtol=0, atol=1e-6)
    assert all(np.shares_memory(parameter.data, optimiser.weights) for parameter in model.parameters())
    assert len(optimiser.weights) == model.num_parameters() and optimiser.weights.dtype == np.float32


def test_pieces_change_nothing():
    """Norms and the embedding are not decayed, wherever the borders of the pieces fall."""
    results = []
    for piece in (7, 1 << 15):
        model = Transformer(CONFIG, seed=1)
        optimiser = AdamW(model, weight_decay=0.5)
        optimiser.piece = piece
        optimiser.collect()                                             # no gradients: zeros
        optimiser.step(0.1)
        results.append(optimiser.weights.copy())
    np.testing.assert_array_equal(*results)
    fresh = Transformer(CONFIG, seed=1)
    for (name, old), (_, new) in zip(fresh.named_parameters(), model.named_parameters()):
        factor = 0.95 if is_decayed(name, old) else 1.0
        np.testing.assert_allclose(new.data, factor * old.data, rtol=1e-6)


def test_weight_decay_is_for_the_matrices_of_the_layers():
    model = Transformer(TransformerConfig(**{**SIZES, "tie_embeddings": False}), seed=1)
    decayed = {name: parameter.size for name, parameter in model.named_parameters() if is_decayed(name, parameter)}
    assert set(decayed) == {"head.weight", *(f"blocks.{n}.{part}.weight" for n in range(2)
                                             for part in ("attention.qkv", "attention.out", "mlp.gate_up", "mlp.down"))}
    assert AdamW(model).num_decayed == sum(decayed.values())


def test_every_option_of_the_optimiser_counts():
    options = {"beta1": 0.7, "beta2": 0.8, "eps": 0.01}
    optimiser = AdamW(Transformer(CONFIG, seed=1), weight_decay=0.3, **options)
    optimiser.grad[:] = np.random.default_rng(0).standard_normal(optimiser.grad.shape)
    weights, moments = optimiser.weights.copy(), np.zeros((2, *optimiser.weights.shape), np.float32)
    decayed = np.arange(len(weights)) < optimiser.num_decayed
    for step in (1, 2):
        optimiser.step(0.1)
        for part, decay in ((decayed, 0.3), (~decayed, 0.0)):
            w, (m, v) = weights[part], moments[:, part]
            adamw_update(w, optimiser.grad[part], m, v, step, 0.1, decay, **options)
            weights[part], moments[:, part] = w, (m, v)
    np.testing.assert_array_equal(optimiser.weights, weights)


def test_parts_of_a_batch_are_the_whole_batch():
    inputs, targets = next_batch(IDS, 6, 8, np.random.default_rng(0))
    results = []
    for batches in ([(inputs, targets)], [(inputs[:2], targets[:2]), (inputs[2:4], targets[2:4]), (inputs[4:], targets[4:])]):
        model = Transformer(CONFIG, seed=1)
        optimiser = AdamW(model)
        results.append((train_step(model, optimiser, batches, 1e-3), optimiser.grad.copy()))
    (whole, grad), (parts, parts_grad) = results
    assert parts == pytest.approx(whole, rel=1e-5)
    np.testing.assert_allclose(parts_grad, grad, atol=1e-6)


# --- batches ---

@pytest.mark.parametrize("length", [8, 20])
def test_too_short_a_text(length):
    with pytest.raises(ValueError, match=f"8 tokens, but a window of {length}"):
        next_batch(IDS[:8], 2, length, np.random.default_rng(0))
    with pytest.raises(ValueError, match="8 tokens.* none of the starts leaves room for it"):
        next_batch(IDS[:8], 2, 4, np.random.default_rng(0), starts=np.array([6]))


# --- the loop ---

def test_it_learns_and_reports():
    seen, began = [], time.perf_counter()
    trainer = make_trainer(40)
    trainer.make_batches = lambda rng: [next_batch(np.tile(np.arange(19), 20), 4, 8, rng)]
    trainer.run(lambda progress: seen.append(progress) and None)
    assert [progress.step for progress in seen] == list(range(1, 41))
    assert [progress.tokens for progress in seen] == [32 * step for step in range(1, 41)]
    assert seen[-1].loss < 0.7 * seen[0].loss
    assert seen[2].lr == pytest.approx(5e-3) and seen[-1].lr == pytest.approx(1e-4)
    assert all(a.seconds < b.seconds for a, b in zip(seen, seen[1:])) and seen[-1].seconds <= time.perf_counter() - began
    validation = [next_batch(ids, 4, 8, np.random.default_rng(9)) for ids in (np.tile(np.arange(19), 20), IDS)]
    learnt, random = (evaluate(trainer.model, [batch]) for batch in validation)
    assert learnt == pytest.approx(seen[-1].loss, abs=0.5) and random > learnt + 1
    assert evaluate(trainer.model, validation) == pytest.approx((learnt + random) / 2)
    trainer.run(lambda progress: pytest.fail("all steps were taken"))


def test_a_trainer_follows_its_whole_plan():
    trainer, beside = (make_trainer(4, warmup=2, weight_decay=0.3, beta1=0.7, beta2=0.8, max_norm=0.05, final_lr=1e-3, seed=5)
                       for _ in range(2))
    trainer.run()
    optimiser, rng = AdamW(beside.model, 0.3, 0.7, 0.8), np.random.default_rng(5)
    for step in range(1, 5):
        train_step(beside.model, optimiser, beside.make_batches(rng), learning_rate(step, 4, 2, 5e-3, 1e-3), 0.05)
    np.testing.assert_array_equal(trainer.optimiser.weights, optimiser.weights)


def test_nothing_is_printed(capsys):
    make_trainer(2, warmup=1).run()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("stop", [1, 5, 11, 12])
def test_a_resumed_run_is_the_same_bit_for_bit(stop, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    whole, first, second = make_trainer(), make_trainer(), make_trainer()
    losses, resumed = [], []
    whole.run(lambda progress: losses.append(progress.loss))
    first.run(lambda progress: resumed.append(progress.loss) or progress.step == stop)
    save_checkpoint(first, path)
    second.rng.random(7)                                                # whatever happened before is replaced
    load_checkpoint(second, path)
    assert second.step == stop
    second.run(lambda progress: resumed.append(progress.loss))
    assert resumed == losses
    for name in ("weights", "m", "v"):
        np.testing.assert_array_equal(getattr(whole.optimiser, name), getattr(second.optimiser, name))
    assert whole.rng.random() == second.rng.random()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_training_stops_at_a_loss_that_is_no_number(bad, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    trainer = make_trainer()

    def poison(progress):
        save_checkpoint(trainer, path)                                  # after every step, all good
        poison.good = trainer.optimiser.weights.copy()
        if progress.step == 4:
            trainer.model.norm.weight.data[0] = bad
            poison.bad = trainer.optimiser.weights.copy()
    with pytest.raises(Diverged, match="stopped at step 5: .*step 4"):
        trainer.run(poison)
    np.testing.assert_array_equal(trainer.optimiser.weights, poison.bad)        # the failing step changed nothing
    assert trainer.step == 4
    again = make_trainer()
    load_checkpoint(again, path)
    np.testing.assert_array_equal(again.optimiser.weights, poison.good)


@pytest.mark.parametrize("changes, says", [
    (dict(steps=0), "steps is 0"), (dict(steps=2.5), "steps is 2.5"), (dict(steps=True), "steps is True"),
    (dict(steps=5, warmup=-1), "warmup is -1"), (dict(steps=5, peak_lr=0), "peak_lr is 0"),
    (dict(steps=5, peak_lr=math.nan), "peak_lr is nan.* finite number, larger than 0"),
    (dict(steps=5, final_lr=math.inf), "final_lr is inf.* finite number, 0 or larger"),
    (dict(steps=5, weight_decay=-0.1), "weight_decay is -0.1.*, 0 or larger"),
    (dict(steps=5, max_norm=0), "max_norm is 0"), (dict(steps=5, max_norm=math.inf), "max_norm is inf"),
    (dict(steps=5, beta1=1.0), "beta1 is 1.0"), (dict(steps=5, seed=-1), "seed is -1"),
    (dict(steps=5, warmup=6), "warmup is 6"), (dict(steps=5, peak_lr="a"), "peak_lr is 'a'"), (dict(steps=5, beta2=None), "beta2 is None"),
    (dict(steps=5, weight_decay=True), "weight_decay is True"), (dict(steps="5"), "steps is '5'"),
    (dict(steps=5, seed=None), "seed is None"),
])
def test_impossible_plans(changes, says):
    with pytest.raises(ValueError, match=says):
        TrainingConfig(**changes)


def test_the_least_of_everything_is_a_possible_plan():
    plan = TrainingConfig(steps=1, weight_decay=0, final_lr=0, beta1=0, beta2=0)
    assert (plan.steps, plan.weight_decay, plan.final_lr, plan.beta1, plan.beta2) == (1, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("steps, warmup", [(9, 0), (50, 5), (1000, 100), (5000, 100)])
def test_the_default_warm_up_ends_within_the_training(steps, warmup):
    assert TrainingConfig(steps=steps).warmup == warmup


def test_numbers_of_numpy_can_be_saved(tmp_path):
    """A checkpoint is JSON, which knows only Python's numbers."""
    trainer = make_trainer(np.int64(12), peak_lr=np.float32(1e-3), config=TransformerConfig(**SIZES, tie_embeddings=np.bool_(True)))
    save_checkpoint(trainer, tmp_path / "c.safetensors")
    load_checkpoint(trainer, tmp_path / "c.safetensors")


# --- files ---

def files(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("dtype, error", [(np.float32, 0), (np.float16, 1e-3)])
def test_save_and_load_a_model(dtype, error, tmp_path):
    path = str(tmp_path / "model.safetensors")
    model = Transformer(CONFIG, seed=5)
    save_model(path, model, dtype)
    assert {array.dtype for array in load_file(path).values()} == {np.dtype(dtype)}
    loaded, tokenizer = load_model(path)
    assert loaded.config == CONFIG and tokenizer.eos_id == 256
    for name, array in model.state_dict().items():
        np.testing.assert_allclose(loaded.state_dict()[name], array, atol=error)
        assert loaded.state_dict()[name].dtype == np.float32
    assert files(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool, np.complex64, np.longdouble, np.dtype(np.float32).newbyteorder(), object])
def test_only_floating_point_numbers_that_come_back_are_saved(dtype, tmp_path):
    """Integers would cut the weights off; the file knows neither longer floats nor another order of bytes."""
    if np.dtype(dtype) == np.float64:
        pytest.skip("here a long double is a float64")
    model = Transformer(CONFIG, seed=0)
    path = tmp_path / "model.safetensors"
    save_model(path, model, np.float64)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="cannot be saved as .*float16, float32 or float64"):
        save_model(path, model, dtype)
    assert path.read_bytes() == before and files(tmp_path) == ["model.safetensors"]
    loaded, _ = load_model(path)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(loaded.state_dict()[name], array)


def test_saving_weights_that_do_not_lie_row_by_row(tmp_path):
    """safetensors writes the bytes as they lie, so a transposed array would come back with its numbers mixed up."""
    model = Transformer(CONFIG, seed=5)
    for parameter in model.parameters():
        parameter.data = np.asfortranarray(parameter.data)
    save_model(tmp_path / "model.safetensors", model)
    loaded, _ = load_model(tmp_path / "model.safetensors")
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(loaded.state_dict()[name], array)


def test_a_checkpoint_is_a_model_too(tmp_path):
    trainer = make_trainer(3)
    trainer.run()
    save_checkpoint(trainer, tmp_path / "c.safetensors")
    model, _ = load_model(tmp_path / "c.safetensors")
    for name, array in trainer.model.state_dict().items():
        np.testing.assert_array_equal(model.state_dict()[name], array)
    # BLAS adds in another order, because only in the loaded model each matrix lies along its longer side
    np.testing.assert_allclose(model([[1, 2]]).data, trainer.model([[1, 2]]).data, rtol=0, atol=1e-6)


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_model(path, Transformer(CONFIG, seed=5))
    before = path.read_bytes()

    def half(arrays, name, metadata):
        name.write_bytes(b"half")
        raise OSError("No space left on device")
    monkeypatch.setattr("safetensors.numpy.save_file", half)
    with pytest.raises(OSError, match="model.safetensors cannot be written: No space"):
        save_model(path, Transformer(CONFIG, seed=6))
    assert path.read_bytes() == before and files(tmp_path) == ["model.safetensors"]


def test_what_is_saved_is_on_the_disk_before_it_takes_the_place(tmp_path, monkeypatch):
    path, model = tmp_path / "model.safetensors", Transformer(CONFIG, seed=6)
    save_model(path, Transformer(CONFIG, seed=5))
    old, seen = path.read_bytes(), []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append((path.read_bytes(), os.fstat(file).st_size)))
    save_model(path, model)
    new = path.read_bytes()
    assert new != old and seen == [(old, len(new))]


def test_where_nothing_can_be_saved(tmp_path):
    model = Transformer(CONFIG, seed=0)
    with pytest.raises(OSError, match="no folder"):
        save_model(tmp_path / "missing" / "model.safetensors", model)
    for folder in (tmp_path, ".", ".."):
        with pytest.raises(OSError, match="is a folder"):
            save_model(folder, model)
    assert files(tmp_path) == []


def test_an_error_of_safetensors_is_a_sentence(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(arrays, path, metadata):
        raise SafetensorError("I/O error: File too large")
    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="model.safetensors cannot be written: I/O error: File too large"):
        save_model(tmp_path / "model.safetensors", Transformer(CONFIG, seed=0))
    assert files(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_others_may_read_what_is_saved_if_the_user_lets_them(tmp_path):
    path, umask = tmp_path / "model.safetensors", os.umask(0o022)
    try:
        for _ in range(2):
            save_model(path, Transformer(CONFIG, seed=0))
            assert path.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(umask)


def test_files_of_others(tmp_path):
    """A whole file that is not ours is not called damaged, whatever it holds, and its arrays are not read."""
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode("ascii")
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ValueError, match="was not written by this package"):
        load_model(path)
    save_file({"weight": np.ones(3, np.float32)}, path)
    with pytest.raises(ValueError, match="was not written by this package"):
        load_model(path)
    with pytest.raises(ValueError, match="is a folder"):
        load_model(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="is a folder, a pipe or a device"):
        load_model(tmp_path / "m.safetensors")


def test_a_locked_file_is_not_called_missing(tmp_path, monkeypatch):
    """Here by a made-up error, for an administrator may read every file."""
    save_model(tmp_path / "m.safetensors", Transformer(CONFIG, seed=0))

    def locked(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    monkeypatch.setattr("tinytorch.training.trainer.open", locked, raising=False)
    with pytest.raises(ValueError, match="m.safetensors cannot be read: Permission denied.$"):
        load_model(tmp_path / "m.safetensors")


def damage(path, kind):
    data = path.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(data[:len(data) // 2])
    elif kind == "header only":
        path.write_bytes(data[:100])
    elif kind == "one bit":
        path.write_bytes(data[:-50] + bytes([data[-50] ^ 4]) + data[-49:])
    elif kind == "text":
        path.write_text("no model", encoding="utf-8")
    elif kind == "pickle":
        path.write_bytes(b"\x80\x04\x95" + data)
    elif kind == "foreign":
        save_file({"weight": np.ones(3, np.float32)}, path)
    elif kind == "foreign with metadata":
        save_file({"weight": np.ones(3, np.float32)}, path, {"format": "pt"})


KINDS = ["empty", "cut", "header only", "one bit", "text", "pickle", "foreign", "foreign with metadata"]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_and_foreign_files_are_refused(kind, tmp_path):
    path = tmp_path / "c.safetensors"
    trainer = make_trainer(4)
    trainer.run(lambda progress: progress.step == 2)
    save_checkpoint(trainer, path)
    damage(path, kind)
    before = trainer.optimiser.weights.copy()
    for load in (load_model, lambda path: load_checkpoint(trainer, path)):
        with pytest.raises(ValueError) as caught:
            load(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    np.testing.assert_array_equal(trainer.optimiser.weights, before)
    assert trainer.step == 2


def test_no_damage_goes_unnoticed(tmp_path):
    """In the numbers of any array, in a name, or in a fact."""
    path = tmp_path / "m.safetensors"
    write_file(path, {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}, {"step": 5})
    data = path.read_bytes()
    assert read_file(path)[1] == {"step": 5}
    flipped = [data[:i] + bytes([data[i] ^ 1]) + data[i + 1:] for i in range(len(data) - 16, len(data))]
    for damaged in [*flipped, data.replace(b'"a"', b'"c"'), data.replace(b": 5}", b": 6}")]:
        assert damaged != data
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="m.safetensors is damaged: its contents do not have the checksum"):
            read_file(path)


@pytest.mark.parametrize("metadata", [{}, {"facts": "{}"}, {"facts": "{", "checksum": "0"}, {"facts": "[" * 100_000, "checksum": "0"}])
def test_a_file_without_facts_is_damaged(metadata, tmp_path):
    save_file({"model.w": np.ones(3, np.float32)}, tmp_path / "m.safetensors", {"format": FORMAT, **metadata})
    with pytest.raises(ValueError, match="is damaged"):
        load_model(tmp_path / "m.safetensors")


def rewrite(path, change):
    """Change a file's facts and arrays and give it a checksum that fits."""
    from safetensors import safe_open
    with safe_open(path, framework="numpy") as file:
        facts = json.loads(file.metadata()["facts"])
    arrays = load_file(path)
    change(arrays, facts)
    write_file(path, arrays, facts)


@pytest.mark.parametrize("change, says", [
    (lambda arrays, facts: facts["config"].update(embed_dim=-4), "embed_dim is -4"),
    (lambda arrays, facts: facts["config"].update(colour="red"), "colour"),
    (lambda arrays, facts: facts.pop("config"), "config"),
    (lambda arrays, facts: facts.update(tokenizer="words"), "'words'"),
    (lambda arrays, facts: arrays.pop("model.norm.weight"), "missing: norm.weight"),
    (lambda arrays, facts: arrays.update({"model.norm.weight": np.ones(3, np.float32)}), "norm.weight has shape"),
    (lambda arrays, facts: arrays["model.norm.weight"].put(3, np.nan), "not finite"),
    (lambda arrays, facts: facts["config"].update(vocab_size=10 ** 9), "of 16000003920 weights, but it holds"),
    (lambda arrays, facts: facts["config"].update(max_seq_len=10 ** 15), "Unable to allocate"),
])
def test_files_that_hold_no_model(change, says, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(path, Transformer(CONFIG, seed=0))
    rewrite(path, change)
    with pytest.raises(ValueError, match=f"m.safetensors does not hold a model that can be .*{says}"):
        load_model(path)


@pytest.mark.parametrize("other, says", [
    (dict(config=TransformerConfig(**{**SIZES, "embed_dim": 32})), "another model.*embed_dim is 16 there and 32 here"),
    (dict(steps=13), r"another plan, so .* from it: steps is 12 there and 13 here\.$"), (dict(peak_lr=1e-3), "another plan.*peak_lr"),
    (dict(data_id="letters"), "another text"),
])
def test_a_checkpoint_of_another_training_is_refused(other, says, tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(make_trainer(), path)
    trainer = make_trainer(**other)
    before = trainer.optimiser.weights.copy()
    with pytest.raises(ValueError, match=says):
        load_checkpoint(trainer, path)
    np.testing.assert_array_equal(trainer.optimiser.weights, before)


@pytest.mark.parametrize("change, says", [
    (lambda facts: facts.pop("step"), "where its training stood"), (lambda facts: facts.update(step="x"), "where its training stood"),
    (lambda facts: facts.update(step=-5), "where its training stood"), (lambda facts: facts.update(step=13), "where its training stood"),
    (lambda facts: facts.update(step=True), "where its training stood"), (lambda facts: facts.pop("random"), "where its training stood"),
    (lambda facts: facts["random"].update(bit_generator="MT19937"), "where its training stood"),
    (lambda facts: facts["random"].update(uinteger=-1), "where its training stood"),
    (lambda facts: facts["random"].pop("state"), "where its training stood"), (lambda facts: facts.update(data={}), "another text"),
    (lambda facts: facts.update(random=5), "where its training stood"), (lambda facts: facts.update(training=5), "another plan"),
    (lambda facts: facts.pop("config"), "another model"), (lambda facts: facts.pop("data"), "another text"),
    (lambda facts: facts.clear(), "no training"),
])
def test_a_checkpoint_without_what_it_needs_changes_nothing(change, says, tmp_path):
    path = tmp_path / "c.safetensors"
    other = make_trainer()
    other.run(lambda progress: progress.step == 2)
    save_checkpoint(other, path)
    rewrite(path, lambda arrays, facts: change(facts))
    trainer = make_trainer()
    before, random = trainer.optimiser.weights.copy(), trainer.rng.bit_generator.state
    with pytest.raises(ValueError, match=says):
        load_checkpoint(trainer, path)
    np.testing.assert_array_equal(trainer.optimiser.weights, before)
    assert trainer.step == 0 and trainer.rng.bit_generator.state == random


@pytest.mark.parametrize("change, says", [
    (lambda arrays: arrays.pop("optimiser.v"), "the optimiser's state"),
    (lambda arrays: arrays.update({"optimiser.m": arrays["optimiser.m"][:5]}), "the optimiser's state"),
    (lambda arrays: arrays.pop("model.norm.weight"), "missing: norm.weight"),
])
def test_a_checkpoint_that_lacks_an_array_changes_nothing(change, says, tmp_path):
    path, trainer = tmp_path / "c.safetensors", make_trainer()
    trainer.run(lambda progress: save_checkpoint(trainer, path) or progress.step == 2)
    rewrite(path, lambda arrays, facts: change(arrays))
    trainer = make_trainer()
    before = trainer.optimiser.weights.copy()
    with pytest.raises(ValueError, match=says):
        load_checkpoint(trainer, path)
    np.testing.assert_array_equal(trainer.optimiser.weights, before)
    assert trainer.step == 0 and not trainer.optimiser.m.any() and not trainer.optimiser.v.any()


def test_a_file_whose_facts_are_no_dictionary(tmp_path):
    write_file(tmp_path / "c.safetensors", {}, ["training", "config"])
    with pytest.raises(ValueError, match="no training"):
        load_checkpoint(make_trainer(), tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match="does not hold a model"):
        load_model(tmp_path / "c.safetensors")


def test_nothing_to_train_is_refused():
    model = Transformer(CONFIG, seed=0)
    for parameter in model.parameters():
        parameter.requires_grad = False
    with pytest.raises(ValueError, match="nothing to train"):
        AdamW(model)


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path):
    """An adapter adds weights; a quantised matrix, which is no Tensor, takes some away."""
    path = tmp_path / "model.safetensors"
    more, less = Transformer(CONFIG, seed=0), Transformer(CONFIG, seed=0)
    more.blocks[0].attention.qkv.adapter = Tensor(np.zeros((16, 2)))
    less.blocks[1].mlp.down.weight = less.blocks[1].mlp.down.weight.data
    for model in (more, less):
        with pytest.raises(ValueError, match="could not be loaded"):
            save_model(path, model)
    assert list(tmp_path.iterdir()) == []


def test_frozen_parameters_stay(tmp_path):
    """Neither the gradient nor weight decay moves what does not require a gradient."""
    model = Transformer(CONFIG, seed=1)
    frozen = {name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 2}
    for parameter in frozen.values():
        parameter.requires_grad = False
    before = {name: array.copy() for name, array in model.state_dict().items()}
    optimiser = AdamW(model, weight_decay=0.5)
    train_step(model, optimiser, [next_batch(IDS, 3, 8, np.random.default_rng(0))], 1e-2)
    for name, array in model.state_dict().items():
        assert np.array_equal(array, before[name]) == (name in frozen), name
    assert optimiser.weights.size == sum(array.size for array in before.values()) - sum(p.size for p in frozen.values())


def test_a_model_is_no_checkpoint(tmp_path):
    trainer = make_trainer()
    save_model(tmp_path / "m.safetensors", trainer.model)
    with pytest.raises(ValueError, match="no training that could be resumed"):
        load_checkpoint(trainer, tmp_path / "m.safetensors")


def test_missing_files(tmp_path):
    for load in (load_model, lambda path: load_checkpoint(make_trainer(), path)):
        with pytest.raises(FileNotFoundError, match="no file"):
            load(tmp_path / "missing.safetensors")
