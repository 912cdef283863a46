"""Writes small GGUF files for tests: a Llama of any sizes with random weights, and a byte-level tokenizer."""
import math

import gguf
import numpy as np

from tinytorch.models.pretrained import byte_letters
from tinytorch.models.transformer import TransformerConfig

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x"]
MERGES = [("h", "e"), ("l", "l"), ("Ġ", "t"), ("Ġt", "he"), ("e", "ll"), ("h", "ell"), ("he", "ll"), ("1", "2")]
VOCABULARY = SPECIAL + byte_letters() + [left + right for left, right in MERGES]
TEMPLATE = ("{% for m in messages %}\n    {% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\n"
            "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\n"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tiny_config(**changes):
    sizes = dict(vocab_size=len(VOCABULARY), embed_dim=64, num_layers=2, num_heads=6, num_kv_heads=2,
                 intermediate_dim=224, max_seq_len=64, head_dim=16, rope_base=50000.0, norm_eps=1e-6, tie_embeddings=False)
    return TransformerConfig(**{**sizes, **changes})


def tensor_shapes(c):
    """The tensors of the file, in NumPy's order of the axes."""
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes = {"token_embd": (c.vocab_size, c.embed_dim), "output_norm": (c.embed_dim,)}
    if not c.tie_embeddings:
        shapes["output"] = (c.vocab_size, c.embed_dim)
    for n in range(c.num_layers):
        block = {"attn_norm": (c.embed_dim,), "attn_q": (q, c.embed_dim), "attn_k": (kv, c.embed_dim),
                 "attn_v": (kv, c.embed_dim), "attn_output": (c.embed_dim, q), "ffn_norm": (c.embed_dim,),
                 "ffn_gate": (c.intermediate_dim, c.embed_dim), "ffn_up": (c.intermediate_dim, c.embed_dim),
                 "ffn_down": (c.embed_dim, c.intermediate_dim)}
        shapes |= {f"blk.{n}.{name}": shape for name, shape in block.items()}
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def random_blocks(kind, shape, rng):
    """Random bytes that are a valid tensor of this type; for types that the gguf package reads but cannot write."""
    size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (math.prod(shape) // size, nbytes), dtype=np.uint8)
    for at in {"Q4_K": (0, 2), "Q6_K": (208,)}[kind.name]:                # where the float16 scales of a block stand
        blocks[:, at:at + 2] = rng.uniform(1e-4, 3e-4, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def tiny_tensors(config, kind="F32", seed=0):
    """{name: (packed array, type)}: the matrices of the given type, the norms float32."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        used = gguf.GGMLQuantizationType[kind if len(shape) > 1 else "F32"]
        if used.name.endswith("_K"):
            packed = random_blocks(used, shape, rng)
        else:
            packed = gguf.quantize(rng.normal(len(shape) == 1, 0.2, shape).astype(np.float32), used)
        tensors[name] = packed, used
    return tensors


def tiny_metadata(config, **changes):
    """{key: value}; a keyword changes or, with None, removes an entry: dots are written as double underscores."""
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": config.max_seq_len, "llama.embedding_length": config.embed_dim,
        "llama.block_count": config.num_layers, "llama.feed_forward_length": config.intermediate_dim,
        "llama.attention.head_count": config.num_heads, "llama.attention.head_count_kv": config.num_kv_heads,
        "llama.attention.key_length": config.head_dim, "llama.attention.value_length": config.head_dim,
        "llama.rope.dimension_count": config.head_dim, "llama.rope.freq_base": config.rope_base,
        "llama.attention.layer_norm_rms_epsilon": config.norm_eps, "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": VOCABULARY,
        "tokenizer.ggml.token_type": [3, 3, 3, 4] + [1] * (len(VOCABULARY) - 4),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.chat_template": TEMPLATE,
    }
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def write_gguf(path, metadata, tensors):
    writer = gguf.GGUFWriter(path, metadata.get("general.architecture", "llama"))
    writer.kv_data[0].clear()                                             # it starts with general.architecture
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    for name, (packed, kind) in tensors.items():
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny(path, config=None, kind="F32", seed=0, **changes):
    """Write a whole model; `changes` are those of `tiny_metadata`."""
    config = config or tiny_config()
    return write_gguf(path, tiny_metadata(config, **changes), tiny_tensors(config, kind, seed))
