"""Folders as Hugging Face's transformers writes them: read and written, against transformers itself and against slow translations."""
import errno
import json

import numpy as np
import pytest

from tests.hugging_face import llama, llama_arrays
from tinytorch.core.tensor import no_grad
from tinytorch.generation.generate import generate
from tinytorch.models.hugging_face import (
    gguf_name, hugging_face_name, pairs_adjacent, pairs_half_split, read_folder_config, save_folder,
)
from tinytorch.models.pretrained import dequantize, expected_tensors, from_pretrained
from tinytorch.models.transformer import Transformer, TransformerConfig
from tinytorch.training.data import ByteTokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the extra pretrained is not installed")
pytest.importorskip("gguf", reason="the extra pretrained is not installed")
pytest.importorskip("jinja2", reason="the extra pretrained is not installed")
from safetensors import safe_open  # noqa: E402 - it stands with the packages that may be missing
from safetensors.numpy import load_file, save_file  # noqa: E402

IDS = [5, 100, 7, 250, 31, 64]
TEXTS = ["the thing, the 12 others", " a  b\t\n\nthe<|end|>the", "é 日本語 \N{GRINNING FACE} it's <|end|", ""]
CONFIGS = {"GQA, tied": {}, "MQA, own head": {"num_kv_heads": 1, "tie_embeddings": False},
           "MHA, wide heads": {"num_kv_heads": 4, "head_dim": 10, "rope_base": 500.0, "norm_eps": 1e-3}}


def small(**changes):
    config = {"vocab_size": 300, "embed_dim": 24, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "intermediate_dim": 40,
              "max_seq_len": 64, **changes}
    model = Transformer(TransformerConfig(**config), seed=3)
    rng = np.random.default_rng(4)
    for parameter in model.parameters():                # norms that are not 1, and logits that vary
        parameter.data[...] = rng.normal(1 if parameter.ndim == 1 else 0, 0.2, parameter.shape)
    return model


def logits(model, ids=IDS):
    with no_grad():
        return model([ids]).data[0]


def write_tokenizer(folder):
    """A byte-level BPE tokenizer of 262 tokens, by the package tokenizers."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("e", "r")]
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({text: i for i, text in enumerate([*letters, "th", "the", "Ġthe", "er"])}, merges))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.add_special_tokens(["<|end|>", "<|start|>"])
    bpe.save(str(folder / "tokenizer.json"))
    change(folder / "tokenizer_config.json", eos_token="<|end|>", bos_token={"content": "<|start|>", "__type": "AddedToken"},
           chat_template="{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    return bpe


def change(path, remove=(), **settings):
    """Alter a JSON file."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in (before | settings).items() if key not in remove}), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A small model with a tokenizer."""
    save_folder(tmp_path / "model", small())
    write_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def refused(folder):
    with pytest.raises(ValueError) as caught:
        from_pretrained(folder)
    text = str(caught.value)
    assert text.startswith(f"{folder} cannot be loaded: ") and text.endswith(".") and "\n" not in text
    return text


# ---- against a slow translation, and there and back

def test_names_are_translated_both_ways():
    config = small(tie_embeddings=False).config
    names = [name for name, _ in expected_tensors(config)]
    assert [gguf_name(hugging_face_name(name)) for name in names] == names
    assert {hugging_face_name(name) for name in names} == set(llama_arrays(config, small(tie_embeddings=False).state_dict()))
    for unknown in ("model.layers.0.self_attn.q_proj.bias", "model.layers.x.input_layernorm.weight", "input_layernorm.weight",
                    "model.layers.0.lm_head.weight", "visual.weight", "token_embd.weight"):
        assert gguf_name(unknown) == f"?{unknown}"


def test_pairs():
    rows = np.arange(12)[:, None]
    assert pairs_adjacent(rows, 6)[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert np.array_equal(pairs_half_split(pairs_adjacent(rows, 6), 6), rows)


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_a_folder_holds_the_translated_weights_and_gives_them_back(changes, tmp_path):
    model = small(**changes)
    save_folder(str(tmp_path / "new" / "model"), model)
    arrays = load_file(tmp_path / "new" / "model" / "model.safetensors")
    expected = llama_arrays(model.config, model.state_dict())
    assert set(arrays) == set(expected)
    for name, array in arrays.items():
        assert array.dtype == np.float32 and np.array_equal(array, expected[name]), name
    write_tokenizer(tmp_path / "new" / "model")
    again, _ = from_pretrained(tmp_path / "new" / "model")
    assert again.config == model.config
    for (name, array), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert np.array_equal(array, other), name
    assert np.array_equal(logits(model), logits(again)) and np.ptp(logits(again).argmax(axis=1)) > 0


def test_longer_floats_are_written_as_float32(tmp_path):
    model = small()
    model.norm.weight.data = model.norm.weight.data.astype(np.float64)
    save_folder(tmp_path, model)
    assert {array.dtype for array in load_file(tmp_path / "model.safetensors").values()} == {np.dtype(np.float32)}


def test_the_tokenizer_is_the_librarys(folder):
    _, ours = from_pretrained(folder)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False) == text
    assert (ours.eos_id, ours.bos_id) == (260, 261)
    assert ours.decode([299]) == "[PAD299]"                             # a row of the model that no token has
    assert ours.chat([{"role": "user", "content": "hi"}]) == "<|start|>hi<|end|>"
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!", encoding="utf-8")
    assert from_pretrained(folder)[1].chat([{"role": "user", "content": "hi"}]) == "hi!"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "chat_template.jinja is damaged" in refused(folder)
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", eos_token="\ud800", bos_token=["<|start|>"],
           chat_template=[3, {"name": "tools", "template": "x"}, {"name": "default", "template": "{{ messages[0].content }}?"}])
    ours = from_pretrained(folder)[1]
    assert ours.eos_id is ours.bos_id is None and ours.chat([{"role": "user", "content": "hi"}]) == "hi?"
    for none in ({"default": "x"}, [{"name": "tools", "template": "x"}]):
        change(folder / "tokenizer_config.json", chat_template=none)
        assert from_pretrained(folder)[1].chat_template is None
    (folder / "tokenizer_config.json").unlink()
    said = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    del said["model"]["type"]                                           # as in old files, which write a pair as one text
    said["model"]["merges"] = [" ".join(pair) for pair in said["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    ours = from_pretrained(folder)[1]
    assert ours.bos_id is None and ours.encode(TEXTS[0]) == theirs.encode(TEXTS[0], add_special_tokens=False).ids


def test_the_shipped_model_goes_out_and_comes_back(tmp_path):
    model, tokenizer = from_pretrained("tiny")
    save_folder(tmp_path, model, tokenizer)
    again, other = from_pretrained(tmp_path)
    for text in ["<eos>One day", "é\x00 27+45=<eos>\n", ""]:
        assert other.encode(text) == tokenizer.encode(text)
    everything = list(range(257))
    assert other.decode(everything) == tokenizer.decode(everything) and other.eos_id == tokenizer.eos_id
    prompt = tokenizer.encode("27+45=")
    assert tokenizer.decode(generate(again, prompt, 2)) == "27+45=72"


# ---- how the weights are stored

def bfloat16(array):
    """The upper halves of float32 numbers, as safetensors stores them."""
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)


def test_bfloat16_is_the_upper_half_of_a_float32():
    numbers = np.array([0.0, -0.0, 1.0, -2.5, 3e38, 1e-40, np.inf], np.float32)
    found = dequantize(bfloat16(numbers).view(np.uint8).reshape(-1, 2), "BF16")
    assert found.dtype == np.float32 and found.shape == (7, 1)
    assert np.array_equal(found[:, 0].view(np.uint32), numbers.view(np.uint32) & 0xFFFF0000)


def write_raw(path, arrays):
    """A .safetensors file of {name: (type, array)}, byte by byte."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, array) in arrays.items():
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("kind, convert", [("F16", lambda a: a.astype(np.float16)), ("BF16", bfloat16)])
def test_narrow_weights_in_several_files(kind, convert, folder):
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-{i % 3}.safetensors" for i, name in enumerate(whole)}
    for file in set(files.values()):
        write_raw(folder / file, {name: (kind, convert(whole[name])) for name in whole if files[name] == file})
    change(folder / "model.safetensors.index.json", weight_map=files)
    calls = []
    model, _ = from_pretrained(folder, progress=lambda done, total: calls.append((done, total)))
    exact = small()
    for (name, array), full in zip(model.state_dict().items(), exact.state_dict().values(), strict=True):
        assert array.dtype == np.float32 and np.allclose(array, full, rtol=2**-7, atol=0) and not np.array_equal(array, full), name
    sizes = [2 * array.size for array in exact.state_dict().values()]
    assert calls[-1] == (sum(sizes), sum(sizes)) and len(calls) == len(whole)


def test_a_tensor_in_two_files_is_refused(folder):
    """Whichever was taken, the other might be meant."""
    arrays, name = load_file(folder / "model.safetensors"), "model.layers.1.mlp.up_proj.weight"
    (folder / "model.safetensors").rename(folder / "b.safetensors")
    save_file({name: 2 * arrays[name]}, folder / "a.safetensors")
    change(folder / "model.safetensors.index.json", weight_map={**dict.fromkeys(arrays, "b.safetensors"), "x": "a.safetensors"})
    assert f"tensor {name} is in two files, a.safetensors and b.safetensors" in refused(folder)


def test_what_old_files_hold_besides(folder):
    arrays = load_file(folder / "model.safetensors")
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()                       # tied, and written twice
    arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
    save_file(arrays, folder / "model.safetensors")
    assert np.array_equal(logits(from_pretrained(folder)[0]), logits(small()))
    arrays["lm_head.weight"][5, 2] += 1                     # old versions of transformers ignore this head, newer ones use it
    save_file(arrays, folder / "model.safetensors")
    assert "a tensor lm_head.weight that is not the table" in refused(folder)
    change(folder / "config.json", tie_word_embeddings=False)
    difference = logits(from_pretrained(folder)[0]) - logits(small())
    assert np.flatnonzero(np.abs(difference).max(axis=0)).tolist() == [5]


START = tokenizers.processors.TemplateProcessing(single="<|start|> <|end|> $A", pair="$A $B", special_tokens=[("<|start|>", 261), ("<|end|>", 260)])


@pytest.mark.parametrize("processor, start", [
    (None, []), (tokenizers.processors.ByteLevel(), []), (START, [261, 260]),
    (tokenizers.processors.Sequence([tokenizers.processors.ByteLevel(), START]), [261, 260])], ids=["none", "bytes", "template", "both"])
def test_a_folder_says_what_stands_before_a_text(processor, start, folder):
    """The library, and so transformers, puts it there itself."""
    path = folder / "tokenizer.json"
    bpe = tokenizers.Tokenizer.from_file(str(path))
    if processor:
        bpe.post_processor = processor
    bpe.save(str(path))
    _, ours = from_pretrained(folder)
    assert ours.start_ids == start
    assert [*ours.start_ids, *ours.encode(TEXTS[0])] == bpe.encode(TEXTS[0]).ids


# ---- settings

def test_settings_have_the_defaults_of_transformers(folder):
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for key in ("num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps", "tie_word_embeddings", "hidden_act"):
        del settings[key]
    config = read_folder_config(settings)
    assert (config.num_kv_heads, config.head_dim, config.rope_base, config.norm_eps, config.tie_embeddings) == (4, 6, 1e4, 1e-6, False)
    with pytest.raises(ValueError, match="cannot share equally"):
        read_folder_config(settings | {"hidden_size": 10**400, "num_attention_heads": 7})
    assert read_folder_config({**settings, "head_dim": None, "rope_scaling": None, "mlp_bias": None, "partial_rotary_factor": 1.0}) == config
    for rope in ({"rope_theta": 7.0}, {"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}):
        assert read_folder_config(settings | rope).rope_base == 7.0


@pytest.mark.parametrize("settings, says", [
    ({"model_type": "mistral"}, "model_type is 'mistral', but only models where it is 'llama'"),
    ({"model_type": None}, "model_type is 'None'"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"attention_bias": True}, "attention_bias is 'True'"),
    ({"mlp_bias": True}, "mlp_bias is 'True'"),
    ({"quantization_config": {"bits": 4}}, "quantization_config is"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type is 'llama3', but only models where it is 'default'"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor is '0.5'"),
    ({"is_causal": False}, "is_causal is 'False'"),                     # every token sees the later ones, too
    ({"rope_scaling": "linear"}, "rope_scaling must be a table"),
    ({"max_position_embeddings": 10**9}, "more than 131072 is not supported"),
    ({"hidden_size": "24"}, "hidden_size must be a positive number"),
    ({"num_key_value_heads": 3}, "num_heads is 4, but it must be a multiple of num_kv_heads"),
    ({"tie_word_embeddings": "yes"}, "tie_embeddings is 'yes'"),
    ({"num_hidden_layers": 3}, "tensor model.layers.2"),
    ({"vocab_size": 301}, "tensor model.embed_tokens.weight must have shape (301, 24)"),
    ({"vocab_size": 261}, "tensor model.embed_tokens.weight must have shape (261, 24)"),
    ({"num_hidden_layers": 1}, "has tensors that this architecture does not use: model.layers.1"),
    ({"tie_word_embeddings": False}, "tensor lm_head.weight is missing"),
])
def test_other_models_are_refused(settings, says, folder):
    change(folder / "config.json", **settings)
    assert says in refused(folder)


def test_a_missing_setting_is_named(folder):
    change(folder / "config.json", remove=["intermediate_size"])
    assert "does not say intermediate_size" in refused(folder)


@pytest.mark.parametrize("late, early, loads", [
    ("<ab>", "<cd>", True), ("<a", "b<a", True), ("<a", "<ab", True),       # an early one that begins first is found first
    ("<ab", "<a", False), ("<ab", "ab", False), ("<ab", "abc", False), ("<abc", "ab", False), ("<ab", "bc", False),
])
def test_tokens_that_overlap_are_found_as_the_library_does_or_refused(late, early, loads, folder):
    """The library first looks for those that are not "normalized", everywhere, and then for the others in what is left."""
    path = folder / "tokenizer.json"
    bpe = tokenizers.Tokenizer.from_file(str(path))
    bpe.add_tokens([tokenizers.AddedToken(late, normalized=True), tokenizers.AddedToken(early, normalized=False)])
    bpe.save(str(path))
    texts = [f"x{one}{two}y" for one in (late, early, late[:-1]) for two in (late, early, early[1:], late[1:])]
    if loads:
        ours = from_pretrained(folder)[1]
        for text in texts:
            assert ours.encode(text) == bpe.encode(text).ids, text
    else:
        assert f"a token {late!r} that overlaps" in refused(folder)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"])
def test_damaged_settings_are_refused(name, data, folder):
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()             # the index is looked at only where this file is not
    (folder / name).write_bytes(data)
    assert f"{name} is damaged" in refused(folder)


# ---- files

def test_who_gives_the_file_of_weights_is_told_to_give_the_folder(folder):
    with pytest.raises(ValueError, match="was not written by this package.* give its folder: .*model"):
        from_pretrained(folder / "model.safetensors")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="was not written by this package: it does not say") as caught:
        from_pretrained(folder / "model.safetensors")
    assert "give its folder" not in str(caught.value)


def test_missing_files_are_named(folder):
    for name, says in (("tokenizer.json", "has no file tokenizer.json"), ("model.safetensors", "pytorch_model.bin, are not read")):
        (folder / name).rename(folder / "away")
        assert says in refused(folder)
        (folder / "away").rename(folder / name)
    index = folder / "model.safetensors.index.json"
    index.write_text("{}", encoding="utf-8")
    from_pretrained(folder)                                 # as transformers: an index beside the whole file is not looked at
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    change(index, weight_map={"a": "part.safetensors", "b": "other.safetensors"})
    assert "other.safetensors is missing, damaged or cut off: [Errno 2]" in refused(folder)         # the system's reason
    files = "../part.safetensors", "..", "", "part\n.safetensors", "\ud800.safetensors", "pytorch_model.bin", 3
    for found in (*({"a": file, "b": "part.safetensors"} for file in files), ["part.safetensors"], None):
        change(index, weight_map=found)
        assert "weight_map must name a .safetensors file of this folder" in refused(folder)
    with pytest.raises(ValueError, match="is a folder without a file config.json"):
        from_pretrained(folder.parent)


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_folder_may_have_the_name_of_a_file(name, folder):
    from_pretrained(folder.rename(folder.parent / name))


@pytest.mark.parametrize("cut", [0, 7, 8, 40, 2000, -1])
def test_cut_weights_are_refused(cut, folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    assert "model.safetensors is missing, damaged or cut off" in refused(folder)


def test_weights_that_cannot_be_read_are_refused(folder):
    arrays = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.k_proj.weight"
    for array, says in ((arrays[name].astype(np.int8), "type I8, but only F32, F16, BF16"), (arrays[name].astype(np.float64), "type F64"),
                        (arrays[name] * np.nan, f"{name} holds weights that are not numbers"),
                        (arrays[name].T.copy(), f"tensor {name} must have shape (12, 24)")):
        save_file({**arrays, name: array}, folder / "model.safetensors")
        assert says in refused(folder)
    save_file({**arrays, "model.layers.1.self_attn.q_proj.bias": np.zeros(24, np.float32)}, folder / "model.safetensors")
    assert "does not use: model.layers.1.self_attn.q_proj.bias" in refused(folder)
    save_file({**arrays, "token_embd.weight": np.zeros((300, 24), np.float32)}, folder / "model.safetensors")
    assert "does not use: token_embd.weight" in refused(folder)             # GGUF's name of another tensor


@pytest.mark.parametrize("alter, says", [
    (lambda said: said.update(normalizer={"type": "NFC"}), "Here normalizer must be None, but tokenizer.json says"),
    (lambda said: said.update(decoder=None), "decoder must be ByteLevel, but tokenizer.json says 'None'"),
    (lambda said: said.update(decoder=["ByteLevel"]), "decoder must be ByteLevel"),
    (lambda said: said.update(pre_tokenizer=None), "has no pre_tokenizer"),
    (lambda said: said["model"].update(byte_fallback=True), "byte_fallback must be None"),
    (lambda said: said["model"].update(ignore_merges=True), "ignore_merges must be None"),
    (lambda said: said["model"].update(dropout=0.5), "dropout must be None"),
    (lambda said: said["model"].update(continuing_subword_prefix="long prefix"), "continuing_subword_prefix must be None"),
    (lambda said: said["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix must be None"),
    (lambda said: said.update(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}), "says 'WordLevel'"),
    (lambda said: said.update(model=7), "model must be BPE, but tokenizer.json says 'None'"),
    (lambda said: said["model"].update(vocab=7), "is damaged"),
    *((lambda said, key=key: said["added_tokens"][0].update({key: True}), "depend on the spaces beside them")
      for key in ("lstrip", "rstrip", "single_word")),
    (lambda said: said["added_tokens"][0].update(id=-1), "is damaged"),
    (lambda said: said["model"]["vocab"].update({"!": 1}), "gives two tokens the same number"),
    (lambda said: said["model"]["vocab"].update(far=300), "has a token 300, but the model knows only 300"),
])
def test_other_tokenizers_are_refused(alter, says, folder):
    said = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    alter(said)
    (folder / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    assert says in refused(folder)


def test_writing_refuses_what_it_cannot_do(folder, tmp_path):
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="holds a model already"):
        save_folder(folder, small(num_layers=1))
    assert (folder / "model.safetensors").read_bytes() == before
    with pytest.raises(TypeError, match="writes a ByteTokenizer only"):
        save_folder(tmp_path / "other", small(), from_pretrained(folder)[1])
    assert not (tmp_path / "other").exists()


def test_a_full_disk_leaves_no_half_model(tmp_path, monkeypatch):
    write_text = type(tmp_path).write_text

    def full(path, text, **options):
        write_text(path, text[:9], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="config.json cannot be written: No space left"):
        patch.setattr(type(tmp_path), "write_text", full)
        save_folder(tmp_path, small())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    save_folder(tmp_path, small())                          # without a config.json it was no model yet
    assert (tmp_path / "config.json").exists()


# ---- against transformers

@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_transformers_reads_what_we_write(changes, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = small(**changes)
    save_folder(tmp_path, model, ByteTokenizer())
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert isinstance(peer, transformers.LlamaForCausalLM)
    with torch.no_grad():
        expected = peer(torch.tensor([IDS])).logits[0].numpy()
    assert np.abs(logits(model) - expected).max() < 1e-4
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ["é\n 27+45=<eos>", "One day"]:
        assert tokenizer.encode(text, add_special_tokens=False) == ByteTokenizer().encode(text)
    assert tokenizer.eos_token_id == peer.config.eos_token_id == 256


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_we_read_what_transformers_writes(changes, dtype, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    llama(small(**changes)).to(getattr(torch, dtype)).save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    write_tokenizer(tmp_path)
    with torch.no_grad():
        peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        expected = peer(torch.tensor([IDS])).logits[0].numpy()
    model, ours = from_pretrained(tmp_path)
    assert np.abs(logits(model) - expected).max() < 1e-4
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.eos_id == theirs.eos_token_id
