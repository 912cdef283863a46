"""Answers to the exercises of 04_transformer: wrong ones that people really give, and right ones written another way."""
from tests.misconceptions import Right, Wrong

# A solution's first part in which all blocks run before anything comes out
ALL_BLOCKS_FIRST = '''
        x, states = self.embedding(tokens), []
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            states.append(x)
        if cache is not None:
            cache.advance(T)
        '''

ANSWERS = [
    # ---- the MLP
    Wrong("mlp", "only one of gate and up has room", says="2 * intermediate_dim", body={0: '''
        self.gate_up = Linear(embed_dim, intermediate_dim, rng=rng)
        self.down = Linear(intermediate_dim, embed_dim, rng=rng, std=out_std)
    '''}),
    Wrong("mlp", "down expects gate and up", says="2 * intermediate_dim", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng)
        self.down = Linear(2 * intermediate_dim, embed_dim, rng=rng, std=out_std)
    '''}),
    Wrong("mlp", "rng not handed on", says="same seed differ", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim)
        self.down = Linear(intermediate_dim, embed_dim, std=out_std)
    '''}),
    Wrong("mlp", "rng handed to the first layer only", says="differ in down.weight", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng)
        self.down = Linear(intermediate_dim, embed_dim, std=out_std)
    '''}),
    Wrong("mlp", "out_std forgotten", says="out_std is for down", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng)
        self.down = Linear(intermediate_dim, embed_dim, rng=rng)
    '''}),
    Wrong("mlp", "out_std for both layers", says="gate_up keeps 0.02", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng, std=out_std)
        self.down = Linear(intermediate_dim, embed_dim, rng=rng, std=out_std)
    '''}),
    Wrong("mlp", "no activation", says="swiglu is missing", body={1: '''
        return self.down(self.gate_up(x))
    '''}),
    Wrong("mlp", "silu of the first half, the second unused", says="the up part is not used", body={1: '''
        from tinytorch.core.layers import silu
        width = self.down.weight.shape[0]
        return self.down(silu(self.gate_up(x)[..., :width]))
    '''}),
    Wrong("mlp", "gate and up exchanged", says="exchanged", body={1: '''
        from tinytorch.core.layers import silu
        both, width = self.gate_up(x), self.down.weight.shape[0]
        return self.down(both[..., :width] * silu(both[..., width:]))
    '''}),
    Wrong("mlp", "silu around the product", says="not around the product", body={1: '''
        from tinytorch.core.layers import silu
        both, width = self.gate_up(x), self.down.weight.shape[0]
        return self.down(silu(both[..., :width] * both[..., width:]))
    '''}),
    Wrong("mlp", "no silu", says="needs its silu", body={1: '''
        both, width = self.gate_up(x), self.down.weight.shape[0]
        return self.down(both[..., :width] * both[..., width:])
    '''}),
    Wrong("mlp", "down made first", says="Make gate_up first", body={0: '''
        self.down = Linear(intermediate_dim, embed_dim, rng=rng, std=out_std)
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng)
    '''}),
    Wrong("mlp", "rng in the place of bias", says="rng goes by name", body={0: '''
        self.gate_up = Linear(embed_dim, 2 * intermediate_dim, rng)
        self.down = Linear(intermediate_dim, embed_dim, rng, std=out_std)
    '''}),
    Wrong("mlp", "layers not put on self", says="belong to self", body={0: '''
        gate_up = Linear(embed_dim, 2 * intermediate_dim, rng=rng)
        down = Linear(intermediate_dim, embed_dim, rng=rng, std=out_std)
    '''}),
    Wrong("mlp", "swiglu on arrays", says="cannot be trained: no gradient", body={1: '''
        gate, up = np.split(self.gate_up(x).data, 2, axis=-1)
        return self.down(Tensor(gate / (1 + np.exp(-gate)) * up))
    '''}),
    Wrong("mlp", "adds x itself", says="The block will do that", body={1: '''
        return x + self.down(swiglu(self.gate_up(x)))
    '''}),
    Wrong("mlp", "reads a copy of x", says="no gradient comes back to x", body={1: '''
        return self.down(swiglu(self.gate_up(Tensor(x.data))))
    '''}),
    Wrong("mlp", "no return", says="`return` is missing", body={1: '''
        self.down(swiglu(self.gate_up(x)))
    '''}),
    Right("mlp", "swiglu written out", body={1: '''
        from tinytorch.core.layers import silu
        both, width = self.gate_up(x), self.down.weight.shape[0]
        gate, up = both[..., :width], both[..., width:]
        hidden = silu(gate) * up
        return hidden @ self.down.weight
    '''}),
    Right("mlp", "one row of the batch after the other", body={0: '''
        width = intermediate_dim + intermediate_dim
        self.gate_up = Linear(in_features=embed_dim, out_features=width, rng=rng, std=0.02)
        self.down = Linear(in_features=intermediate_dim, out_features=embed_dim, rng=rng, std=out_std)
    ''', 1: '''
        from tinytorch.core.tensor import concatenate
        return concatenate([self.down(swiglu(self.gate_up(x[b:b + 1]))) for b in range(x.shape[0])])
    '''}),

    # ---- the block
    Wrong("block", "no residual additions", says="a residual addition is missing", body='''
        x = self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "no residual addition around attention", says="a residual addition is missing", body='''
        x = self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "no residual addition around the MLP", says="a residual addition is missing", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "norm after the addition, as in 2017", says="it normalises the sum", body='''
        x = self.attention_norm(x + self.attention(x, positions, cache, layer_idx))
        return self.mlp_norm(x + self.mlp(x))
    '''),
    Wrong("block", "norm after attention, inside the addition", says="behind attention", body='''
        x = x + self.attention_norm(self.attention(x, positions, cache, layer_idx))
        return x + self.mlp_norm(self.mlp(x))
    '''),
    Wrong("block", "the normalised stream goes on", says="normalises the stream itself", body='''
        x = self.attention_norm(x)
        x = x + self.attention(x, positions, cache, layer_idx)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "the normalised stream goes on after the MLP", says="normalises the stream itself", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        x = self.mlp_norm(x)
        return x + self.mlp(x)
    '''),
    Wrong("block", "no norms", says="without its norm", body='''
        x = x + self.attention(x, positions, cache, layer_idx)
        return x + self.mlp(x)
    '''),
    Wrong("block", "no norm in front of the MLP", says="the MLP reads the stream without its norm", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + self.mlp(x)
    '''),
    Wrong("block", "the first norm used twice", says="through attention_norm", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + self.mlp(self.attention_norm(x))
    '''),
    Wrong("block", "the second norm used twice", says="through mlp_norm", body='''
        x = x + self.attention(self.mlp_norm(x), positions, cache, layer_idx)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "both halves read the same stream", says="both read the same x", body='''
        attended = self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + attended + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "MLP first", says="the MLP comes first", body='''
        x = x + self.mlp(self.mlp_norm(x))
        return x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
    '''),
    Wrong("block", "cache not handed on", says="The cache was never used", body='''
        x = x + self.attention(self.attention_norm(x), positions)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "layer_idx not handed on", says="hand layer_idx on", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "positions counted anew with a cache", says="hand positions on", body='''
        if cache is not None:
            positions = np.arange(x.shape[1])[None]
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "layer_idx counted from one", says="the blocks are 0 to 2", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx + 1)
        return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "under no_grad", says="The block cannot be trained", body='''
        with no_grad():
            x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
            return x + self.mlp(self.mlp_norm(x))
    '''),
    Wrong("block", "adds arrays", says="The block cannot be trained", body='''
        x = Tensor(x.data + self.attention(self.attention_norm(x), positions, cache, layer_idx).data)
        return Tensor(x.data + self.mlp(self.mlp_norm(x)).data)
    '''),
    Wrong("block", "the MLP reads a copy", says="only a part of the gradient comes back to x", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        return x + self.mlp(self.mlp_norm(Tensor(x.data)))
    '''),
    Wrong("block", "adds to the array of x", says="leave x.data alone", body='''
x.data += self.attention.forward(self.attention_norm.forward(x), positions, cache, layer_idx).data
return x + self.mlp.forward(self.mlp_norm.forward(x))
'''),
    Wrong("block", "no return", says="`return` is missing", body='''
        x = x + self.attention(self.attention_norm(x), positions, cache, layer_idx)
        x = x + self.mlp(self.mlp_norm(x))
    '''),
    Right("block", "named steps and keywords", body='''
        attended = self.attention(self.attention_norm(x), positions=positions, cache=cache, layer_idx=layer_idx)
        middle = attended + x
        thought = self.mlp(self.mlp_norm(middle))
        return middle + thought
    '''),
    Right("block", "a loop over the halves", body='''
        attend = lambda y: self.attention(y, positions, cache, layer_idx)
        for norm, layer in ((self.attention_norm, attend), (self.mlp_norm, self.mlp)):
            x = x + layer(norm(x))
        return x
    '''),

    # ---- the tied head
    Wrong("unembed", "table not transposed", says="needs the transposed table", body='''
        rows = x.data.reshape(-1, d)
        scores = np.dot(rows, table.data)

        def backward(grad):
            grad = grad.reshape(-1, V)
            return np.dot(grad, table.data.T).reshape(x.shape), np.dot(rows.T, grad)
        return record(scores.reshape(*x.shape[:-1], -1), backward, x, table)
    '''),
    Wrong("unembed", "transposed only where NumPy complains", says="V equals d, so NumPy did not notice", body='''
        matrix = table.data if V == d else table.data.T
        scores = x.data @ matrix

        def backward(grad):
            rows = grad.reshape(-1, V)
            return grad @ matrix.T, rows.T @ x.data.reshape(-1, d)
        return record(scores, backward, x, table)
    '''),
    Wrong("unembed", "the table is no parent", says="No gradient came back to the table", body='''
        def backward(grad):
            return (grad @ table.data,)
        return record(x.data @ table.data.T, backward, x)
    '''),
    Wrong("unembed", "the data of the table, so a new leaf", says="No gradient came back to the table", body='''
        return x @ Tensor(table.data.T)
    '''),
    Wrong("unembed", "None for the table", says="The backward", body='''
        def backward(grad):
            return grad @ table.data, None
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "one gradient for each row of the batch", says="Flatten batch and tokens", body='''
        def backward(grad):
            return grad @ table.data, grad.swapaxes(-1, -2) @ x.data
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "gradient of the table transposed", says="Flatten batch and tokens", body='''
        rows = x.data.reshape(-1, d)

        def backward(grad):
            return grad @ table.data, rows.T @ grad.reshape(-1, V)
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "mean over the batch instead of the sum", says="averages over the batch", body='''
        def backward(grad):
            return grad @ table.data, (grad.swapaxes(-1, -2) @ x.data).mean(axis=0)
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "parents in the wrong order", says="The backward", body='''
        rows = x.data.reshape(-1, d)

        def backward(grad):
            return rows.T @ grad.reshape(-1, V), grad @ table.data
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "float64", says="stay float32", body='''
        rows = x.data.reshape(-1, d).astype(np.float64)

        def backward(grad):
            return (grad @ table.data).astype(np.float32), (grad.reshape(-1, V).T @ rows).astype(np.float32)
        return record((rows @ table.data.T).reshape(*x.shape[:-1], V), backward, x, table)
    '''),
    Wrong("unembed", "gradients in float64", says="float64 to x", body='''
        rows = x.data.reshape(-1, d)

        def backward(grad):
            grad = grad.reshape(-1, V).astype(np.float64)
            return np.dot(grad, table.data).reshape(x.shape), np.dot(grad.T, rows)
        return record(np.dot(rows, table.data.T).reshape(*x.shape[:-1], V), backward, x, table)
    '''),
    Wrong("unembed", "the table's gradient summed up in float64", says="float64 to the table", body='''
        def backward(grad):
            total = np.zeros((V, d))
            for g, row in zip(grad.reshape(-1, V), x.data.reshape(-1, d)):
                total += np.outer(g, row)
            return grad @ table.data, total
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "scores in the shape of x", says="the scores go back to (..., V)", body='''
        rows = x.data.reshape(-1, d)

        def backward(grad):
            grad = grad.reshape(-1, V)
            return (grad @ table.data).reshape(x.shape), grad.T @ rows
        return record((rows @ table.data.T).reshape(x.shape), backward, x, table)
    '''),
    Wrong("unembed", "not recorded", says="remembers no parent", body='''
        return Tensor(x.data @ table.data.T)
    '''),
    Wrong("unembed", "backward without return", says="must return a tuple", body='''
        def backward(grad):
            grad @ table.data, np.einsum("btv,btd->vd", grad, x.data)
        return record(x.data @ table.data.T, backward, x, table)
    '''),
    Wrong("unembed", "a transposed copy of the table", says="it was copied", body='''
        across = np.ascontiguousarray(table.data.T)

        def backward(grad):
            rows = grad.reshape(-1, V)
            return (rows @ across.T).reshape(x.shape), rows.T @ x.data.reshape(-1, d)
        return record(x.data @ across, backward, x, table)
    '''),
    Wrong("unembed", "no return", says="`return` is missing", body='''
        x @ table.transpose()
    '''),
    Right("unembed", "einsum", body='''
        def backward(grad):
            return np.einsum("...v,vd->...d", grad, table.data), np.einsum("btv,btd->vd", grad, x.data)
        return record(np.einsum("...d,vd->...v", x.data, table.data), backward, x, table)
    '''),
    Right("unembed", "operations of lesson 01", body='''
        return x @ table.transpose()
    '''),
    Right("unembed", "the table on the left", body='''
        rows = x.data.reshape(-1, d)

        def backward(grad):
            columns = grad.reshape(-1, V).T
            return (columns.T @ table.data).reshape(x.shape), columns @ rows
        return record((table.data @ rows.T).T.reshape(*x.shape[:-1], V), backward, x, table)
    '''),

    # ---- the forward pass
    Wrong("transformer", "yields before the block", says="one too late", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
            x = block(x, positions, cache, layer_idx)
    '''}),
    Wrong("transformer", "yields the embedding too", says="none before the first", body={0: '''
        x = self.embedding(tokens)
        yield x
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "yields only the last state", says="yields 1 states", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
        if cache is not None:
            cache.advance(T)
        yield x
    '''}),
    Wrong("transformer", "the first block every time", says="did not get its turn", body={0: '''
        x = self.embedding(tokens)
        for layer_idx in range(len(self.blocks)):
            x = self.blocks[0](x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "every block reads the embedding", says="Each block reads what the one before it left", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            y = block(x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield y
    '''}),
    Wrong("transformer", "blocks in reverse", says="in reverse", body={0: '''
        x = self.embedding(tokens)
        for layer_idx in reversed(range(len(self.blocks))):
            x = self.blocks[layer_idx](x, positions, cache, layer_idx)
            if cache is not None and layer_idx == 0:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "layer_idx not handed on", says="each block's own number", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "cache not handed on", says="each block's own number", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "never advances", says="expected once", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            yield x
    '''}),
    Wrong("transformer", "advances after every block", says="expected once", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            if cache is not None:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "advances by one", says="with the 5 tokens", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance()
            yield x
    '''}),
    Wrong("transformer", "advances first", says="before the last block had run", body={0: '''
        x = self.embedding(tokens)
        if cache is not None:
            cache.advance(T)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            yield x
    '''}),
    Wrong("transformer", "advances after the last yield", says="before that state is yielded", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            yield x
        if cache is not None:
            cache.advance(T)
    '''}),
    Wrong("transformer", "all blocks run before the first state is yielded", says="before the next block runs",
          body={0: ALL_BLOCKS_FIRST + "yield from states\n    "}),
    Wrong("transformer", "last norm forgotten", says="the last norm is missing", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = x[:, -keep:]
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "cuts the tokens in place of the state", says="Cut the last state, not the tokens", body={1: '''
        if positions is not None:
            positions = np.asarray(positions)[:, -keep:]
        for x in self.hidden_states(tokens[:, -keep:], cache, positions):
            pass
        x = self.norm(x)
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "softmax behind the head", says="Logits are the scores themselves", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(x[:, -keep:])
        x = unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
        scores = np.exp(x.data - x.data.max(axis=-1, keepdims=True))
        return Tensor(scores / scores.sum(axis=-1, keepdims=True))
    '''}),
    Wrong("transformer", "keeps from the front", says="it keeps the first tokens", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(x[:, :keep])
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "ignores logits_to_keep", says="it keeps all tokens", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(x)
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "an index instead of a slice", says="keeps one token alone", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        if keep < T:
            x = x[:, -keep][:, None]
        x = self.norm(x)
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "always the embedding table", says="must use its own head", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        return unembed(self.norm(x[:, -keep:]), self.embedding.weight)
    '''}),
    Wrong("transformer", "positions not handed on", says="hand positions on", body={1: '''
        for x in self.hidden_states(tokens, cache):
            pass
        x = self.norm(x[:, -keep:])
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "cache not handed on in forward", says="used the cache as layers []", body={1: '''
        for x in self.hidden_states(tokens, positions=positions):
            pass
        x = self.norm(x[:, -keep:])
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "positions not handed on where there is a cache", says="with a cache too", body={1: '''
        for x in self.hidden_states(tokens, cache) if cache is not None else self.hidden_states(tokens, None, positions):
            pass
        x = self.norm(x[:, -keep:])
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "a list in place of a generator", says="a generator, but gave list",
          body={0: ALL_BLOCKS_FIRST + "return states\n    "}),
    Wrong("transformer", "nothing yielded", says="a generator, but gave NoneType", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
        if cache is not None:
            cache.advance(T)
    '''}),
    Wrong("transformer", "the last state returned", says="a generator, but gave Tensor", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
        if cache is not None:
            cache.advance(T)
        return x
    '''}),
    Wrong("transformer", "blocks counted from one", says="the blocks are 0 to 2", body={0: '''
        x = self.embedding(tokens)
        for layer_idx, block in enumerate(self.blocks, 1):
            x = block(x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks):
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "the embedding on arrays", says="no gradient comes back to embedding.weight", body={0: '''
        x = Tensor(self.embedding.weight.data[tokens])
        for layer_idx, block in enumerate(self.blocks):
            x = block(x, positions, cache, layer_idx)
            if cache is not None and layer_idx == len(self.blocks) - 1:
                cache.advance(T)
            yield x
    '''}),
    Wrong("transformer", "the last tokens cut from the array", says="cannot be trained: no gradient", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(Tensor(x.data[:, -keep:]))
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "the states under no_grad", says="cannot be trained: no gradient", body={1: '''
        with no_grad():
            for x in self.hidden_states(tokens, cache, positions):
                pass
        x = self.norm(x[:, -keep:])
        return unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "the table as an array in the tied head", says="tied head cannot be trained well", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(x[:, -keep:])
        return x @ Tensor(self.embedding.weight.data.T) if self.config.tie_embeddings else self.head(x)
    '''}),
    Wrong("transformer", "no return", says="`return` is missing", body={1: '''
        for x in self.hidden_states(tokens, cache, positions):
            pass
        x = self.norm(x[:, -keep:])
        x = unembed(x, self.embedding.weight) if self.config.tie_embeddings else self.head(x)
    '''}),
    Right("transformer", "a list of states, all logits, then the slice", body={1: '''
        states = list(self.hidden_states(tokens, cache=cache, positions=positions))
        x = self.norm(states[-1])
        if self.config.tie_embeddings:
            logits = x @ self.embedding.weight.transpose()
        else:
            logits = self.head(x)
        return logits[:, T - keep:]
    '''}),
    Right("transformer", "the last block apart", body={0: '''
        stream = self.embedding(tokens)
        *early, last = self.blocks
        for number in range(len(early)):
            stream = early[number](stream, positions, cache=cache, layer_idx=number)
            yield stream
        stream = last(stream, positions, cache=cache, layer_idx=len(early))
        if cache is not None:
            cache.advance(T)
        yield stream
    '''}),

    # ---- counting
    Wrong("count_parameters", "norms forgotten", says="the norms are missing", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block
    '''),
    Wrong("count_parameters", "builds the model and counts", says="without building the model", body='''
        return Transformer(config, seed=0).num_parameters()
    '''),
    Wrong("count_parameters", "a float", says="whole numbers", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return (2 - config.tie_embeddings) * V * d + config.num_layers * block + d / 1
    '''),
    Wrong("count_parameters", "last norm forgotten", says="the last norm is missing", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block
    '''),
    Wrong("count_parameters", "one norm in each block", says="two norms", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "two matrices in the MLP", says="SwiGLU has three matrices", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 2 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "as many key/value heads as query heads", says="num_kv_heads heads", body='''
        block = 4 * d * H * D + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "heads always as wide as the stream together", says="need not be embed_dim", body='''
        block = 2 * d * d + 2 * d * Hkv * (d // H) + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "output matrix of attention forgotten", says="the output matrix", body='''
        block = d * (H + 2 * Hkv) * D + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "a square output matrix of attention", says="num_heads * head_dim rows", body='''
        block = d * (H + 2 * Hkv) * D + d * d + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "values forgotten", says="Perhaps values are missing", body='''
        block = d * (H + Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return (1 if config.tie_embeddings else 2) * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "embedding table forgotten", says="Perhaps the embedding table is missing", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return (0 if config.tie_embeddings else V * d) + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "a tied head counted twice", says="the table counts once", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return 2 * V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "an untied head not counted", says="one more table", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return V * d + config.num_layers * block + d
    '''),
    Wrong("count_parameters", "one block counted", says="num_layers of them", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        return (2 - config.tie_embeddings) * V * d + block + d
    '''),
    Wrong("count_parameters", "no return", says="`return` is missing", body='''
        block = d * (H + 2 * Hkv) * D + H * D * d + 3 * d * I + 2 * d
        total = (2 - config.tie_embeddings) * V * d + config.num_layers * block + d
    '''),
    Right("count_parameters", "a list of shapes", body='''
        shapes = [(V, d), (d,)]
        for _ in range(config.num_layers):
            shapes += [(d, H * D), (d, Hkv * D), (d, Hkv * D), (H * D, d), (d, I), (d, I), (I, d), (d,), (d,)]
        if not config.tie_embeddings:
            shapes.append((d, V))
        total = 0
        for shape in shapes:
            size = 1
            for length in shape:
                size *= length
            total += size
        return total
    '''),

    # ---- the naive way to write
    Wrong("generate_naive", "argmax at the first position", says="the first position predicts", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens]).data[0, 0].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "feeds the newest token only", says="the newest token alone", body='''
        tokens, new = list(prompt), list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                new = [int(model([new]).data[0, -1].argmax())]
                tokens += new
        return tokens
    '''),
    Wrong("generate_naive", "feeds the prompt every time", says="never reads the new tokens", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([list(prompt)]).data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "the least likely token", says="lowest logits", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens], logits_to_keep=1).data[0, -1].argmin()))
        return tokens
    '''),
    Wrong("generate_naive", "argmax over all positions at once, folded", says="over all positions at once", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens]).data[0].argmax() % model.config.vocab_size))
        return tokens
    '''),
    Wrong("generate_naive", "argmax over all positions at once", says="argmax over the logits of the last position", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens]).data.argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "only the new tokens come back", says="return the prompt too", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens], logits_to_keep=1).data[0, -1].argmax()))
        return tokens[len(prompt):]
    '''),
    Wrong("generate_naive", "appends to the prompt itself", says="append to a copy", body='''
        with no_grad():
            for _ in range(max_new_tokens):
                prompt.append(int(model([prompt], logits_to_keep=1).data[0, -1].argmax()))
        return prompt
    '''),
    Wrong("generate_naive", "max_new_tokens taken as the total length", says="9 more", body='''
        tokens = list(prompt)
        with no_grad():
            while len(tokens) < max_new_tokens:
                tokens.append(int(model([tokens], logits_to_keep=1).data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "the prompt itself where nothing is added", says="return a copy", body='''
tokens = prompt
with no_grad():
    for _ in range(max_new_tokens):
        tokens = tokens + [int(model([tokens]).data[0, -1].argmax())]
return tokens
'''),
    Wrong("generate_naive", "probabilities without subtracting the maximum", says="np.exp of large logits is infinite", body='''
tokens = list(prompt)
with no_grad(), np.errstate(all="ignore"):
    for _ in range(max_new_tokens):
        powers = np.exp(model([tokens]).data[0, -1])
        tokens.append(int((powers / powers.sum()).argmax()))
return tokens
'''),
    Wrong("generate_naive", "NumPy ints", says="Python ints", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(model([tokens], logits_to_keep=1).data[0, -1].argmax())
        return tokens
    '''),
    Wrong("generate_naive", "reads the last token too", says="need not be read", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                logits = model([tokens], logits_to_keep=1)
                tokens.append(int(logits.data[0, -1].argmax()))
                logits = model([tokens], logits_to_keep=1)
        return tokens
    '''),
    Wrong("generate_naive", "cuts the row to what the model can read", says="Do not cut the row", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                logits = model([tokens[-model.config.max_seq_len:]], logits_to_keep=1)
                tokens.append(int(logits.data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "stops in silence when the context is full", says="nor stop early", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                if len(tokens) > model.config.max_seq_len:
                    break
                tokens.append(int(model([tokens], logits_to_keep=1).data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "records every step", says="use no_grad()", body='''
        tokens = list(prompt)
        for _ in range(max_new_tokens):
            logits = model([tokens], logits_to_keep=1)
            tokens.append(int(logits.data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "no_grad around the argmax only", says="recorded for backward", body='''
        tokens = list(prompt)
        for _ in range(max_new_tokens):
            logits = model([tokens], logits_to_keep=1)
            with no_grad():
                tokens.append(int(logits.data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "no batch", says="a single row is [ids]", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model(tokens, logits_to_keep=1).data[0, -1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "the index of the last token in logits of one", says="the last position is [0, -1]", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                logits = model([tokens], logits_to_keep=1)
                tokens.append(int(logits.data[0, len(tokens) - 1].argmax()))
        return tokens
    '''),
    Wrong("generate_naive", "no return", says="`return` is missing", body='''
        tokens = list(prompt)
        with no_grad():
            for _ in range(max_new_tokens):
                tokens.append(int(model([tokens], logits_to_keep=1).data[0, -1].argmax()))
    '''),
    Right("generate_naive", "all logits, no slice", body='''
        row = np.array(prompt)
        for _ in range(max_new_tokens):
            with no_grad():
                logits = model(row[None]).data
            row = np.append(row, logits[0, len(row) - 1].argmax())
        return row.tolist()
    '''),
    Right("generate_naive", "recursion", body='''
        if max_new_tokens == 0:
            return list(prompt)
        with no_grad():
            scores = model([list(prompt)], logits_to_keep=1).data.ravel().tolist()
        best = max(range(len(scores)), key=scores.__getitem__)
        return generate_naive(model, [*prompt, best], max_new_tokens - 1)
    '''),
]
