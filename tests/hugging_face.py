"""Our model as Hugging Face's Llama: for comparing results in the tests and speed in the benchmarks."""
import numpy as np


def llama_arrays(config, arrays):
    """Our arrays, weights or gradients, under Hugging Face's names and in its layout: (out, in), rotary pairs half a head apart."""
    def half_split(columns):
        return columns.reshape(len(columns), -1, config.head_dim // 2, 2).swapaxes(2, 3).reshape(columns.shape)

    theirs = {"model.embed_tokens.weight": arrays["embedding.weight"], "model.norm.weight": arrays["norm.weight"]}
    if not config.tie_embeddings:
        theirs["lm_head.weight"] = arrays["head.weight"].T
    cuts = np.array([config.num_heads, config.num_heads + config.num_kv_heads]) * config.head_dim
    for n in range(config.num_layers):
        block = {name: arrays[f"blocks.{n}.{name}.weight"] for name in
                 ("attention_norm", "attention.qkv", "attention.out", "mlp_norm", "mlp.gate_up", "mlp.down")}
        q, k, v = np.split(block["attention.qkv"], cuts, axis=1)
        gate, up = np.split(block["mlp.gate_up"], 2, axis=1)
        parts = {"self_attn.q_proj": half_split(q).T, "self_attn.k_proj": half_split(k).T, "self_attn.v_proj": v.T,
                 "self_attn.o_proj": block["attention.out"].T, "mlp.gate_proj": gate.T, "mlp.up_proj": up.T,
                 "mlp.down_proj": block["mlp.down"].T, "input_layernorm": block["attention_norm"],
                 "post_attention_layernorm": block["mlp_norm"]}
        theirs |= {f"model.layers.{n}.{name}.weight": array for name, array in parts.items()}
    return theirs


def llama(model, **options):
    """A LlamaForCausalLM with the weights of our model; `options` go to its LlamaConfig."""
    import torch
    import transformers
    c = model.config
    peer = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.embed_dim, num_hidden_layers=c.num_layers,
        num_attention_heads=c.num_heads, num_key_value_heads=c.num_kv_heads, intermediate_size=c.intermediate_dim,
        max_position_embeddings=c.max_seq_len, head_dim=c.head_dim, rms_norm_eps=c.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_base}, rope_theta=c.rope_base,
        tie_word_embeddings=c.tie_embeddings, **options))
    with torch.no_grad():
        for name, array in llama_arrays(c, model.state_dict()).items():
            peer.get_parameter(name).copy_(torch.from_numpy(np.ascontiguousarray(array)))
    return peer.eval()
