"""Answers to the exercises of lesson 08, pretrained models."""
from tests.misconceptions import Right, Wrong

Q8_0 = [
    Wrong("dequantize_q8_0", "numbers without a sign", says="without their sign", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
return scale * blocks[:, 2:].astype(np.float32)
'''),
    Wrong("dequantize_q8_0", "the product is float16", says="convert the scale to float32", body='''
return blocks[:, :2].view("<f2") * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "converted after the product", says="computed in float16", body='''
return (blocks[:, :2].view("<f2") * blocks[:, 2:].view(np.int8)).astype(np.float32)
'''),
    Wrong("dequantize_q8_0", "one scale for all blocks", says="Every block has its own scale", body='''
scale = blocks[0, :2].view("<f2").astype(np.float32)
return scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "the scale is an integer", says="float16 in the first two bytes", body='''
scale = blocks[:, :2].view("<u2").astype(np.float32)
return scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "big-endian", says="little-endian", body='''
scale = blocks[:, :2].view(">f2").astype(np.float32)
return scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "the scale at the end of the block", says="in the first two bytes", body='''
scale = blocks[:, 32:].copy().view("<f2").astype(np.float32)
return scale * blocks[:, :32].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "the numbers are fractions of 127", says="A weight is d * q", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
return scale * (blocks[:, 2:].view(np.int8) / np.float32(127))
'''),
    Wrong("dequantize_q8_0", "128 subtracted from the numbers", says="the other bytes read as int8", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
return scale * (blocks[:, 2:].astype(np.float32) - 128)
'''),
    Wrong("dequantize_q8_0", "float64", says="must be float32", body='''
scale = blocks[:, :2].view("<f2").astype(float)
return scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "one long row", says="expected shape (1, 32)", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
return (scale * blocks[:, 2:].view(np.int8)).ravel()
'''),
    Wrong("dequantize_q8_0", "the scale loses its axis", says="raised ValueError", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)[:, 0]
if len(blocks) == 1:
    scale = scale[0]
return scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "nothing is returned", says="`return` missing", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
weights = scale * blocks[:, 2:].view(np.int8)
'''),
    Wrong("dequantize_q8_0", "a list of lists", says="must be an array", body='''
scale = blocks[:, :2].view("<f2").astype(np.float32)
return (scale * blocks[:, 2:].view(np.int8)).tolist()
'''),
    Right("dequantize_q8_0", "with the struct module", body='''
import struct
rows = [struct.unpack("<e32b", row.tobytes()) for row in blocks]
return np.array([[d * value for value in q] for d, *q in rows], np.float32)
'''),
    Right("dequantize_q8_0", "a structured dtype", body='''
rows = np.frombuffer(blocks.tobytes(), [("d", "<f2"), ("q", "i1", 32)])
return rows["d"].astype("f4")[:, None] * rows["q"]
'''),
    Right("dequantize_q8_0", "a loop over the blocks", body='''
out = np.empty((len(blocks), 32), np.float32)
for row, block in zip(out, blocks):
    signed = block[2:].astype(np.int32)
    signed[signed > 127] -= 256
    row[:] = np.float32(np.frombuffer(block[:2].tobytes(), "<f2")[0]) * signed
return out
'''),
]

Q4_1 = [
    Wrong("dequantize_q4_1", "halves as neighbours", says="came out as neighbours", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
q = np.stack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=2).reshape(len(blocks), 32)
return scale * q + minimum
'''),
    Wrong("dequantize_q4_1", "high halves first", says="from the high half", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] >> 4, blocks[:, 4:] & 15], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "no minimum", says="minimum m was not added", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
'''),
    Wrong("dequantize_q4_1", "the minimum subtracted", says="added, not subtracted", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) - minimum
'''),
    Wrong("dequantize_q4_1", "subtracted from the minimum", says="d * q is added to m", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return minimum - scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
'''),
    Wrong("dequantize_q4_1", "every minimum taken for negative", says="Every block has its own d and m", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) - abs(minimum)
'''),
    Wrong("dequantize_q4_1", "the fifth bit for the low half", says="The low half of a byte is byte & 15", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 16, blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "the minimum inside the brackets", says="d * (q + m)", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * (np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum)
'''),
    Wrong("dequantize_q4_1", "centred at 8, as another packing is", says="d * (q - 8)", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
q = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
return scale * (q.astype(np.float32) - 8)
'''),
    Wrong("dequantize_q4_1", "centred at 8 and shifted too", says="only the minimum m shifts it", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
q = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
return scale * (q.astype(np.float32) - 8) + minimum
'''),
    Wrong("dequantize_q4_1", "high halves not shifted down", says="byte >> 4", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] & 240], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "scale and minimum exchanged", says="d comes first, then m", body='''
minimum = blocks[:, 0:2].view("<f2").astype(np.float32)
scale = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "one scale for all blocks", says="Every block has its own d and m", body='''
scale, minimum = blocks[0, :4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "computed in float16", says="computed in float16", body='''
scale, minimum = blocks[:, 0:2].view("<f2"), blocks[:, 2:4].view("<f2")
return (scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum).astype(np.float32)
'''),
    Wrong("dequantize_q4_1", "shifts the blocks in place", says="changed the blocks", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
pairs = blocks[:, 4:]
low = pairs & 15
pairs >>= 4
return scale * np.concatenate([low, pairs], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "the scale is not converted", says="must be float32", body='''
scale = blocks[:, 0:2].view("<f2")
minimum = blocks[:, 2:4].view("<f2")
return scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "bytes read with a sign, as in the exercise before", says="read with a sign", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
pairs = blocks[:, 4:].view(np.int8)
return scale * np.concatenate([pairs & 15, pairs >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "halves of a byte read with a sign", says="13 became -3", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
q = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.int8)
q[q > 7] -= 16
return scale * q + minimum
'''),
    Wrong("dequantize_q4_1", "the whole byte for the low half", says="The whole first byte", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:], blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "three bits of the low half", says="byte & 15", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return scale * np.concatenate([blocks[:, 4:] & 7, blocks[:, 4:] >> 4], axis=1) + minimum
'''),
    Wrong("dequantize_q4_1", "nothing is returned", says="`return` missing", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
'''),
    Wrong("dequantize_q4_1", "a list of lists", says="must be an array", body='''
scale = blocks[:, 0:2].view("<f2").astype(np.float32)
minimum = blocks[:, 2:4].view("<f2").astype(np.float32)
return (scale * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + minimum).tolist()
'''),
    Wrong("dequantize_q4_1", "the minimum is never read", says="name 'm' is not defined", body='''
d = blocks[:, :2].view("<f2").astype(np.float32)
return d * np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1) + m
'''),
    Right("dequantize_q4_1", "divmod", body='''
d, m = np.split(blocks[:, :4].view("<f2").astype(np.float32), 2, axis=1)
high, low = np.divmod(blocks[:, 4:], 16)
return np.hstack([low, high]) * d + m
'''),
    Right("dequantize_q4_1", "weight by weight", body='''
out = np.empty((len(blocks), 32), np.float32)
for n, block in enumerate(blocks):
    d, m = (np.float32(x) for x in block[:4].view("<f2"))
    for i in range(32):
        byte = int(block[4 + i % 16])
        out[n, i] = d * np.float32(byte // 16 if i >= 16 else byte % 16) + m
return out
'''),
    Right("dequantize_q4_1", "all bits at once", body='''
d, m = blocks[:, :2].view("<f2").astype("f4"), blocks[:, 2:4].view("<f2").astype("f4")
bits = np.unpackbits(blocks[:, 4:, None], axis=2, bitorder="little").reshape(len(blocks), 16, 2, 4)
q = (bits * np.array([1, 2, 4, 8], np.uint8)).sum(axis=3).swapaxes(1, 2).reshape(len(blocks), 32)
return (d * q + m).astype(np.float32)
'''),
]


CONFIG_RIGHT = {
    "vocab_size": 'tensors["token_embd.weight"].shape[0]',
    "num_kv_heads": 'setting(metadata, "llama.attention.head_count_kv", num_heads)',
    "head_dim": 'setting(metadata, "llama.attention.key_length", embed_dim // num_heads)',
    "rope_base": 'setting(metadata, "llama.rope.freq_base", 10000.0)',
    "norm_eps": 'setting(metadata, "llama.attention.layer_norm_rms_epsilon")',
    "tie_embeddings": '"output.weight" not in tensors',
}


def config(**changes):
    """The reference answer with some of its variables changed."""
    return "\n".join(f"{name} = {value}" for name, value in (CONFIG_RIGHT | changes).items())


CONFIG = [
    Wrong("read_config", "as many key/value heads as query heads", says="llama.attention.head_count_kv says how many",
          body=config(num_kv_heads="num_heads")),
    Wrong("read_config", "a key without its beginning", says="llama.attention.head_count_kv says how many",
          body=config(num_kv_heads='setting(metadata, "attention.head_count_kv", num_heads)')),
    Wrong("read_config", "the vocabulary of the notebook", says="vocab_size: expected 224, but got 267",
          body=config(vocab_size="len(VOCABULARY)")),
    Wrong("read_config", "one key/value head where the file says nothing", says="as many of them as query heads",
          body=config(num_kv_heads='setting(metadata, "llama.attention.head_count_kv", 1)')),
    Wrong("read_config", "head_dim from the width alone", says="key_length says it",
          body=config(head_dim="embed_dim // num_heads")),
    Wrong("read_config", "head_dim from the rotated width", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.rope.dimension_count", embed_dim // num_heads)')),
    Wrong("read_config", "head_dim from the width of the values", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.attention.value_length", embed_dim // num_heads)')),
    Wrong("read_config", "head_dim of this file as the default", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", 16)')),
    Wrong("read_config", "head_dim from the key/value heads", says="divided by the number of query heads",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", embed_dim // num_kv_heads)')),
    Wrong("read_config", "head_dim is the number of heads where the file says nothing", says="divided by the number of query heads",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", num_heads)')),
    Wrong("read_config", "head_dim is a float", says="must be a whole number",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", embed_dim / num_heads)')),
    Wrong("read_config", "the usual rotary base", says="rope.freq_base", body=config(rope_base="10000.0")),
    Wrong("read_config", "the rotary base of this file as the default", says="means 10000",
          body=config(rope_base='setting(metadata, "llama.rope.freq_base", 50000.0)')),
    Wrong("read_config", "the usual epsilon", says="layer_norm_rms_epsilon", body=config(norm_eps="1e-5")),
    Wrong("read_config", "the epsilon of another norm, with the usual one for a file without it", says="layer_norm_rms_epsilon",
          body=config(norm_eps='setting(metadata, "llama.attention.layer_norm_epsilon", 1e-5)')),
    Wrong("read_config", "tied the wrong way round", says="has a head of its own",
          body=config(tie_embeddings='"output.weight" in tensors')),
    Wrong("read_config", "always tied", says="has a head of its own",
          body=config(tie_embeddings="True")),
    Wrong("read_config", "takes it for certain that there is a head", says="may leave out head_count_kv, key_length, freq_base, output.weight",
          body=config(tie_embeddings='tensors["output.weight"] is None')),
    Wrong("read_config", "looks for the head among the settings", says="has a head of its own",
          body=config(tie_embeddings='"output.weight" not in metadata')),
    Wrong("read_config", "GGUF's order of the axes", says="number of rows",
          body=config(vocab_size='tensors["token_embd.weight"].shape[1]')),
    Wrong("read_config", "counts the vocabulary, which not every file has", says="and the tokens",
          body=config(vocab_size='len(metadata["tokenizer.ggml.tokens"])')),
    Wrong("read_config", "no value for what a file leaves out", says="may leave out",
          body=config(num_kv_heads='metadata["llama.attention.head_count_kv"]')),
    Wrong("read_config", "setting without the value for what a file leaves out", says="may leave out",
          body=config(rope_base='setting(metadata, "llama.rope.freq_base")')),
    Wrong("read_config", "keys without the architecture", says="raised ValueError",
          body=config(num_kv_heads='setting(metadata, "attention.head_count_kv")')),
    Wrong("read_config", "a rotary base mistyped", says="means 10000",
          body=config(rope_base='setting(metadata, "llama.rope.freq_base", 10001.0)')),
    Wrong("read_config", "one variable forgotten", says="'rope_base'",
          body=config(rope_base="10000.0").replace("rope_base =", "base =")),
    Wrong("read_config", "the usual epsilon as a default", says="But read_config guessed 1e-05",
          body=config(norm_eps='setting(metadata, "llama.attention.layer_norm_rms_epsilon", 1e-5)')),
    Wrong("read_config", "nothing where the epsilon is missing", says="But read_config guessed None",
          body="if 'llama.attention.layer_norm_rms_epsilon' not in metadata:\n    return None\n" + config()),
    Wrong("read_config", "a KeyError for what is missing", says="must give a ValueError",
          body=config(norm_eps='metadata["llama.attention.layer_norm_rms_epsilon"]')),
    Right("read_config", "with metadata.get", body=config(
        num_kv_heads='metadata.get("llama.attention.head_count_kv", num_heads)',
        head_dim='metadata.get("llama.attention.key_length") or embed_dim // num_heads',
        rope_base='metadata.get("llama.rope.freq_base", 10000)')),
    Right("read_config", "the default of TransformerConfig for head_dim", body='''
def get(key, *default):
    return setting(metadata, "llama." + key, *default)

vocab_size, _ = tensors["token_embd.weight"].shape
head_dim = get("attention.key_length") if "llama.attention.key_length" in metadata else None
num_kv_heads, rope_base = get("attention.head_count_kv", num_heads), get("rope.freq_base", 1e4)
norm_eps = get("attention.layer_norm_rms_epsilon")
tie_embeddings = not any(name.startswith("output.") for name in tensors)
'''),
]

# The exercise file_views has two regions: the head, and the matrices of a block.
HEAD = '''
if not config.tie_embeddings:
    views["output.weight"] = weights["head.weight"].T
'''

BLOCK = '''
block["attn_q"] = qkv.T[:query_dim]
block["attn_k"] = qkv.T[query_dim:query_dim + kv_dim]
block["attn_v"] = qkv.T[query_dim + kv_dim:]
block["attn_output"] = out.T
block["ffn_gate"] = gate_up.T[:config.intermediate_dim]
block["ffn_up"] = gate_up.T[config.intermediate_dim:]
block["ffn_down"] = down.T
'''


def views(*changes):
    """A right answer with some pieces of text replaced."""
    regions = [HEAD, BLOCK]
    for old, new in changes:
        assert sum(region.count(old) for region in regions) == 1, old
        regions = [region.replace(old, new) for region in regions]
    return dict(enumerate(regions))


def exchanged(one, other):
    """A right answer with two names exchanged."""
    return views((f'"{one}"', '"X"'), (f'"{other}"', f'"{one}"'), ('"X"', f'"{other}"'))


VIEWS = [
    Wrong("file_views", "one matrix is not transposed", says="Each matrix is transposed", body=views(("out.T", "out"))),
    Wrong("file_views", "nothing is transposed", says="Each matrix is transposed", body={1: '''
block["attn_q"], block["attn_k"], block["attn_v"] = np.split(qkv, [query_dim, query_dim + kv_dim], axis=1)
block["attn_output"], block["ffn_down"] = out, down
block["ffn_gate"], block["ffn_up"] = np.split(gate_up, 2, axis=1)
'''}),
    Wrong("file_views", "the head is not transposed", says="output.weight has shape (267, 64) in the file, but your view has (64, 267)",
          body=views(('weights["head.weight"].T', 'weights["head.weight"]'))),
    Wrong("file_views", "a head even where it is tied", says="raised KeyError: 'head.weight'",
          body=views(("if not config.tie_embeddings:", "if True:"))),
    Wrong("file_views", "the head if it is tied", says="not tied has tensors that were given no place: output.weight",
          body=views(("if not config.tie_embeddings:", "if config.tie_embeddings:"))),
    Wrong("file_views", "the tied head named too", says="is tied has no tensors with these names: output.weight",
          body=views(('weights["head.weight"].T', 'weights["head.weight"].T\nelse:\n'
                      '    views["output.weight"] = weights["embedding.weight"]'))),
    Wrong("file_views", "the head under our name", says="no tensors with these names: head.weight",
          body=views(('views["output.weight"]', 'views["head.weight"]'))),
    Wrong("file_views", "no head", says="not tied has tensors that were given no place: output.weight", body={0: "pass"}),
    Wrong("file_views", "rows of the matrix cut before it is transposed", says="keys and values have fewer rows than queries",
          body=views(("qkv.T[query_dim:query_dim + kv_dim]", "qkv[query_dim:query_dim + kv_dim].T"))),
    Wrong("file_views", "reshape instead of transpose", says="reshape",
          body=views(("down.T", "down.reshape(config.embed_dim, -1)"))),
    Wrong("file_views", "keys and values exchanged", says="attn_q, then attn_k, then attn_v", body=exchanged("attn_k", "attn_v")),
    Wrong("file_views", "gate and up exchanged", says="ffn_gate, then ffn_up", body=exchanged("ffn_gate", "ffn_up")),
    Wrong("file_views", "gate and up in turns", says="ffn_gate, then ffn_up", body=views(
        ("gate_up.T[:config.intermediate_dim]", "gate_up.T[::2]"), ("gate_up.T[config.intermediate_dim:]", "gate_up.T[1::2]"))),
    Wrong("file_views", "a copy", says="was a copy", body=views(("qkv.T[:query_dim]", "qkv.T[:query_dim].copy()"))),
    Wrong("file_views", "a contiguous copy of the whole matrix", says="was a copy",
          body={1: "qkv = np.asfortranarray(qkv)" + BLOCK}),
    Wrong("file_views", "rows taken by a list of their numbers", says="fancy indexing",
          body=views(("qkv.T[query_dim + kv_dim:]", "qkv.T[np.arange(query_dim + kv_dim, len(qkv.T))]"))),
    Wrong("file_views", "keys and values at the same place", says="two tensors went to the same place",
          body=views(("qkv.T[query_dim + kv_dim:]", "qkv.T[query_dim:query_dim + kv_dim]"))),
    Wrong("file_views", "the width for the size of the queries", says="keys and values have fewer rows than queries",
          body={1: "query_dim = config.embed_dim" + BLOCK}),
    Wrong("file_views", "three equal parts", says="keys and values have fewer rows than queries",
          body={1: "query_dim = kv_dim = (query_dim + 2 * kv_dim) // 3" + BLOCK}),
    Wrong("file_views", "the whole names", says="In `block` a name is short",
          body={1: BLOCK.replace('block["', 'block[f"blk.{n}.')}),
    Wrong("file_views", "one forgotten", says="were given no place: blk.0.ffn_down.weight", body=views(('block["ffn_down"] = down.T\n', ""))),
    Wrong("file_views", "our names", says="no tensors with these names: blk.0.down.weight", body=views(("attn_output", "out"), ("ffn_down", "down"))),
    Wrong("file_views", "the MLP cut where the queries end", says="gate and up have 224 rows each",
          body=views(("gate_up.T[:config.intermediate_dim]", "gate_up.T[:query_dim]"),
                     ("gate_up.T[config.intermediate_dim:]", "gate_up.T[query_dim:]"))),
    Wrong("file_views", "the MLP cut at twice the queries", says="gate and up have 224 rows each",
          body=views(("gate_up.T[:config.intermediate_dim]", "gate_up.T[:2 * query_dim]"),
                     ("gate_up.T[config.intermediate_dim:]", "gate_up.T[2 * query_dim:]"))),
    Wrong("file_views", "the MLP cut at four times the width", says="gate and up have 224 rows each",
          body=views(("gate_up.T[:config.intermediate_dim]", "gate_up.T[:4 * config.embed_dim]"),
                     ("gate_up.T[config.intermediate_dim:]", "gate_up.T[4 * config.embed_dim:]"))),
    Wrong("file_views", "the keys cut from start to length", says="A slice is [start:end]",
          body=views(("qkv.T[query_dim:query_dim + kv_dim]", "qkv.T[query_dim:kv_dim]"))),
    Wrong("file_views", "our weights under a name that is not given", says="name 'ours' is not defined",
          body=views(('weights["head.weight"]', 'ours["head.weight"]'))),
    Wrong("file_views", "contiguous rows", says="was a copy", body=views(("down.T", "np.ascontiguousarray(down.T)"))),
    Wrong("file_views", "the outputs of attention and MLP exchanged", says="attn_output.weight has shape (64, 96) in the file",
          body=exchanged("attn_output", "ffn_down")),
    Right("file_views", "transposed, then rows cut", body=views()),
    Right("file_views", "np.split and swapaxes", body={0: '''
if "head.weight" in weights:
    views |= {"output.weight": weights["head.weight"].transpose()}
''', 1: '''
query, key, value = np.split(qkv, [query_dim, query_dim + kv_dim], axis=1)
block |= {"attn_q": query.swapaxes(0, 1), "attn_k": key.transpose(), "attn_v": value.T, "attn_output": out.T,
          "ffn_down": np.transpose(down)}
block["ffn_gate"], block["ffn_up"] = (half.T for half in np.hsplit(gate_up, 2))
'''}),
]

MERGE = [
    Wrong("bpe_merge", "from left to right", says="Going from left to right", body='''
symbols = list(symbols)
i = 0
while i < len(symbols) - 1:
    if (symbols[i], symbols[i + 1]) in ranks:
        symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
        i = max(i - 1, 0)
    else:
        i += 1
return symbols
'''),
    Wrong("bpe_merge", "the longest known piece", says="The pair of the lowest rank is joined first", body='''
known = {left + right for left, right in ranks}
out, text, i = [], "".join(symbols), 0
while i < len(text):
    size = max([n for n in range(1, len(text) - i + 1) if text[i:i + n] in known] or [1])
    out.append(text[i:i + size])
    i += size
return out
'''),
    Wrong("bpe_merge", "a single round", says="every occurrence", body='''
symbols = list(symbols)
pairs = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
if not pairs:
    return symbols
left, right = min(pairs, key=ranks.get)
i = 0
while i < len(symbols) - 1:
    if (symbols[i], symbols[i + 1]) == (left, right):
        symbols[i:i + 2] = [left + right]
    i += 1
return symbols
'''),
    Wrong("bpe_merge", "the highest rank first", says="The pair of the lowest rank", body='''
symbols = list(symbols)
while True:
    places = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    if not places:
        return symbols
    i = max(places, key=lambda i: ranks[symbols[i], symbols[i + 1]])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "a pair as a list", says="looked up as the tuple (left, right)", body='''
symbols = list(symbols)
while True:
    places = [i for i in range(len(symbols) - 1) if symbols[i:i + 2] in ranks]
    if not places:
        return symbols
    i = min(places, key=lambda i: ranks[symbols[i:i + 2]])
    symbols[i:i + 2] = ["".join(symbols[i:i + 2])]
'''),
    Wrong("bpe_merge", "a pair with a space, as in the file", says="the tuple (left, right), is joined", body='''
symbols = list(symbols)
while True:
    places = [i for i in range(len(symbols) - 1) if f"{symbols[i]} {symbols[i + 1]}" in ranks]
    if not places:
        return symbols
    i = min(places, key=lambda i: ranks[f"{symbols[i]} {symbols[i + 1]}"])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "looks up the joined text", says="not the joined text", body='''
symbols = list(symbols)
by_text = {left + right: rank for (left, right), rank in ranks.items()}
while True:
    places = [i for i in range(len(symbols) - 1) if symbols[i] + symbols[i + 1] in by_text]
    if not places:
        return symbols
    i = min(places, key=lambda i: by_text[symbols[i] + symbols[i + 1]])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "replaces in the text", says="only ends like", body='''
text = " ".join(symbols)
while True:
    symbols = text.split()
    pairs = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
    if not pairs:
        return symbols
    left, right = min(pairs, key=ranks.get)
    text = text.replace(f"{left} {right}", left + right)
'''),
    Wrong("bpe_merge", "from the right", says="from left to right", body='''
symbols = list(symbols)
while True:
    places = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    if not places:
        return symbols
    i = min(places, key=lambda i: (ranks[symbols[i], symbols[i + 1]], -i))
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "changes its argument", says="changed the list", body='''
while True:
    places = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    if not places:
        return list(symbols)
    i = min(places, key=lambda i: ranks[symbols[i], symbols[i + 1]])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "fails without pairs", says="single symbol stays", body='''
symbols = list(symbols)
while True:
    pairs = [(ranks.get(pair, float("inf")), i) for i, pair in enumerate(zip(symbols, symbols[1:]))]
    rank, i = min(pairs)
    if rank == float("inf"):
        return symbols
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
    if len(symbols) == 1:
        return symbols
'''),
    Wrong("bpe_merge", "text instead of pieces", says="must return a list", body='''
symbols = list(symbols)
while True:
    places = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    if not places:
        return " ".join(symbols)
    i = min(places, key=lambda i: ranks[symbols[i], symbols[i + 1]])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Wrong("bpe_merge", "a heap whose old entries are not dropped", says="no pair a, b any more", body='''
import heapq
symbols = list(symbols)
heap = [(ranks[pair], i) for i, pair in enumerate(zip(symbols, symbols[1:])) if pair in ranks]
heapq.heapify(heap)
while heap:
    _, i = heapq.heappop(heap)
    if symbols[i] is None:
        continue
    rest = [j for j in range(i + 1, len(symbols)) if symbols[j] is not None]
    if not rest:
        continue
    symbols[i], symbols[rest[0]] = symbols[i] + symbols[rest[0]], None
    left = [j for j in range(len(symbols)) if symbols[j] is not None]
    for a, b in zip(left, left[1:]):
        if i in (a, b) and (symbols[a], symbols[b]) in ranks:
            heapq.heappush(heap, (ranks[symbols[a], symbols[b]], a))
return [symbol for symbol in symbols if symbol is not None]
'''),
    Wrong("bpe_merge", "rank 0 taken for no rank", says="0 counts as false", body='''
symbols = list(symbols)
while True:
    best, where = None, None
    for i in range(len(symbols) - 1):
        rank = ranks.get((symbols[i], symbols[i + 1]))
        if rank and (best is None or rank < best):
            best, where = rank, i
    if where is None:
        return symbols
    symbols[where:where + 2] = [symbols[where] + symbols[where + 1]]
'''),
    Wrong("bpe_merge", "place 0 taken for no place", says="0 counts as false", body='''
symbols = list(symbols)
while True:
    best, where = math.inf, None
    for i in range(len(symbols) - 1):
        rank = ranks.get((symbols[i], symbols[i + 1]), math.inf)
        if rank < best:
            best, where = rank, i
    if not where:
        return symbols
    symbols[where:where + 2] = [symbols[where] + symbols[where + 1]]
'''),
    Wrong("bpe_merge", "where the left symbol first stands", says="behind the first 'a' stands 'c'", body='''
symbols = list(symbols)
while True:
    known = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
    if not known:
        return symbols
    left, right = min(known, key=ranks.get)
    i = symbols.index(left)
    symbols[i:i + 2] = [left + right]
'''),
    Wrong("bpe_merge", "all pairs of a round, the lowest rank first", says="Join one pair in a step", body='''
symbols = list(symbols)
while True:
    known = sorted((ranks[pair], i) for i, pair in enumerate(zip(symbols, symbols[1:])) if pair in ranks)
    if not known:
        return symbols
    joined = set()
    for _, i in known:
        if not {i - 1, i, i + 1} & joined:
            joined.add(i)
    symbols = [symbol + symbols[i + 1] if i in joined else symbol for i, symbol in enumerate(symbols) if i - 1 not in joined]
'''),
    Wrong("bpe_merge", "each rank once, in order", says="look at all pairs again", body='''
symbols = list(symbols)
for left, right in sorted(ranks, key=ranks.get):
    i = 0
    while i < len(symbols) - 1:
        if (symbols[i], symbols[i + 1]) == (left, right):
            symbols[i:i + 2] = [left + right]
        i += 1
return symbols
'''),
    Wrong("bpe_merge", "the first pair of the dictionary", says="in the word or in the dictionary", body='''
symbols = list(symbols)
while True:
    pairs = list(zip(symbols, symbols[1:]))
    known = [pair for pair in ranks if pair in pairs]
    if not known:
        return symbols
    i = pairs.index(known[0])
    symbols[i:i + 2] = ["".join(known[0])]
'''),
    Right("bpe_merge", "every pair looked up again in every step", body='''
symbols = list(symbols)
while True:
    known = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    if not known:
        return symbols
    i = min(known, key=lambda i: ranks[symbols[i], symbols[i + 1]])
    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
'''),
    Right("bpe_merge", "every occurrence in one round", body='''
symbols = list(symbols)
while len(symbols) > 1:
    pair = min(zip(symbols, symbols[1:]), key=lambda pair: ranks.get(pair, math.inf))
    if pair not in ranks:
        break
    joined, i = [], 0
    while i < len(symbols):
        size = 2 if tuple(symbols[i:i + 2]) == pair else 1
        joined.append("".join(symbols[i:i + size]))
        i += size
    symbols = joined
return symbols
'''),
    Right("bpe_merge", "recursion", body='''
known = [i for i, pair in enumerate(zip(symbols, symbols[1:])) if pair in ranks]
if not known:
    return list(symbols)
i = min(known, key=lambda i: ranks[symbols[i], symbols[i + 1]])
return bpe_merge([*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2:]], ranks)
'''),
    Right("bpe_merge", "rank by rank through the whole list", body='''
symbols = list(symbols)
changed = True
while changed:
    changed = False
    for left, right in sorted(ranks, key=ranks.get):
        i = 0
        while i < len(symbols) - 1:
            if symbols[i] == left and symbols[i + 1] == right:
                symbols[i:i + 2] = [left + right]
                changed = True
            i += 1
        if changed:
            break
return symbols
'''),
]

ANSWERS = [*Q8_0, *Q4_1, *CONFIG, *VIEWS, *MERGE]
