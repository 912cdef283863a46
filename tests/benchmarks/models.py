"""The four sizes that are compared, with random weights that every peer gets."""
import numpy as np

from tinytorch.models.pretrained import Blank
from tinytorch.models.transformer import Transformer, TransformerConfig

CONTEXT = 8448                                          # positions: 8,192 tokens and some to decode after them

SIZES = {
    "0.8M": dict(vocab_size=256, embed_dim=128, num_layers=4, num_heads=4, num_kv_heads=2, intermediate_dim=352),
    "7M": dict(vocab_size=4096, embed_dim=256, num_layers=8, num_heads=8, num_kv_heads=4, intermediate_dim=704),
    "30M": dict(vocab_size=12288, embed_dim=512, num_layers=8, num_heads=8, num_kv_heads=4, intermediate_dim=1408),
    "124M": dict(vocab_size=50257, embed_dim=768, num_layers=12, num_heads=12, num_kv_heads=12, intermediate_dim=2048),
}


def random_model(max_seq_len=CONTEXT, seed=0, **sizes):
    """A model whose weights make every block matter as much as the embedding, so that its greedy tokens vary."""
    model = Transformer(TransformerConfig(max_seq_len=max_seq_len, **sizes), seed=Blank())
    rng = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:                         # the embedding has its features last, the others first
            features = parameter.shape[1 if name.startswith("embedding") else 0]
            rng.standard_normal(dtype=np.float32, out=parameter.data)
            parameter.data *= np.float32(features ** -0.5)
        else:
            parameter.data[:] = rng.uniform(0.5, 1.5, parameter.shape)      # a gain of one would hide a missing one
    return model


def random_ids(model, *shape, seed=0):
    return np.random.default_rng(seed).integers(model.config.vocab_size, size=shape)


def weight_bytes(model):
    """Bytes of weights that one decode step reads: all but an embedding table that is not the head as well."""
    unread = 0 if model.config.tie_embeddings else model.embedding.weight.data.nbytes
    return sum(p.data.nbytes for p in model.parameters()) - unread


def token_bytes(config):
    """Bytes of keys and values of one token."""
    return 2 * 4 * config.num_layers * config.num_kv_heads * config.head_dim
