"""The recipe of the tiny model."""
import re

import numpy as np
import pytest

from tinytorch.models.transformer import Transformer
from tinytorch.training import tiny
from tinytorch.training.data import THINGS, ByteTokenizer, check_story, decided, held_out_sums
from tinytorch.training.tiny import (
    RECIPE, STAGES, TINY, Part, Stage, TinyData, beginnings, consistent, examine, grammatical, sum_rows, train_tiny,
)
from tinytorch.training.trainer import TrainingConfig, load_model


def test_a_model_that_knows_nothing_fails_the_examination():
    shares = examine(Transformer(TINY, seed=0), stories=2, sums=20)
    assert set(shares.values()) == {0.0} and len(shares) == 7


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
    questions = {text.removeprefix("<eos>").split("=")[0] for text in map(ByteTokenizer().decode, data.sums[0])}
    assert len(questions) > 5000 and not questions & held
    for ids, _, _ in data.stories.values():
        assert "=" not in ByteTokenizer().decode(ids)


SHORT = [Stage(2, length=160, stories=("one child", 2), decided=[("one child", 3)], letters=1, sums=0),
         Stage(4, length=256, stories=("all", 4), decided=[("whose", 5)], letters=2, sums=6),
         Stage(8, length=200, stories=("all", 0), decided=[("whose", 2), ("halves", 1)], letters=99, sums=4),
         Stage(9, length=200, stories=("all", 3), decided=[], letters=99, sums=2)]


def test_the_stages_of_the_training():
    """Which kinds of rows a step reads, and that later every other sum begins as a user would begin it."""
    data, decode = TinyData(stories=60, sums=300, stages=SHORT), ByteTokenizer().decode
    for step, shapes, bare in ((0, [(2, 160), (3, 160)], None), (1, [(2, 160), (3, 160)], None),
                               (2, [(4, 256), (5, 256), (6, 12)], 0), (3, [(4, 256), (5, 256), (6, 12)], 0),
                               (4, [(2, 200), (1, 200), (4, 12)], 2), (7, [(2, 200), (1, 200), (4, 12)], 2), (8, [(3, 200), (2, 12)], 1)):
        batches = data.batches(np.random.default_rng(step), step)
        assert [inputs.shape for inputs, _ in batches] == [targets.shape for _, targets in batches] == shapes
        inputs, targets = batches[0]                                        # in stories everything counts
        assert (targets[:, :-1] == inputs[:, 1:]).all() == (step not in (4, 7))
        if bare is None:
            continue
        inputs, targets = batches[-1]
        assert sum(row[0] != 256 for row in inputs) == bare
        for row, target in zip(inputs, targets):
            question, answer = decode(row[:(row == ord("=")).argmax()]), decode(target[target != -100])
            a, b = map(int, question.removeprefix("<eos>").split("+"))
            assert answer == f"{a + b}<eos>"


def test_the_kinds_of_stories():
    data, decode = TinyData(stories=60, sums=10, stages=SHORT), ByteTokenizer().decode
    children, sentences = {}, {}
    for kind, (ids, _, starts) in data.stories.items():
        checks = [check_story(text) for text in decode(ids).split("<eos>")[1:-1]]
        assert len(checks) == 60 and all(check.consistent for check in checks)
        children[kind] = {check.children for check in checks}
        sentences[kind] = {len(check.sentences) for check in checks}
        assert all(ids[start] == 256 or ids[start - 1] == 256 for start in starts)
    assert children == {"one child": {1}, "all": {1, 2}, "whose": {2}, "halves": {2}}
    assert sentences == {"one child": {4, 5, 6}, "all": {4, 5, 6, 7}, "whose": {7}, "halves": {7}}
    middle = [re.split(r"(?<=\.) ", text)[2:-1] for text in decode(data.stories["whose"][0]).split("<eos>")[1:-1]]
    assert all(re.search("|".join(THINGS), sentence) for sentences in middle for sentence in sentences)


@pytest.mark.parametrize("step, batch, letters", [(0, 1, 1), (2, 1, 2), (4, 0, 99), (4, 1, 99)])
def test_of_decided_rows_only_what_the_story_decides_counts(step, batch, letters):
    data = TinyData(stories=60, sums=10, stages=SHORT)
    inputs, targets = data.batches(np.random.default_rng(step), step)[batch]
    for row, target in zip(inputs, targets):
        text = ByteTokenizer().decode(row).removeprefix("<eos>").split("<eos>")[0]
        begun = max(data.stories, key=lambda kind: text in ByteTokenizer().decode(data.stories[kind][0]))
        whole = ByteTokenizer().decode(data.stories[begun][0])
        story = next(story for story in whole.split("<eos>") if story.startswith(text))
        first = int(row[0] != 256)                                          # without an <eos>, the first byte is no target
        expected = [byte if 0 < place <= letters else -100
                    for byte, place in zip(story.encode("utf-8"), decided(story, halves=begun == "halves"))][first:]
        length = min(len(expected), len(target))
        assert list(target[:length]) == expected[:length] and (target[:length] != -100).sum() > 5


def test_the_stages_end_with_the_parts():
    ends = [stage.end for stage in STAGES]
    assert ends == sorted(ends) and ends[-1] == sum(part.steps for part in RECIPE)
    assert all(part.steps <= part.config.steps for part in RECIPE)


def stop_after(saves, monkeypatch):
    """From now on the training is interrupted when it has saved that often."""
    honest = tiny.save_checkpoint

    def stop(trainer, path):
        nonlocal saves
        honest(trainer, path)
        saves -= 1
        if not saves:
            raise KeyboardInterrupt
    monkeypatch.setattr(tiny, "save_checkpoint", stop)


@pytest.mark.parametrize("saves, says", [(1, [2]), (2, [4]), (3, [4, 6])])
def test_the_recipe_goes_on_where_it_stopped(saves, says, tmp_path, monkeypatch):
    """In the first part, whose schedule is left early; at its end; and in the second part."""
    recipe = [Part(TrainingConfig(steps=9, warmup=1), 4), Part(TrainingConfig(steps=4, warmup=1), 4)]
    data = TinyData(stories=30, sums=100, stages=SHORT)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir(), parts.mkdir()
    train_tiny(whole, recipe=recipe, data=data, save_every=9)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(saves, patch)
        train_tiny(parts, recipe=recipe, data=data, save_every=2)
    said = []
    train_tiny(parts, said.append, recipe=recipe, data=data, save_every=9)
    assert said == [f"going on after step {step}" for step in says]
    first, second = (load_model(folder / "tiny.safetensors")[0].state_dict() for folder in (whole, parts))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(folder, say):
        say("step 50")
        raise KeyboardInterrupt
    monkeypatch.setattr(tiny, "train_tiny", interrupted)
    assert tiny.main(str(tmp_path)) == 130
    out, err = capsys.readouterr()
    assert out == "step 50\n"
    assert err.strip().splitlines() == ["Stopped. To go on from the last checkpoint: "
                                        f"python -m tinytorch.training.tiny {tmp_path}"]


@pytest.mark.parametrize("children", [1, 2])
def test_the_beginnings_of_stories(children):
    texts = beginnings(children, 30)
    assert len(set(texts)) == 30 and texts == beginnings(children, 30)
    for text in texts:
        check = check_story(text)
        assert check.consistent and check.children == children and len(check.sentences) == 2


def test_what_is_counted():
    good = "One day, Mia played with her red ball. She was happy. Then she lost her red ball. She went home."
    checks = [check_story(text) for text in (good, good.replace("lost her red", "lost her blue"),
                                             good.replace("happy", "hapy"), good.split(" Then")[0])]
    assert consistent(checks) == 1 / 4                  # another colour, a sentence of no grammar, and a text of two sentences
    assert grammatical(checks) == 13 / 14 and grammatical(checks, after=2) == 1
