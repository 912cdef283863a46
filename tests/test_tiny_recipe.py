"""The recipe of the tiny model."""
import re

import numpy as np
import pytest

from tinytorch.generation.generate import Sampler
from tinytorch.models.transformer import Transformer
from tinytorch.training import tiny
from tinytorch.training.data import THINGS, ByteTokenizer, check_story, decided, held_out_sums
from tinytorch.training.tiny import (
    RECIPE, STAGES, TINY, Part, Stage, TinyData, beginnings, complete, consistent, examine, follow_part, grammatical, sum_rows,
    train_tiny,
)
from tinytorch.training.trainer import Progress, TrainingConfig, load_model

ALONE = "One day, Mia played with her red ball. She took her red ball to the park. The red ball was wet. In the end, Mia went home."


def test_a_model_that_knows_nothing_fails_the_examination():
    shares = examine(Transformer(TINY, seed=0), stories=2, sums=20)
    assert set(shares.values()) == {0.0} and len(shares) == 7


def test_what_an_examination_asks_and_counts(monkeypatch):
    """Of a model whose answers are ready: each share is another one."""
    asked, other, odd = [], ALONE.replace("end, Mia", "end, Tom"), ALONE + " Mia was hapy."
    stories = iter([[ALONE] * 4 + [other], [ALONE] * 3 + [other, odd], [ALONE] * 7 + [odd] * 3])

    def answer(model, prompts, most, sampler=None, seed=0, rows=50):
        asked.append((prompts, most, sampler and sampler.temperature, seed))
        missed = len(asked) - 3                                 # one of the first list of sums, two of the other
        return next(stories, None) or ["?"] * missed + [f"{text}{sum(map(int, text[:-1].split('+')))}" for text in prompts[missed:]]
    monkeypatch.setattr(tiny, "complete", answer)
    assert examine(None, stories=5, sums=8, seed=3) == {
        "grammatical, greedy": 20 / 21, "consistent, greedy, one child": 4 / 5, "consistent, greedy, two children": 3 / 5,
        "grammatical, temperature 0.8": 40 / 43, "consistent, temperature 0.8": 7 / 10, "held-out sums": 7 / 8, "trained sums": 6 / 8}
    *told, out, seen = asked
    assert told == [(beginnings(1, 5), 320, None, 0), (beginnings(2, 5), 320, None, 0), ([""] * 10, 360, 0.8, 3)]
    assert all(len(set(prompts)) == 8 and most == 5 and sampler is None for prompts, most, sampler, _ in (out, seen))
    held = {f"{a}+{b}=" for a, b in held_out_sums()}
    assert held.issuperset(out[0]) and held.isdisjoint(seen[0]) and all(re.fullmatch(r"\d\d\+\d\d=", text) for text in seen[0])


def test_completing_does_not_depend_on_the_neighbours():
    model, prompts = Transformer(TINY, seed=1), ["", "27+44=", "One day", "b", "<eos>"]
    for parameter in model.parameters():                        # or each text would repeat one letter
        parameter.data = 4 * parameter.data
    alone = [complete(model, [prompt], 6)[0] for prompt in prompts]
    assert complete(model, prompts, 6, rows=2) == alone and len(set(alone)) == 4 and alone[1].startswith("27+44=")
    assert len(set(complete(model, [""] * 6, 6, Sampler(temperature=1.0), rows=2))) == 6
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
            equals = (row == ord("=")).argmax()
            a, b = map(int, decode(row[:equals]).removeprefix("<eos>").split("+"))
            assert decode(target[target != -100]) == f"{a + b}<eos>" and (target != -100).argmax() == equals


def test_where_windows_begin():
    """At each story, with and without the <eos> before it, if there is a target behind the last token of the longest window."""
    n = len(ALONE)
    for length, expected in ((n, [0, 1, n + 1, n + 2]), (n + 1, [0, 1, n + 1])):
        data = TinyData(stories=1, sums=1, stages=[SHORT[0]._replace(length=length), SHORT[1]._replace(length=9)])
        ids, letters, starts = data.one_after_another([ALONE, ALONE], halves=False)
        assert sorted(starts) == expected
        assert list(letters) == [0, *decided(ALONE), 0, *decided(ALONE), 0] and len(ids) == len(letters)


def test_the_kinds_of_stories():
    data, decode = TinyData(stories=60, sums=10, stages=SHORT), ByteTokenizer().decode
    children, sentences = {}, {}
    for kind, (ids, _, _) in data.stories.items():
        checks = [check_story(text) for text in decode(ids).split("<eos>")[1:-1]]
        assert len(checks) == 60 and all(check.consistent for check in checks)
        children[kind] = {check.children for check in checks}
        sentences[kind] = {len(check.sentences) for check in checks}
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
    data, steps = TinyData(stories=30, sums=100, stages=SHORT), []
    honest = data.batches
    monkeypatch.setattr(data, "batches", lambda rng, step: steps.append(step) or honest(rng, step))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir(), parts.mkdir()
    train_tiny(whole, recipe=recipe, data=data, save_every=9)
    assert steps == list(range(8))
    assert {path.name for path in whole.iterdir()} == {"tiny.safetensors", "tiny-part-1.safetensors", "tiny-part-2.safetensors"}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(saves, patch)
        train_tiny(parts, recipe=recipe, data=data, save_every=2)
    said = []
    train_tiny(parts, said.append, recipe=recipe, data=data, save_every=9)
    assert said == [f"going on after step {step}" for step in says]
    first, second = (load_model(folder / "tiny.safetensors")[0].state_dict() for folder in (whole, parts))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_what_is_said_of_the_training(tmp_path, monkeypatch):
    """Of a part that begins after 60 steps and goes on after 10 of its own; each takes 2 seconds and reads 3000 tokens."""
    said, saved = [], []

    class Stepping:
        def __init__(self, *arguments):
            self.step = 0

        def run(self, after_step):
            for taken in range(1, 1000):
                self.step += 1
                if after_step(Progress(self.step, 1.0 if taken == 1 else 3.0, 0.0, 0.0, 3000 * taken, 2.0 * taken)):
                    break
    monkeypatch.setattr(tiny, "Trainer", Stepping)
    monkeypatch.setattr(tiny, "load_checkpoint", lambda trainer, path: setattr(trainer, "step", 10))
    monkeypatch.setattr(tiny, "save_checkpoint", lambda trainer, path: saved.append(trainer.step))
    follow_part(None, Part(None, 100), 60, None, tmp_path, said.append, save_every=30)
    assert saved == [30, 60, 90, 100]
    assert said == ["going on after step 70",
                    f"step 100, loss {3 - 2 * 0.98**29:.4f}, 1,500 tokens per second, 2.0 minutes left until step 160",
                    f"step 150, loss {3 - 2 * 0.98**79:.4f}, 1,500 tokens per second, 0.3 minutes left until step 160"]


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
                                             good.replace("happy", "hapy"), good.removesuffix(" She went home."))]
    assert consistent(checks) == 1 / 4                  # another colour, a sentence of no grammar, and a text of three sentences
    assert grammatical(checks) == 14 / 15 and grammatical(checks, after=2) == 1
    assert grammatical(checks[:1], after=3) == 1 and grammatical(checks[:1], after=4) == 0      # one sentence of its own, and none
