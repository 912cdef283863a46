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


def config(**changes):
    """The reference answer with some arguments of TransformerConfig replaced."""
    arguments = dict(
        vocab_size='tensors["token_embd.weight"].shape[0]',
        embed_dim='setting(metadata, "llama.embedding_length")',
        num_layers='setting(metadata, "llama.block_count")',
        num_heads='setting(metadata, "llama.attention.head_count")',
        num_kv_heads='setting(metadata, "llama.attention.head_count_kv", heads)',
        intermediate_dim='setting(metadata, "llama.feed_forward_length")',
        max_seq_len='setting(metadata, "llama.context_length")',
        head_dim='setting(metadata, "llama.attention.key_length", width // heads)',
        rope_base='setting(metadata, "llama.rope.freq_base", 10000.0)',
        norm_eps='setting(metadata, "llama.attention.layer_norm_rms_epsilon")',
        tie_embeddings='"output.weight" not in tensors',
    )
    arguments |= changes
    lines = [f"    {name}={value}," for name, value in arguments.items() if value is not None]
    return "\n".join(['width = setting(metadata, "llama.embedding_length")',
                      'heads = setting(metadata, "llama.attention.head_count")',
                      "return TransformerConfig(", *lines, ")"])


CONFIG = [
    Wrong("read_config", "as many key/value heads as query heads", says="head_count_kv, not head_count",
          body=config(num_kv_heads="heads")),
    Wrong("read_config", "one key/value head where the file says nothing", says="as many of them as query heads",
          body=config(num_kv_heads='setting(metadata, "llama.attention.head_count_kv", 1)')),
    Wrong("read_config", "head_dim from the width alone", says="key_length says it",
          body=config(head_dim="width // heads")),
    Wrong("read_config", "head_dim from the rotated width", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.rope.dimension_count", width // heads)')),
    Wrong("read_config", "head_dim from the width of the values", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.attention.value_length", width // heads)')),
    Wrong("read_config", "head_dim of this file as the default", says="head_dim: expected 4, but got 16",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", 16)')),
    Wrong("read_config", "head_dim from the key/value heads", says="divided by the number of query heads",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", '
                               'width // setting(metadata, "llama.attention.head_count_kv", heads))')),
    Wrong("read_config", "head_dim is the number of heads where the file says nothing", says="divided by the number of query heads",
          body=config(head_dim='setting(metadata, "llama.attention.key_length", heads)')),
    Wrong("read_config", "the usual rotary base", says="rope.freq_base",
          body=config(rope_base=None)),
    Wrong("read_config", "the rotary base of this file as the default", says="means 10000",
          body=config(rope_base='setting(metadata, "llama.rope.freq_base", 50000.0)')),
    Wrong("read_config", "the usual epsilon", says="layer_norm_rms_epsilon",
          body=config(norm_eps=None)),
    Wrong("read_config", "tied the wrong way round", says="has a head of its own",
          body=config(tie_embeddings='"output.weight" in tensors')),
    Wrong("read_config", "always tied", says="has a head of its own",
          body=config(tie_embeddings="True")),
    Wrong("read_config", "GGUF's order of the axes", says="number of rows",
          body=config(vocab_size='tensors["token_embd.weight"].shape[1]')),
    Wrong("read_config", "counts the vocabulary, which not every file has", says="and the tokens",
          body=config(vocab_size='len(metadata["tokenizer.ggml.tokens"])')),
    Wrong("read_config", "no value for what a file leaves out", says="may leave out",
          body=config(num_kv_heads='metadata["llama.attention.head_count_kv"]')),
    Wrong("read_config", "the width of the MLP and the context exchanged", says="intermediate_dim",
          body=config(intermediate_dim='setting(metadata, "llama.context_length")',
                      max_seq_len='setting(metadata, "llama.feed_forward_length")')),
    Wrong("read_config", "keys without the architecture", says="raised ValueError",
          body=config(num_layers='setting(metadata, "block_count")')),
    Wrong("read_config", "a dictionary instead of a configuration", says="must return a TransformerConfig",
          body=config().replace("return TransformerConfig(", "return dict(")),
    Wrong("read_config", "guesses the sizes that the file does not say", says="But read_config guessed",
          body=config(num_layers='metadata.get("llama.block_count", 30)')),
    Wrong("read_config", "guesses where the file says nothing, for every key", says="nothing can replace this setting", body='''
def get(key, guess):
    return metadata.get("llama." + key, guess)

width, heads = get("embedding_length", 576), get("attention.head_count", 9)
return TransformerConfig(
    vocab_size=tensors["token_embd.weight"].shape[0], embed_dim=width, num_layers=get("block_count", 30), num_heads=heads,
    num_kv_heads=get("attention.head_count_kv", heads), intermediate_dim=get("feed_forward_length", 4 * width),
    max_seq_len=get("context_length", 2048), head_dim=get("attention.key_length", width // heads),
    rope_base=get("rope.freq_base", 10000.0), norm_eps=get("attention.layer_norm_rms_epsilon", 1e-5),
    tie_embeddings="output.weight" not in tensors)
'''),
    Wrong("read_config", "the usual context length as a default", says="without llama.context_length",
          body=config(max_seq_len='setting(metadata, "llama.context_length", 2048)')),
    Wrong("read_config", "the usual epsilon as a default", says="without llama.attention.layer_norm_rms_epsilon",
          body=config(norm_eps='setting(metadata, "llama.attention.layer_norm_rms_epsilon", 1e-5)')),
    Wrong("read_config", "the width of the MLP guessed from the width", says="without llama.feed_forward_length",
          body=config(intermediate_dim='setting(metadata, "llama.feed_forward_length", 4 * width)')),
    Wrong("read_config", "a KeyError for what is missing", says="must give a ValueError",
          body=config(num_layers='metadata["llama.block_count"]')),
    Right("read_config", "with metadata.get", body=config(
        num_kv_heads='metadata.get("llama.attention.head_count_kv", heads)',
        head_dim='metadata.get("llama.attention.key_length") or width // heads',
        rope_base='metadata.get("llama.rope.freq_base", 10000)')),
    Right("read_config", "the default of TransformerConfig for head_dim", body='''
def get(key, *default):
    return setting(metadata, "llama." + key, *default)

optional = {}
if "llama.attention.key_length" in metadata:
    optional["head_dim"] = get("attention.key_length")
return TransformerConfig(tensors["token_embd.weight"].shape[0], get("embedding_length"),
                         get("block_count"), get("attention.head_count"),
                         get("attention.head_count_kv", get("attention.head_count")), get("feed_forward_length"),
                         get("context_length"), rope_base=get("rope.freq_base", 1e4),
                         norm_eps=get("attention.layer_norm_rms_epsilon"),
                         tie_embeddings=not any(name.startswith("output.") for name in tensors), **optional)
'''),
]

VIEWS_BODY = '''
views = {"token_embd.weight": weights["embedding.weight"], "output_norm.weight": weights["norm.weight"]}
if not config.tie_embeddings:
    views["output.weight"] = weights["head.weight"].T
for n in range(config.num_layers):
    qkv = weights[f"blocks.{n}.attention.qkv.weight"]
    gate_up = weights[f"blocks.{n}.mlp.gate_up.weight"]
    block = {
        "attn_norm": weights[f"blocks.{n}.attention_norm.weight"],
        "attn_q": qkv[:, :query_dim].T,
        "attn_k": qkv[:, query_dim:query_dim + kv_dim].T,
        "attn_v": qkv[:, query_dim + kv_dim:].T,
        "attn_output": weights[f"blocks.{n}.attention.out.weight"].T,
        "ffn_norm": weights[f"blocks.{n}.mlp_norm.weight"],
        "ffn_gate": gate_up[:, :config.intermediate_dim].T,
        "ffn_up": gate_up[:, config.intermediate_dim:].T,
        "ffn_down": weights[f"blocks.{n}.mlp.down.weight"].T,
    }
    views |= {f"blk.{n}.{name}.weight": view for name, view in block.items()}
return views
'''


def views(*changes):
    """A right answer with some pieces of text replaced."""
    body = VIEWS_BODY
    for old, new in changes:
        assert body.count(old) == 1, old
        body = body.replace(old, new)
    return body


VIEWS = [
    Wrong("file_views", "nothing is transposed", says="A linear layer is transposed",
          body=views(("out.weight\"].T", "out.weight\"]"))),
    Wrong("file_views", "the head is not transposed", says="A linear layer is transposed",
          body=views(('weights["head.weight"].T', 'weights["head.weight"]'))),
    Wrong("file_views", "the embedding is transposed", says="an embedding is not",
          body=views(('weights["embedding.weight"]', 'weights["embedding.weight"].T'))),
    Wrong("file_views", "reshape instead of transpose", says="reshape",
          body=views(('weights[f"blocks.{n}.mlp.down.weight"].T',
                      'weights[f"blocks.{n}.mlp.down.weight"].reshape(config.embed_dim, -1)'))),
    Wrong("file_views", "keys and values exchanged", says="attn_q, then attn_k, then attn_v",
          body=views(('"attn_k": ', '"attn_X": '), ('"attn_v": ', '"attn_k": '), ('"attn_X": ', '"attn_v": '))),
    Wrong("file_views", "gate and up exchanged", says="ffn_gate, then ffn_up",
          body=views(('"ffn_gate": ', '"ffn_X": '), ('"ffn_up": ', '"ffn_gate": '), ('"ffn_X": ', '"ffn_up": '))),
    Wrong("file_views", "a copy", says="was a copy",
          body=views(("qkv[:, :query_dim].T", "qkv[:, :query_dim].T.copy()"))),
    Wrong("file_views", "a contiguous copy of the whole matrix", says="was a copy",
          body=views(('weights[f"blocks.{n}.attention.qkv.weight"]',
                      'np.asfortranarray(weights[f"blocks.{n}.attention.qkv.weight"])'))),
    Wrong("file_views", "keys and values at the same place", says="two tensors went to the same place",
          body=views(("qkv[:, query_dim + kv_dim:].T", "qkv[:, query_dim:query_dim + kv_dim].T"))),
    Wrong("file_views", "the width for the size of the queries", says="keys and values have fewer rows than queries",
          body="query_dim = config.embed_dim\n" + views()),
    Wrong("file_views", "three equal parts", says="keys and values have fewer rows than queries",
          body="query_dim = kv_dim = (query_dim + 2 * kv_dim) // 3\n" + views()),
    Wrong("file_views", "the norms exchanged", says="holds other numbers",
          body=views(('"attn_norm": ', '"X": '), ('"ffn_norm": ', '"attn_norm": '), ('"X": ', '"ffn_norm": '))),
    Wrong("file_views", "a head even where it is tied", says="raised KeyError",
          body=views(("if not config.tie_embeddings:", "if True:"))),
    Wrong("file_views", "the tied head named too", says="no tensors with these names",
          body=views(('weights["head.weight"].T', 'weights["head.weight"].T\nelse:\n'
                      '    views["output.weight"] = weights["embedding.weight"]'))),
    Wrong("file_views", "only the first block", says="have no place",
          body=views(("range(config.num_layers)", "range(1)"))),
    Wrong("file_views", "our names", says="have no place",
          body="return {name: array.T if array.ndim == 2 else array for name, array in weights.items()}"),
    Wrong("file_views", "the MLP cut where the queries end", says="gate and up have 192 rows each",
          body=views(("gate_up[:, :config.intermediate_dim].T", "gate_up[:, :query_dim].T"),
                     ("gate_up[:, config.intermediate_dim:].T", "gate_up[:, query_dim:].T"))),
    Wrong("file_views", "the outputs of attention and MLP exchanged", says="attn_output.weight has shape (64, 96) in the file",
          body=views(('"attn_output": ', '"X": '), ('"ffn_down": ', '"attn_output": '), ('"X": ', '"ffn_down": '))),
    Wrong("file_views", "nothing is returned", says="`return` missing", body=views(("return views\n", ""))),
    Wrong("file_views", "a tuple", says="must return a dictionary", body=views(("return views\n", "return views, weights\n"))),
    Right("file_views", "columns cut, then transposed", body=views()),
    Right("file_views", "np.split and swapaxes", body=views(
        ("qkv[:, :query_dim].T", "np.split(qkv, [query_dim, query_dim + kv_dim], axis=1)[0].swapaxes(0, 1)"),
        ("gate_up[:, :config.intermediate_dim].T", "np.hsplit(gate_up, 2)[0].transpose()"))),
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
