"""llama.cpp as a peer, through llama-cpp-python's C functions: on our float32 weights, or on a file."""
import ctypes
import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np

from tests.benchmarks.peers import Peer

CHUNK = 512                                             # tokens of a row that are read at once


def write_float32(path, model):
    """The model as a GGUF file, float32, without a vocabulary of texts. Rotary pairs are adjacent there as here."""
    import gguf
    from tests.tiny_gguf import tiny_metadata, write_gguf
    c, ours = model.config, model.state_dict()
    arrays = {"token_embd": ours["embedding.weight"], "output_norm": ours["norm.weight"]}
    if not c.tie_embeddings:
        arrays["output"] = ours["head.weight"].T
    for n in range(c.num_layers):
        block = f"blocks.{n}."
        q, k, v = np.split(ours[block + "attention.qkv.weight"],
                           np.array([c.num_heads, c.num_heads + c.num_kv_heads]) * c.head_dim, axis=1)
        gate, up = np.split(ours[block + "mlp.gate_up.weight"], 2, axis=1)
        parts = {"attn_norm": ours[block + "attention_norm.weight"], "attn_q": q.T, "attn_k": k.T, "attn_v": v.T,
                 "attn_output": ours[block + "attention.out.weight"].T, "ffn_norm": ours[block + "mlp_norm.weight"],
                 "ffn_gate": gate.T, "ffn_up": up.T, "ffn_down": ours[block + "mlp.down.weight"].T}
        arrays |= {f"blk.{n}.{name}": array for name, array in parts.items()}
    texts = {f"tokenizer.ggml.{key}": None for key in ("pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id")}
    metadata = tiny_metadata(c, **texts, **{"tokenizer.ggml.model": "no_vocab", "tokenizer.chat_template": None})
    write_gguf(path, metadata, {f"{name}.weight": (np.ascontiguousarray(array), gguf.GGMLQuantizationType.F32)
                                for name, array in arrays.items()})


class LlamaFile(Peer):
    """A GGUF file, read the way llama.cpp likes best."""
    name = "llama.cpp, quantised"
    exact = False                                       # whether it computes in float32 throughout
    needs = ("llama_cpp", "gguf")

    def __init__(self, path):
        import llama_cpp
        self.api, self.threads, self.shape, self.context = llama_cpp, 1, None, None
        self.silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silence, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        self.weights = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.weights:
            raise RuntimeError(f"llama.cpp cannot load {path}.")
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.weights))

    def set_threads(self, n):
        self.threads = n
        if self.context:
            self.api.llama_set_n_threads(self.context, n, n)

    def start(self, prompt, slots):
        if self.shape != (len(prompt), slots):
            self.make_context(len(prompt), slots)
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), False)
        self.position = 0
        for begin in range(0, prompt.shape[1], CHUNK):
            logits = self.extend(prompt[:, begin:begin + CHUNK])
        return logits

    def make_context(self, B, slots):
        api, most = self.api, B * CHUNK
        if self.context:
            api.llama_batch_free(self.batch)
            api.llama_free(self.context)
        params = api.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.n_batch, params.n_ubatch = B * -(-slots // 256) * 256, B, most, min(most, CHUNK)
        params.n_threads = params.n_threads_batch = self.threads
        if self.exact:                                  # its flash attention and its usual cache round to float16
            params.type_k = params.type_v = params.flash_attn_type = 0
        self.context = api.llama_init_from_model(self.weights, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot make a context of {B} x {slots} tokens.")
        self.shape, self.batch = (B, slots), api.llama_batch_init(most, 0, 1)
        fields = self.batch.token, self.batch.pos, self.batch.n_seq_id, self.batch.logits
        self.tokens, self.positions, ones, self.wanted = (np.ctypeslib.as_array(field, (most,)) for field in fields)
        ones[:] = 1
        for i in range(most):                           # the first token of each row, then the second of each
            self.batch.seq_id[i][0] = i % B

    def step(self, ids):
        return self.extend(ids[:, None])

    def extend(self, ids):
        B, T = ids.shape
        n, end = B * T, self.position + T
        self.batch.n_tokens = n
        self.tokens[:n] = ids.T.ravel()
        self.positions[:n] = np.arange(self.position, end).repeat(B)
        self.wanted[:n] = 0
        self.wanted[n - B:n] = 1
        status = self.api.llama_decode(self.context, self.batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}.")
        self.position = end
        return np.ctypeslib.as_array(self.api.llama_get_logits(self.context), (B, self.vocab_size))


class LlamaCpp(LlamaFile):
    """The weights of a model, written to a float32 GGUF file first."""
    name = "llama.cpp, float32"
    exact = True

    def __init__(self, model):
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)       # not now: llama.cpp keeps the file open
        path = Path(folder) / "model.gguf"
        write_float32(path, model)
        super().__init__(path)
