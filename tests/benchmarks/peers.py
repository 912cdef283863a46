"""What people use instead, each with the same weights and the same four methods.

start(prompt, slots): read the prompt, ints (B, P), with a new cache that has room for `slots` tokens.
step(ids): read one more token of each row, ints (B,).  Both return the logits (B, V) of the next token, an ndarray.
generate(prompt, n, after): write n greedy tokens the way its users do it, and call `after(ids)` with each step's.
set_threads(n), where it has threads of its own besides NumPy's.
"""
import importlib.util
import inspect
import warnings

import numpy as np

from tests import hugging_face
from tests.benchmarks import plain_numpy
from tinytorch.core.tensor import no_grad
from tinytorch.generation.generate import stream
from tinytorch.generation.kv_cache import KVCache


class Peer:
    needs = ()                                          # packages

    @classmethod
    def installed(cls):
        return all(importlib.util.find_spec(package) for package in cls.needs)

    def set_threads(self, n):
        """NumPy's are set for the whole process."""

    def generate(self, prompt, n, after):
        logits = self.start(prompt, prompt.shape[1] + n)
        for i in range(n):
            ids = logits.argmax(axis=-1)
            after(ids)
            if i < n - 1:
                logits = self.step(ids)


class TinyTorch(Peer):
    """Ours: `stream`, and the model's one forward with a KVCache."""
    name = "tinytorch"

    def __init__(self, model):
        self.model = model

    def start(self, prompt, slots):
        self.cache = KVCache.for_model(self.model, len(prompt), slots)
        for begin in range(0, prompt.shape[1], 512):
            logits = self.extend(prompt[:, begin:begin + 512])
        return logits

    def extend(self, ids):
        with no_grad():
            return self.model(ids, cache=self.cache, logits_to_keep=1).data[:, -1]

    def step(self, ids):
        return self.extend(ids[:, None])

    def generate(self, prompt, n, after):
        single = len(prompt) == 1
        for ids in stream(self.model, prompt[0] if single else prompt, n):
            after(np.ravel(ids))


class Uncached(Peer):
    """The same model without a cache: everything is computed again for each token."""
    name = "tinytorch, uncached"

    def __init__(self, model):
        self.model = model

    def start(self, prompt, slots):
        self.history = prompt
        with no_grad():
            return self.model(self.history, logits_to_keep=1).data[:, -1]

    def step(self, ids):
        return self.start(np.concatenate([self.history, ids[:, None]], axis=1), None)


class PlainNumPy(plain_numpy.PlainNumPy, Peer):
    name = "plain NumPy, tuned"


class TorchEager(Peer):
    """A hand-written PyTorch loop with a static cache: fused weights, (in, out), which it reads fastest at batch 1."""
    name = "PyTorch eager"
    needs = ("torch",)

    def __init__(self, model):
        import torch
        self.torch, self.c = torch, model.config
        tensors = {name: torch.from_numpy(array) for name, array in model.state_dict().items()}     # shared, not copied
        self.embedding, self.final_gain = tensors["embedding.weight"], tensors["norm.weight"]
        self.head = self.embedding.T.contiguous() if self.c.tie_embeddings else tensors["head.weight"]
        parts = "attention_norm", "attention.qkv", "attention.out", "mlp_norm", "mlp.gate_up", "mlp.down"
        self.layers = [[tensors[f"blocks.{n}.{part}.weight"] for part in parts] for n in range(self.c.num_layers)]
        self.rotations = torch.from_numpy(model.blocks[0].attention.rotary.table)

    def set_threads(self, n):
        self.torch.set_num_threads(n)

    def start(self, prompt, slots):
        c = self.c
        shape = c.num_layers, len(prompt), c.num_kv_heads, slots, c.head_dim
        self.keys, self.values, self.position = self.torch.zeros(shape), self.torch.zeros(shape), 0
        return self.extend(prompt)

    def step(self, ids):
        return self.extend(ids[:, None])

    def extend(self, ids):
        t, F, c = self.torch, self.torch.nn.functional, self.c
        (B, T), H, Hkv, D = ids.shape, c.num_heads, c.num_kv_heads, c.head_dim
        at, end = self.position, self.position + T
        assert T == 1 or at == 0                        # is_causal aligns the mask to the first key

        def norm(x, gain):
            return F.rms_norm(x, (c.embed_dim,), gain, c.norm_eps)

        with t.inference_mode():
            x = self.embedding[t.from_numpy(ids)].reshape(B * T, c.embed_dim)
            rotation = self.rotations[at:end, None]
            for (norm1, qkv, out, norm2, gate_up, down), keys, values in zip(self.layers, self.keys, self.values):
                heads = (norm(x, norm1) @ qkv).view(B, T, H + 2 * Hkv, D)
                turned = t.view_as_real(t.view_as_complex(heads[:, :, :H + Hkv].unflatten(-1, (-1, 2))) * rotation).flatten(-2)
                keys[:, :, at:end] = turned[:, :, H:].transpose(1, 2)
                values[:, :, at:end] = heads[:, :, H + Hkv:].transpose(1, 2)
                k, v = keys[:, :, :end], values[:, :, :end]
                if T == 1:                              # the queries of a group are rows of one product
                    y = F.scaled_dot_product_attention(turned[:, 0, :H].unflatten(1, (Hkv, H // Hkv)), k, v)
                else:
                    y = F.scaled_dot_product_attention(turned[:, :, :H].transpose(1, 2), k, v, is_causal=True,
                                                       enable_gqa=H > Hkv).transpose(1, 2)
                x = x + y.reshape(B * T, H * D) @ out
                gate, up = (norm(x, norm2) @ gate_up).chunk(2, -1)
                x = x + (F.silu(gate) * up) @ down
            self.position = end
            return (norm(x.view(B, T, -1)[:, -1], self.final_gain) @ self.head).numpy()


class Transformers(Peer):
    """Hugging Face's LlamaForCausalLM: `generate`, greedy, with the cache it chooses itself."""
    name = "transformers"
    needs = ("torch", "transformers")

    def __init__(self, model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
            import transformers
        self.torch, self.DynamicCache = torch, transformers.DynamicCache
        self.model = hugging_face.llama(model, bos_token_id=None, eos_token_id=None,    # nothing ends the text but its length
                                        pad_token_id=None)
        newer = "cache" in inspect.signature(self.model.forward).parameters
        self.cache_argument = "cache" if newer else "past_key_values"

    def set_threads(self, n):
        self.torch.set_num_threads(n)

    def start(self, prompt, slots):
        self.cache = self.DynamicCache(config=self.model.config)
        return self.extend(prompt)

    def step(self, ids):
        return self.extend(ids[:, None])

    def extend(self, ids):
        with self.torch.inference_mode():
            return self.model(self.torch.from_numpy(ids), **{self.cache_argument: self.cache}, use_cache=True,
                              logits_to_keep=1).logits[:, -1].numpy()

    def generate(self, prompt, n, after):
        class Streamer:                                 # generate calls it with the prompt and with each step's ids
            seen = -1

            def put(self, ids):
                self.seen += 1
                if self.seen:
                    after(ids.numpy())

            def end(self):
                if self.seen != n:
                    raise RuntimeError(f"transformers wrote {self.seen} tokens instead of {n}.")

        prompt = self.torch.from_numpy(prompt)
        self.model.generate(prompt, attention_mask=self.torch.ones_like(prompt), max_new_tokens=n, do_sample=False,
                            streamer=Streamer())
