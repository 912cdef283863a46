"""Answers to the exercises of module 03, attention."""
from tests.misconceptions import Right, Wrong

ROTARY = [
    Wrong("apply_rotary", "pairs the first half with the second half", says="first half with the second half", body='''
half = x.shape[-1] // 2

def turn(array, rotation):
    pairs = array[..., :half] + 1j * array[..., half:]
    turned = (pairs * rotation).astype(np.complex64 if array.dtype == np.float32 else np.complex128)
    return np.concatenate([turned.real, turned.imag], axis=-1)

return record(turn(x.data, rotation), lambda grad: (turn(grad, rotation.conj()),), x)
'''),
    Wrong("apply_rotary", "turns clockwise", says="wrong way", body='''
def turn(array, rotation):
    pairs = np.ascontiguousarray(array).view(COMPLEX[array.dtype])
    return (pairs * rotation.astype(pairs.dtype)).view(array.dtype)

return record(turn(x.data, rotation.conj()), lambda grad: (turn(grad, rotation),), x)
'''),
    Wrong("apply_rotary", "the gradient is turned like the input", says="the same way as the forward", body='''
def turn(array):
    pairs = np.ascontiguousarray(array).view(COMPLEX[array.dtype])
    return (pairs * rotation.astype(pairs.dtype)).view(array.dtype)

return record(turn(x.data), lambda grad: (turn(grad),), x)
'''),
    Wrong("apply_rotary", "the gradient is passed on unturned", says="opposite angles", body='''
pairs = np.ascontiguousarray(x.data).view(COMPLEX[x.dtype])
return record((pairs * rotation.astype(pairs.dtype)).view(x.dtype), lambda grad: (grad,), x)
'''),
    Wrong("apply_rotary", "a complex128 product read as float32", says="twice the columns", body='''
def turn(array, rotation):
    pairs = np.ascontiguousarray(array).view(COMPLEX[array.dtype])
    return (pairs * rotation.astype(np.complex128)).view(array.dtype)

return record(turn(x.data, rotation), lambda grad: (turn(grad, rotation.conj()),), x)
'''),
    Wrong("apply_rotary", "the result is float64", says="must be float32", body='''
def turn(array, cos, sin):
    out = np.empty(array.shape)
    out[..., 0::2] = array[..., 0::2] * cos - array[..., 1::2] * sin
    out[..., 1::2] = array[..., 0::2] * sin + array[..., 1::2] * cos
    return out

cos, sin = rotation.real, rotation.imag
return record(turn(x.data, cos, sin), lambda grad: (turn(grad, cos, -sin),), x)
'''),
    Wrong("apply_rotary", "writes into its input", says="changed its input", body='''
pairs = x.data.view(COMPLEX[x.dtype])
pairs *= rotation

def backward(grad):
    back = np.ascontiguousarray(grad).view(COMPLEX[grad.dtype])
    return ((back * rotation.conj()).view(grad.dtype),)
return record(x.data.copy(), backward, x)
'''),
    Wrong("apply_rotary", "forgets the parent", says="lost its gradient", body='''
pairs = np.ascontiguousarray(x.data).view(COMPLEX[x.dtype])
return record((pairs * rotation.astype(pairs.dtype)).view(x.dtype), None)
'''),
    Wrong("apply_rotary", "returns the array", says="Return a Tensor", body='''
pairs = np.ascontiguousarray(x.data).view(COMPLEX[x.dtype])
return (pairs * rotation.astype(pairs.dtype)).view(x.dtype)
'''),
    Wrong("apply_rotary", "turns every row like the first", says="rows have different positions", body='''
def turn(array, rotation):
    pairs = np.ascontiguousarray(array).view(COMPLEX[array.dtype])
    return (pairs * rotation[:1].astype(pairs.dtype)).view(array.dtype)

return record(turn(x.data, rotation), lambda grad: (turn(grad, rotation.conj()),), x)
'''),
    Wrong("apply_rotary", "reads any array as complex numbers", says="np.ascontiguousarray before the view", body='''
def turn(array, rotation):
    pairs = array.view(COMPLEX[array.dtype])
    return (pairs * rotation.astype(pairs.dtype)).view(array.dtype)

return record(turn(x.data, rotation), lambda grad: (turn(grad, rotation.conj()),), x)
'''),
    Wrong("apply_rotary", "only the input is made contiguous", says="forwards and backwards", body='''
pairs = np.ascontiguousarray(x.data).view(COMPLEX[x.dtype])

def backward(grad):
    back = grad.view(COMPLEX[grad.dtype]) * rotation.conj().astype(pairs.dtype)
    return (back.view(grad.dtype),)
return record((pairs * rotation.astype(pairs.dtype)).view(x.dtype), backward, x)
'''),
    Wrong("apply_rotary", "the gradient is float64", says="must stay float32", body='''
def turn(array, cos, sin):
    out = np.empty(array.shape)
    out[..., 0::2] = array[..., 0::2] * cos - array[..., 1::2] * sin
    out[..., 1::2] = array[..., 0::2] * sin + array[..., 1::2] * cos
    return out

cos, sin = rotation.real, rotation.imag
return record(turn(x.data, cos, sin).astype(x.dtype), lambda grad: (turn(grad, cos, -sin),), x)
'''),
    Wrong("apply_rotary", "turns the gradient in place", says="wrote into the gradient", body='''
pairs = np.ascontiguousarray(x.data).view(COMPLEX[x.dtype])

def backward(grad):
    back = np.ascontiguousarray(grad).view(pairs.dtype)
    back *= rotation.conj().astype(pairs.dtype)
    return (back.view(grad.dtype),)
return record((pairs * rotation.astype(pairs.dtype)).view(x.dtype), backward, x)
'''),
    Right("apply_rotary", "with cos and sin", body='''
cos, sin = rotation.real.astype(x.dtype), rotation.imag.astype(x.dtype)

def turn(array, sin):
    even, odd = array[..., 0::2], array[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(array.shape)

return record(turn(x.data, sin), lambda grad: (turn(grad, -sin),), x)
'''),
    Right("apply_rotary", "with 2 x 2 matrices and einsum", body='''
c, s = rotation.real, rotation.imag
matrices = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2).astype(x.dtype)[:, 0]
pairs = x.data.reshape(*x.shape[:-1], -1, 2)

def backward(grad):
    return (np.einsum("btpij,bhtpi->bhtpj", matrices, grad.reshape(pairs.shape)).reshape(x.shape),)
return record(np.einsum("btpij,bhtpj->bhtpi", matrices, pairs).reshape(x.shape), backward, x)
'''),
]

VISIBLE = [
    Wrong("visible", "a triangle aligned to the start", says="aligned to the end", body='''
B, T = query_positions.shape
S = key_positions.shape[-1]
return np.tile(np.tril(np.ones((T, S), bool)), (B, 1, 1))
'''),
    Wrong("visible", "a token does not see itself", says="One token sees itself", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p < q)
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return seen
'''),
    Wrong("visible", "the keys' places instead of their positions", says="not their places in the array", body='''
places = np.arange(key_positions.shape[-1])
seen = (places <= query_positions[:, :, None]) & (key_positions >= 0)[:, None, :]
if window is not None:
    seen &= (query_positions[:, :, None] - places < window) | (places < sinks)
return seen
'''),
    Wrong("visible", "padding is read", says="nobody sees padding", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = p <= q
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return seen
'''),
    Wrong("visible", "the window is one too long", says="exactly 3 keys", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p <= window) | (p < sinks)
return seen
'''),
    Wrong("visible", "forgets the sinks", says="the sink at position 0 stays visible", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= q - p < window
return seen
'''),
    Wrong("visible", "sinks are seen before their time", says="lies in the future", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen = seen & (q - p < window) | (p >= 0) & (p < sinks)
return seen
'''),
    Wrong("visible", "padding is a sink", says="padding is not a sink", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
if window is None:
    return (p >= 0) & (p <= q)
return (p <= q) & ((p >= 0) & (q - p < window) | (p < sinks))
'''),
    Wrong("visible", "all rows like the first", says="from its own positions", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return np.repeat(seen[:1], len(seen), axis=0)
'''),
    Wrong("visible", "heads with positions of their own are not provided for", says="(B, heads, S) must give", body='''
q, p = query_positions[:, :, None], key_positions[:, None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return seen
'''),
    Right("visible", "nested loops", body='''
heads = key_positions.shape[1:-1]
B, T = query_positions.shape
seen = np.zeros((B, *heads, T, key_positions.shape[-1]), bool)
for index in np.ndindex(seen.shape):
    b, *head, t, s = index
    q, p = query_positions[b, t], key_positions[(b, *head, s)]
    near = window is None or q - p < window or p < sinks
    seen[index] = 0 <= p <= q and near
return seen
'''),
    Right("visible", "by the distance", body='''
if key_positions.ndim == 3:
    per_head = [visible(query_positions, key_positions[:, h], window, sinks) for h in range(key_positions.shape[1])]
    return np.stack(per_head, axis=1)
distance = query_positions[:, :, None] - key_positions[:, None, :]
hidden = (distance < 0) | (key_positions < 0)[:, None, :]
if window is not None:
    hidden |= (distance >= window) & (key_positions >= sinks)[:, None, :]
return np.logical_not(hidden)
'''),
]

ATTEND = [
    Wrong("grouped_attention", "no division by the root of D", says="not divided by the root of D", body='''
q = query.reshape(B, Hkv, group * T, D)
scores = q @ key.swapaxes(-1, -2)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores.reshape(B, Hkv, group, T, S)[np.broadcast_to(~mask[:, :, None], (B, Hkv, group, T, S))] = -np.inf
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "divides by D", says="divided by D instead of its root", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) / D
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "multiplies by the root of D", says="multiplied by the root of D", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** 0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "softmax over the queries", says="softmax must run over the keys", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
shares = np.exp(scores - scores.max(axis=-2, keepdims=True))
shares /= shares.sum(axis=-2, keepdims=True)
return (shares @ value).reshape(B, H, T, D), shares, np.ones((B, Hkv, group * T, 1), np.float32)
'''),
    Wrong("grouped_attention", "forgets to divide by the sum", says="never divided by", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores)
return (weights @ value).reshape(B, H, T, D), weights, np.ones((B, Hkv, group * T, 1), np.float32)
'''),
    Wrong("grouped_attention", "tiles the keys instead of repeating them", says="h % 2", body='''
keys, values = np.tile(key, (1, group, 1, 1)), np.tile(value, (1, group, 1, 1))
scores = query @ keys.swapaxes(-1, -2) * D ** -0.5
if mask is not None:
    wide = mask[:, None] if mask.ndim == 3 else np.tile(mask, (1, group, 1, 1))
    scores = np.where(wide, scores, -np.inf).astype(query.dtype)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
out = weights @ values / total
return out, weights.reshape(B, Hkv, group * T, S), total.reshape(B, Hkv, group * T, 1)
'''),
    Wrong("grouped_attention", "float64 through np.sqrt", says="float64 number leaked in", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) / np.sqrt(D)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "scales the query in place", says="query was changed", body='''
query *= query.dtype.type(D ** -0.5)
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "the mask is used the wrong way round", says="wrong way round", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], query.dtype.type(-np.inf), scores)
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "each mask row is repeated for a group", says="Row g * T + t", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(np.repeat(mask, group, axis=2), scores, query.dtype.type(-np.inf))
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "ignores the mask", says="differs from the formula", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "NaN where nothing is seen", says="gives NaN", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "hides with -1e9, so an empty row reads all", says="not a mean of hidden values", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-1e9))
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "hides with -1e4", says="the hidden key won", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    scores = np.where(seen, scores, query.dtype.type(-1e4))
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
if mask is not None:
    weights = weights * seen.any(axis=-1, keepdims=True)
weights = weights.reshape(B, Hkv, group * T, S)
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "hides with -1e9, empty rows by hand", says="-1e9 may be above a visible one", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    scores = np.where(seen, scores, query.dtype.type(-1e9))
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
if mask is not None:
    weights = weights * seen.any(axis=-1, keepdims=True)
weights = weights.reshape(B, Hkv, group * T, S)
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "lets NaN happen and clears every NaN away", says="the NaN was hidden", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
weights = np.nan_to_num(weights / weights.sum(axis=-1, keepdims=True))
return (weights @ value).reshape(B, H, T, D), weights, np.ones((B, Hkv, group * T, 1), query.dtype)
'''),
    Wrong("grouped_attention", "clears NaN away after np.exp", says="np.nan_to_num wipes away every NaN", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.nan_to_num(np.exp(scores - scores.max(axis=-1, keepdims=True)))
total = np.maximum(weights.sum(axis=-1, keepdims=True), np.finfo(query.dtype).tiny)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "does not subtract the largest score", says="Subtract the largest score", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
weights = np.exp(scores.reshape(B, Hkv, group * T, S))
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "repeats keys and values in memory", says="repeated in memory", body='''
keys, values = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
scores = query @ keys.swapaxes(-1, -2) * D ** -0.5
if mask is not None:
    wide = mask[:, None] if mask.ndim == 3 else np.repeat(mask, group, axis=1)
    scores = np.where(wide, scores, query.dtype.type(-np.inf))
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
out = weights @ values / total
return out, weights.reshape(B, Hkv, group * T, S), total.reshape(B, Hkv, group * T, 1)
'''),
    Right("grouped_attention", "with einsum, shares and a total of ones", body='''
scores = np.einsum("bkgtd,bksd->bkgts", query.reshape(B, Hkv, group, T, D), key) * D ** -0.5
seen = np.ones((B, 1, T, S), bool) if mask is None else mask[:, None] if mask.ndim == 3 else mask
seen = seen[:, :, None]
top = np.max(scores, axis=-1, keepdims=True, where=seen, initial=-1e30)
shares = np.where(seen, np.exp(np.minimum(scores - top, 0)), 0).astype(query.dtype)
shares /= np.maximum(shares.sum(axis=-1, keepdims=True), 1e-30)
out = np.einsum("bkgts,bksd->bkgtd", shares, value)
return out.reshape(B, H, T, D), shares.reshape(B, Hkv, group * T, S), np.ones((B, Hkv, group * T, 1), query.dtype)
'''),
    Right("grouped_attention", "one head at a time, in loops", body='''
out = np.zeros((B, H, T, D), query.dtype)
weights, total = np.zeros((B, H, T, S), query.dtype), np.ones((B, H, T, 1), query.dtype)
for b in range(B):
    for h in range(H):
        k = h // group
        scores = query[b, h] @ key[b, k].T / D ** 0.5
        for t in range(T):
            row = slice(None) if mask is None else mask[b, t] if mask.ndim == 3 else mask[b, k, t]
            if scores[t, row].size:
                weights[b, h, t, row] = np.exp(scores[t, row] - scores[t, row].max())
                total[b, h, t] = weights[b, h, t].sum()
        out[b, h] = weights[b, h] @ value[b, k] / total[b, h]
return out, weights.reshape(B, Hkv, group * T, S), total.reshape(B, Hkv, group * T, 1)
'''),
    Right("grouped_attention", "hides with the lowest float, then clears the rows that see nothing", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    scores = np.where(mask, scores, np.finfo(query.dtype).min)
shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
shares = shares / shares.sum(axis=-1, keepdims=True)
if mask is not None:
    shares = np.where(mask.any(axis=-1, keepdims=True), shares, query.dtype.type(0))
shares = shares.reshape(B, Hkv, group * T, S)
return (shares @ value).reshape(B, H, T, D), shares, np.ones((B, Hkv, group * T, 1), query.dtype)
'''),
]

HEADS = [
    Wrong("heads", "splits with a reshape alone", says="A reshape cannot exchange two axes", body={0: '''
D = width // total
a, b = num_heads * D, (num_heads + num_kv_heads) * D
return (x[..., :a].reshape(B, num_heads, T, D), x[..., a:b].reshape(B, num_kv_heads, T, D),
        x[..., b:].reshape(B, num_kv_heads, T, D))
'''}),
    Wrong("heads", "three equal parts", says="the three parts have different widths", body={0: '''
third = width // 3
return tuple(x[..., i * third:(i + 1) * third].reshape(B, T, num_heads, -1).swapaxes(1, 2) for i in range(3))
'''}),
    Wrong("heads", "as many key heads as query heads", says="different widths", body={0: '''
heads = x.reshape(B, T, total, width // total).swapaxes(1, 2)
return heads[:, :num_heads], heads[:, num_heads:2 * num_heads], heads[:, num_heads:2 * num_heads]
'''}),
    Wrong("heads", "value before key", says="key head 0 of token 0 must hold columns [8, 9]", body={0: '''
heads = x.reshape(B, T, total, width // total).swapaxes(1, 2)
return heads[:, :num_heads], heads[:, num_heads + num_kv_heads:], heads[:, num_heads:num_heads + num_kv_heads]
'''}),
    Wrong("heads", "query, key and value alternate for each group", says="Columns are query | key | value", body={0: '''
group = num_heads // num_kv_heads
D = width // total
parts = x.reshape(B, T, num_kv_heads, group + 2, D)
query = parts[:, :, :, :group].reshape(B, T, num_heads, D).swapaxes(1, 2)
return query, parts[:, :, :, group].swapaxes(1, 2), parts[:, :, :, group + 1].swapaxes(1, 2)
'''}),
    Wrong("heads", "the heads vary fastest", says="head after head", body={0: '''
heads = x.reshape(B, T, width // total, total).transpose(0, 3, 1, 2)
return heads[:, :num_heads], heads[:, num_heads:total - num_kv_heads], heads[:, total - num_kv_heads:]
'''}),
    Wrong("heads", "splits the array and loses the gradient", says="gradient was lost", body={0: '''
heads = x.data.reshape(B, T, total, width // total).swapaxes(1, 2)
cut = np.split(heads, [num_heads, num_heads + num_kv_heads], axis=1)
return tuple(record(part, None) for part in cut)
'''}),
    Wrong("heads", "every gradient goes to the first columns", says="must arrive at their columns", body={0: '''
heads = x.data.reshape(B, T, total, width // total).swapaxes(1, 2)

def part(start, stop):
    def backward(grad):
        whole = np.zeros(x.shape, grad.dtype)
        whole.reshape(B, T, total, -1)[:, :, :stop - start] = grad.swapaxes(1, 2)
        return (whole,)
    return record(heads[:, start:stop], backward, x)
return part(0, num_heads), part(num_heads, num_heads + num_kv_heads), part(num_heads + num_kv_heads, total)
'''}),
    Wrong("heads", "merges with a reshape alone", says="exchange heads and tokens before the reshape", body={1: '''
return x.reshape(B, T, H * D)
'''}),
    Wrong("heads", "merges the numbers of the heads alternately", says="side by side", body={1: '''
return x.transpose(0, 2, 3, 1).reshape(B, T, H * D)
'''}),
    Wrong("heads", "adds the heads up", says="must give (3, 2, 8)", body={1: '''
return x.sum(axis=1)
'''}),
    Wrong("heads", "merges the array and loses the gradient", says="gradient was lost", body={1: '''
return record(x.data.swapaxes(1, 2).reshape(B, T, H * D), None)
'''}),
    Wrong("heads", "the gradient of split_heads is float64", says="comes back as float64", body={0: '''
heads = x.data.reshape(B, T, total, width // total).swapaxes(1, 2)

def part(start, stop):
    def backward(grad):
        whole = np.zeros(x.shape)
        whole.reshape(B, T, total, -1)[:, :, start:stop] = grad.swapaxes(1, 2)
        return (whole,)
    return record(heads[:, start:stop], backward, x)
return part(0, num_heads), part(num_heads, num_heads + num_kv_heads), part(num_heads + num_kv_heads, total)
'''}),
    Wrong("heads", "the gradient of merge_heads is float64", says="must stay float32", body={1: '''
def backward(grad):
    whole = np.zeros((B, H, T, D))
    for h in range(H):
        whole[:, h] = grad[:, :, h * D:(h + 1) * D]
    return (whole,)
return record(x.data.swapaxes(1, 2).reshape(B, T, H * D), backward, x)
'''}),
    Right("heads", "with the operations of Tensor", body={0: '''
heads = x.reshape(B, T, total, width // total).swapaxes(1, 2)
return heads[:, :num_heads], heads[:, num_heads:-num_kv_heads], heads[:, -num_kv_heads:]
''', 1: '''
return x.transpose(0, 2, 1, 3).reshape(B, T, -1)
'''}),
    Right("heads", "cut first, then reshape", body={0: '''
D = width // total
a, b = num_heads * D, (num_heads + num_kv_heads) * D
query = x[:, :, :a].reshape(B, T, num_heads, D).transpose(0, 2, 1, 3)
key = x[:, :, a:b].reshape(B, T, num_kv_heads, D).transpose(0, 2, 1, 3)
value = x[:, :, b:].reshape(B, T, num_kv_heads, D).transpose(0, 2, 1, 3)
return query, key, value
'''}),
]

LAYER = [
    Wrong("attention", "angles from the place in the array", says="from the places 0, 1, 2", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(np.arange(x.shape[1])[None])
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
if cache is None:
    mask = visible(positions, positions)
else:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "angles counted from the first new token", says="turned by their own positions", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions - positions[:, :1])
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
if cache is None:
    mask = visible(positions, positions)
else:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "turns only the query", says="the keys were not turned", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
query = apply_rotary(query, self.rotary(positions))
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "no rotary embedding", says="neither queries nor keys were turned", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "turns the value too", says="Was the value turned?", body='''
rotation = self.rotary(positions)
query, key, value = (apply_rotary(part, rotation)
                     for part in split_heads(self.qkv(x), self.num_heads, self.num_kv_heads))
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "no mask", says="look into the future", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value)))
'''),
    Wrong("attention", "always the first layer of the cache", says="Pass layer_idx on", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(0, key, value, positions)
    mask = cache_mask(positions, cache.layers[0])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "ignores the cache", says="Nothing was stored", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "stores the keys before they are turned", says="before cache.update stores them", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
query = apply_rotary(query, self.rotary(positions))
where, mask = positions, visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    where = cache.layers[layer_idx].positions
    mask = cache_mask(positions, cache.layers[layer_idx])
key = apply_rotary(key, self.rotary(where))
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "attends to the new tokens only", says="not only to the new ones", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
if cache is not None:
    cache.update(layer_idx, key, value, positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, visible(positions, positions))))
'''),
    Wrong("attention", "a mask of the new tokens for all cached keys", says="cache_mask", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, visible(positions, positions))))
'''),
    Wrong("attention", "forgets the output projection", says="Does self.out come last?", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return merge_heads(scaled_dot_product_attention(query, key, value, mask))
'''),
    Wrong("attention", "no mask for a single query", says="read the padding", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = None if positions.shape[1] == 1 else visible(positions, cache.layers[layer_idx].positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "no mask for a single query, with window and sinks", says="looks at `padded`", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    layer = cache.layers[layer_idx]
    mask = None if x.shape[1] == 1 else visible(positions, layer.positions, layer.window, layer.sinks)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "forgets the window of the cache", says="window and sinks on to visible", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = visible(positions, cache.layers[layer_idx].positions)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "forgets the sinks of the cache", says="window and sinks on to visible", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = visible(positions, cache.layers[layer_idx].positions, cache.layers[layer_idx].window)
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Wrong("attention", "no mask with a cache", says="the mask that cache_mask gives", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
rotation = self.rotary(positions)
query, key = apply_rotary(query, rotation), apply_rotary(key, rotation)
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = None
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Right("attention", "always a mask, from the positions in the cache", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads)
query = apply_rotary(query, self.rotary(positions))
key = apply_rotary(key, self.rotary(positions))
key_positions, window, sinks = positions, None, 0
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    layer = cache.layers[layer_idx]
    key_positions, window, sinks = layer.positions, layer.window, layer.sinks
mask = visible(positions, key_positions, window, sinks)
mixed = scaled_dot_product_attention(query, key, value, mask)
return self.out(merge_heads(mixed))
'''),
    Right("attention", "turns query and key together", body='''
B, T, _ = x.shape
shared = self.num_heads + self.num_kv_heads
heads = self.qkv(x).reshape(B, T, shared + self.num_kv_heads, self.head_dim).transpose(0, 2, 1, 3)
turned = apply_rotary(heads[:, :shared], self.rotary(positions))
query, key, value = turned[:, :self.num_heads], turned[:, self.num_heads:], heads[:, shared:]
mask = visible(positions, positions)
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
mixed = scaled_dot_product_attention(query, key, value, mask)
return self.out(mixed.transpose(0, 2, 1, 3).reshape(B, T, self.num_heads * self.head_dim))
'''),
]

ANSWERS = ROTARY + VISIBLE + ATTEND + HEADS + LAYER
