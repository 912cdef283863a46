"""The fastest decode loop we can write in plain NumPy, for one fixed architecture: what the library is measured against.

It gives up everything that makes a model readable. The gains of the norms, the scale of the scores and the signs of
SwiGLU are multiplied into copies of the weights; all results go to buffers that exist before the first token, and so
do their views. Where the library's own layouts are the fastest known, of weights (`pack`) and of keys and values (`Slots`),
the loop has them, too.
"""
import math

import numpy as np

from tinytorch.generation.kv_cache import Slots
from tinytorch.models.transformer import pack


def fold(model):
    """[(qkv, out, gate_up, down)] of all layers and the head, every gain and scale multiplied in, all (in, out)."""
    c, folded = model.config, []
    for block in model.blocks:
        qkv = block.attention_norm.weight.data[:, None] * block.attention.qkv.weight.data
        qkv[:, :c.num_heads * c.head_dim] *= np.float32(c.head_dim ** -0.5)
        gate_up = -block.mlp_norm.weight.data[:, None] * block.mlp.gate_up.weight.data      # -gate and -up
        folded += qkv, block.attention.out.weight.data, gate_up, block.mlp.down.weight.data
    table = model.embedding.weight.data.T if c.tie_embeddings else model.head.weight.data
    *folded, head = pack([*folded, model.norm.weight.data[:, None] * table])
    return [folded[i:i + 4] for i in range(0, len(folded), 4)], head


class PlainNumPy:
    def __init__(self, model):
        self.c, self.table = model.config, model.embedding.weight.data
        self.layers, self.head = fold(model)
        self.rotations = model.blocks[0].attention.rotary.table

    def start(self, prompt, slots):
        c, (B, _) = self.c, prompt.shape
        H, Hkv, D, rows = c.num_heads, c.num_kv_heads, c.head_dim, (B,) if B > 1 else ()
        self.B, self.position = B, 0
        buffers = [Slots(B, slots, Hkv, D) for _ in self.layers]
        self.keys, self.values = [each.keys.swapaxes(2, 3) for each in buffers], [each.values for each in buffers]
        # One token of each row: a single row is a vector, because a product with a vector reads the weights fastest.
        self.x, self.normed, self.y = (np.empty((*rows, c.embed_dim), np.float32) for _ in range(3))
        self.projected = np.empty((*rows, (H + 2 * Hkv) * D), np.float32)
        heads = self.projected.reshape(B, H + 2 * Hkv, D)
        self.turned = heads[:, :H + Hkv].view(np.complex64)
        self.query = heads[:, :H].reshape(B, Hkv, H // Hkv, D)
        self.key, self.value = heads[:, H:H + Hkv], heads[:, H + Hkv:]
        self.mixed = np.empty((B, Hkv, H // Hkv, D), np.float32)
        self.merged = self.mixed.reshape(*rows, H * D)
        self.wide = np.empty((*rows, 2 * c.intermediate_dim), np.float32)
        self.gate, self.up = self.wide[..., :c.intermediate_dim], self.wide[..., c.intermediate_dim:]
        self.active = np.empty((*rows, c.intermediate_dim), np.float32)
        for begin in range(0, prompt.shape[1], 512):
            logits = self.extend(prompt[:, begin:begin + 512])
        return logits

    def norm(self):
        """x without its length, in `normed`."""
        x, d, eps = self.x, self.c.embed_dim, self.c.norm_eps
        if x.ndim == 1:
            return np.multiply(x, np.float32(1 / math.sqrt(float(x.dot(x)) / d + eps)), out=self.normed)
        scale = np.vecdot(x, x)
        scale *= np.float32(1 / d)
        scale += np.float32(eps)
        np.sqrt(scale, out=scale)
        return np.divide(x, scale[:, None], out=self.normed)

    def step(self, ids):
        """Read one token of each row; the logits (B, V) of the next."""
        x, at, end = self.x, self.position, self.position + 1
        x[...] = self.table[ids] if x.ndim == 2 else self.table[ids[0]]
        rotation = self.rotations[at]
        for (qkv, out, gate_up, down), keys, values in zip(self.layers, self.keys, self.values):
            np.dot(self.norm(), qkv, out=self.projected)
            self.turned *= rotation
            keys[..., at] = self.key
            values[:, :, at] = self.value
            scores = self.query @ keys[..., :end]
            scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            np.matmul(scores, values[:, :, :end], out=self.mixed)
            self.mixed /= np.add.reduce(scores, axis=-1, keepdims=True)
            x += np.dot(self.merged, out, out=self.y)
            np.dot(self.norm(), gate_up, out=self.wide)
            active = np.exp(self.gate, out=self.active)         # silu(g) * u = (-g) / (1 + exp(-g)) * (-u)
            active += 1
            np.divide(self.gate, active, out=active)
            active *= self.up
            x += np.dot(active, down, out=self.y)
        self.position = end
        return np.dot(self.norm(), self.head).reshape(self.B, -1)

    def extend(self, ids):
        """Read several tokens of each row; the logits (B, V) after the last."""
        c, (B, T) = self.c, ids.shape
        H, Hkv, D, I = c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_dim
        at, end, group = self.position, self.position + T, H // Hkv
        x = self.table[ids.ravel()]
        rotation = self.rotations[at:end, None]
        future = np.triu(np.full((T, T), -np.inf, np.float32), 1)

        def normed(x):
            return x / np.sqrt(np.vecdot(x, x)[:, None] * np.float32(1 / c.embed_dim) + np.float32(c.norm_eps))

        for (qkv, out, gate_up, down), keys, values in zip(self.layers, self.keys, self.values):
            heads = np.dot(normed(x), qkv).reshape(B, T, -1, D)
            turned = heads[:, :, :H + Hkv].view(np.complex64)
            turned *= rotation
            keys[..., at:end] = heads[:, :, H:H + Hkv].transpose(0, 2, 3, 1)
            values[:, :, at:end] = heads[:, :, H + Hkv:].swapaxes(1, 2)
            query = heads[:, :, :H].swapaxes(1, 2).reshape(B, Hkv, group * T, D)
            scores = query @ keys[..., :end]
            scores.reshape(B, Hkv, group, T, end)[..., at:] += future
            scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores @ values[:, :, :end]
            mixed /= np.add.reduce(scores, axis=-1, keepdims=True)
            x += np.dot(mixed.reshape(B, H, T, D).swapaxes(1, 2).reshape(B * T, H * D), out)
            wide = np.dot(normed(x), gate_up)
            active = np.exp(wide[:, :I])
            active += 1
            np.divide(wide[:, :I], active, out=active)
            active *= wide[:, I:]
            x += np.dot(active, down)
        self.position = end
        return np.dot(normed(x.reshape(B, T, -1)[:, -1]), self.head)
