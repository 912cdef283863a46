"""The recipe of the tiny model."""
import numpy as np
import pytest

from tinytorch.models.transformer import Transformer
from tinytorch.training import tiny
from tinytorch.training.data import ByteTokenizer, held_out_sums
from tinytorch.training.tiny import TINY, TinyData, examine, sum_rows, train_tiny
from tinytorch.training.trainer import TrainingConfig, load_model


def test_a_model_that_knows_nothing_fails_the_examination():
    shares = examine(Transformer(TINY, seed=0), stories=2, sums=20)
    assert set(shares.values()) == {0.0} and len(shares) == 6


def test_rows_of_sums():
    inputs, targets = sum_rows(["27+44=71", "127+45=172"])
    assert inputs.shape == targets.shape == (2, 11)
    decode = ByteTokenizer().decode
    assert decode(inputs[0]) == "<eos>27+44=71<eos><eos>" and decode(inputs[1]) == "<eos>127+45=172"
    for row, after, answer in ((0, "=", "71<eos>"), (1, "=", "172<eos>")):
        counted = targets[row] != -100
        assert decode(targets[row][counted]) == answer
        assert chr(inputs[row][counted.argmax()]) == after                  # the first one that counts is predicted at "="


def test_no_held_out_sum_is_in_the_data():
    data = TinyData(stories=10, sums=20_000)
    held = {f"{a}+{b}" for a, b in held_out_sums()}
    questions = {text.removeprefix("<eos>").split("=")[0] for text in map(ByteTokenizer().decode, data.inputs)}
    assert len(questions) > 5000 and not questions & held
    assert "=" not in ByteTokenizer().decode(data.ids)


def test_the_mix_in_the_course_of_the_training():
    """First many sums, each after an <eos>; then mostly stories, and every other text as a user would begin it."""
    data, decode = TinyData(stories=20, sums=300), ByteTokenizer().decode
    for part, step, (stories, sums), bare in ((1, 0, (3, 112), 0), (1, data.early - 1, (3, 112), 0),
                                              (1, data.early, (8, 48), 24), (2, 0, (8, 32), 16)):
        (story, _), (inputs, targets) = data.batches(np.random.default_rng(0), part, step)
        assert story.shape == (stories, 256) and inputs.shape == targets.shape == (sums, inputs.shape[1])
        assert sum(row[0] != 256 for row in inputs) == bare
        assert bool((story[:, 0] != 256).any()) == bool(bare)
        for row, target in zip(inputs, targets):
            question, answer = decode(row[:(row == ord("=")).argmax()]), decode(target[target != -100])
            a, b = map(int, question.removeprefix("<eos>").split("+"))
            assert answer == f"{a + b}<eos>"


@pytest.mark.parametrize("saves, says", [(1, ["part 1: going on after step 2"]),
                                         (3, ["part 1: going on after step 4", "part 2: going on after step 2"])])
def test_the_recipe_goes_on_where_it_stopped(saves, says, tmp_path, monkeypatch):
    data, recipe = TinyData(stories=20, sums=100), [TrainingConfig(steps=4, warmup=1), TrainingConfig(steps=3, warmup=1)]
    data.early, data.rows = 1, ((1, 4), (2, 2), (1, 1))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir(), parts.mkdir()
    train_tiny(whole, recipe=recipe, data=data, save_every=9)

    honest = tiny.save_checkpoint
    def stop(trainer, path):
        nonlocal saves
        honest(trainer, path)
        saves -= 1
        if not saves:
            raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(tiny, "save_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            train_tiny(parts, recipe=recipe, data=data, save_every=2)
    said = []
    train_tiny(parts, said.append, recipe=recipe, data=data, save_every=9)
    assert said == says
    first, second = (load_model(folder / "tiny.safetensors")[0].state_dict() for folder in (whole, parts))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
