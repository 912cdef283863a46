"""Answers to the exercises of lesson 03, attention."""
from textwrap import indent

from tests.misconceptions import Right, Wrong

ROTARY = [
    Wrong("apply_rotary", "pairs the first half with the second half", says="first half with the second half", body='''
half = x.shape[-1] // 2
turned = (x[..., :half] + 1j * x[..., half:]) * rotation
return np.concatenate([turned.real, turned.imag], axis=-1).astype(x.dtype)
'''),
    Wrong("apply_rotary", "turns clockwise", says="wrong way", body='''
pairs = np.ascontiguousarray(x).view(complex_type)
return (pairs * rotation.conj().astype(complex_type)).view(x.dtype)
'''),
    Wrong("apply_rotary", "a complex128 product read as float32", says="twice the columns", body='''
pairs = np.ascontiguousarray(x).view(complex_type)
return (pairs * rotation.astype(np.complex128)).view(x.dtype)
'''),
    Wrong("apply_rotary", "the result is float64", says="must be float32", body='''
cos, sin = rotation.real, rotation.imag
out = np.empty(x.shape)
out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
return out
'''),
    Wrong("apply_rotary", "writes into its input", says="changed its input", body='''
pairs = x.view(complex_type)
pairs *= rotation
return pairs.view(x.dtype)
'''),
    Wrong("apply_rotary", "writes into its input through a view that need not be a copy", says="not z *= rotation", body='''
pairs = np.ascontiguousarray(x).view(complex_type)
pairs *= rotation
return pairs.view(x.dtype)
'''),
    Wrong("apply_rotary", "returns a Tensor", says="Return an array", body='''
pairs = np.ascontiguousarray(x).view(complex_type)
return Tensor((pairs * rotation.astype(complex_type)).view(x.dtype), dtype=x.dtype)
'''),
    Wrong("apply_rotary", "returns the complex numbers", says="the complex numbers themselves", body='''
return np.ascontiguousarray(x).view(complex_type) * rotation.astype(complex_type)
'''),
    Wrong("apply_rotary", "turns every row like the first", says="rows have different positions", body='''
pairs = np.ascontiguousarray(x).view(complex_type)
return (pairs * rotation[:1].astype(complex_type)).view(x.dtype)
'''),
    Wrong("apply_rotary", "reads any array as complex numbers", says="Use np.ascontiguousarray before the view", body='''
return (x.view(complex_type) * rotation.astype(complex_type)).view(x.dtype)
'''),
    Wrong("apply_rotary", "views as complex64 whatever the dtype is", says="View x as complex_type", body='''
return (np.ascontiguousarray(x).view(np.complex64) * rotation).view(x.dtype)
'''),
    Wrong("apply_rotary", "computes in complex64 whatever the dtype is", says="only as precise as float32", body='''
pairs = np.ascontiguousarray(x, dtype=np.float32).view(np.complex64)
return (pairs * rotation).view(np.float32).astype(x.dtype)
'''),
    Wrong("apply_rotary", "squeezes the rotation, which fits one row", says="leave its axis of length 1 in place", body='''
z = np.ascontiguousarray(x).view(complex_type)
return (z * rotation.squeeze().astype(complex_type)).view(x.dtype)
'''),
    Wrong("apply_rotary", "divides by the length of each pair", says="An array of zeros is turned wrongly", body='''
a, b = x[..., 0::2], x[..., 1::2]
length = np.hypot(a, b)
unit = (a + 1j * b) / length * rotation
result = np.empty(x.shape, x.dtype)
result[..., 0::2], result[..., 1::2] = length * unit.real, length * unit.imag
return result
'''),
    Right("apply_rotary", "with cos and sin", body='''
cos, sin = rotation.real.astype(x.dtype), rotation.imag.astype(x.dtype)
even, odd = x[..., 0::2], x[..., 1::2]
return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
'''),
    Right("apply_rotary", "with 2 x 2 matrices and einsum", body='''
c, s = rotation.real, rotation.imag
matrices = np.stack([np.stack([c, -s], axis=-1), np.stack([s, c], axis=-1)], axis=-2).astype(x.dtype)[:, 0]
return np.einsum("btpij,bhtpj->bhtpi", matrices, x.reshape(*x.shape[:-1], -1, 2)).reshape(x.shape)
'''),
]

VISIBLE = [
    Wrong("visible", "a triangle aligned to the start", says="aligned to the end", body='''
B, T = query_positions.shape
S = key_positions.shape[-1]
return np.tile(np.tril(np.ones((T, S), bool)), (B, 1, 1))
'''),
    Wrong("visible", "two comparisons in a chain", says="joined by &", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = 0 <= p <= q
return seen if window is None else seen & ((q - p < window) | (p < sinks))
'''),
    Wrong("visible", "queries and keys on the same axis", says="an axis of their own", body='''
seen = (key_positions >= 0) & (key_positions <= query_positions)
return seen if window is None else seen & ((query_positions - key_positions < window) | (key_positions < sinks))
'''),
    Wrong("visible", "always asks for the window", says="the window may be None", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
return (p >= 0) & (p <= q) & ((q - p < window) | (p < sinks))
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
    Wrong("visible", "heads of keys meet rows of queries", says="an axis for the heads, too", body='''
q, p = query_positions[:, :, None], key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p < window) | (p < sinks)
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
    Wrong("visible", "the sinks are the first places in the array", says="not places in the array", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p < window) | (np.arange(key_positions.shape[-1]) < sinks)
return seen
'''),
    Wrong("visible", "the window counts places in the array", says="not places in the array", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - np.arange(key_positions.shape[-1]) < window) | (p < sinks)
return seen
'''),
    Wrong("visible", "the sinks are the first tokens that are held", says="has no sink", body='''
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    first = np.where(p < 0, p.max(), p).min(axis=-1, keepdims=True)
    seen &= (q - p < window) | (p - first < sinks)
return seen
'''),
    Wrong("visible", "no window for heads with positions of their own", says="the window of 2 and the sink hold here too", body='''
if key_positions.ndim == 3:
    q, p = query_positions[:, None, :, None], key_positions[:, :, None, :]
    return (p >= 0) & (p <= q)
q, p = query_positions[:, :, None], key_positions[:, None, :]
seen = (p >= 0) & (p <= q)
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return seen
'''),
    Wrong("visible", "moves the padding to the future, in the cache's own positions", says="changed the positions", body='''
key_positions[key_positions < 0] = 2 ** 40
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = p <= q
if window is not None:
    seen &= (q - p < window) | (p < sinks)
return seen
'''),
    Right("visible", "moves the padding to the future", body='''
key_positions = np.where(key_positions < 0, 2 ** 40, key_positions)
q = query_positions[:, :, None] if key_positions.ndim == 2 else query_positions[:, None, :, None]
p = key_positions[..., None, :]
seen = p <= q
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
    Wrong("grouped_attention", "hides later keys by itself", says="Only the mask decides", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
if T == S:
    scores.reshape(B, Hkv, group, T, S)[..., np.triu(np.ones((T, S), bool), 1)] = -np.inf
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
    Wrong("grouped_attention", "sums over the queries", says="did not run over the keys", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-2, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "weights for each query head", says="weights must be (3, 2, 12, 7)", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights.reshape(B, H, T, S), total.reshape(B, H, T, 1)
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
    Wrong("grouped_attention", "float32 whatever the query is", says="float64 in must give float64 out", body='''
scores = query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True)).astype(np.float32)
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D).astype(np.float32), weights, total
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
    Wrong("grouped_attention", "NaN shares where nothing is seen", says="too late", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
scores = scores.reshape(B, Hkv, group * T, S)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return np.nan_to_num(weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "group and key/value heads exchanged", says="(B, Hkv, group * T, D)", body='''
scores = query.reshape(B, group, Hkv * T, D) @ key.swapaxes(-1, -2) * D ** -0.5
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = weights.sum(axis=-1, keepdims=True)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "subtracts the largest score of all rows", says="Subtract the largest score of each row", body='''
scores = (query.reshape(B, Hkv, group * T, D) @ key.swapaxes(-1, -2) * D ** -0.5).reshape(B, Hkv, group, T, S)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores, query.dtype.type(-np.inf))
scores = scores.reshape(B, Hkv, group * T, S)
largest = scores.max() if mask is None else scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min)
weights = np.exp(scores - largest)
total = weights.sum(axis=-1, keepdims=True)
if mask is not None:
    total = np.maximum(total, 1)
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
    Wrong("grouped_attention", "hides after np.exp, so a hidden score may be the largest", says="hide before you look", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
if mask is not None:
    seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    weights = (weights.reshape(B, Hkv, group, T, S) * seen).reshape(scores.shape)
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Wrong("grouped_attention", "a total of ones that are float64", says="np.ones makes float64", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores.reshape(B, Hkv, group, T, S), -np.inf).reshape(scores.shape)
shares = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min))
shares /= np.maximum(shares.sum(axis=-1, keepdims=True), 1)
return (shares @ value).reshape(B, H, T, D), shares, np.ones((B, Hkv, group * T, 1))
'''),
    Wrong("grouped_attention", "returns the weights from before the mask", says="With a mask, too", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
plain = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = plain.sum(axis=-1, keepdims=True)
if mask is None:
    return (plain @ value / total).reshape(B, H, T, D), plain, total
seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
seen = np.broadcast_to(seen, (B, Hkv, group, T, S)).reshape(scores.shape)
hidden = np.where(seen, scores, query.dtype.type(-np.inf))
weights = np.exp(hidden - hidden.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min))
out = weights @ value / np.maximum(weights.sum(axis=-1, keepdims=True), 1)
return out.reshape(B, H, T, D), plain * seen.any(axis=-1, keepdims=True), total
'''),
    Wrong("grouped_attention", "turns the mask around in place", says="mask was changed", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    np.logical_not(mask, out=mask)
    scores[np.broadcast_to(mask[:, :, None], (B, Hkv, group, T, S)).reshape(scores.shape)] = -np.inf
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min))
total = np.maximum(weights.sum(axis=-1, keepdims=True), 1)
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Right("grouped_attention", "adds the logarithm of the mask, which warns of log(0)", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
if mask is not None:
    seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    scores = (scores.reshape(B, Hkv, group, T, S) + np.log(seen)).astype(query.dtype).reshape(scores.shape)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min))
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
'''),
    Right("grouped_attention", "NaN in rows that see nothing, replaced by zeros by the mask", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = (q @ key.swapaxes(-1, -2)).reshape(B, Hkv, group, T, S)
if mask is not None:
    seen = (mask[:, None] if mask.ndim == 3 else mask)[:, :, None]
    scores = np.where(seen, scores, query.dtype.type(-np.inf))
shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
shares = shares / shares.sum(axis=-1, keepdims=True)
if mask is not None:
    shares = np.where(seen.any(axis=-1, keepdims=True), shares, query.dtype.type(0))
shares = shares.reshape(B, Hkv, group * T, S)
return (shares @ value).reshape(B, H, T, D), shares, np.ones((B, Hkv, group * T, 1), query.dtype)
'''),
    Right("grouped_attention", "plain products with @", body='''
q = query.reshape(B, Hkv, group * T, D) * D ** -0.5
scores = q @ key.swapaxes(-1, -2)
if mask is not None:
    mask = mask[:, None] if mask.ndim == 3 else mask
    scores = np.where(mask[:, :, None], scores.reshape(B, Hkv, group, T, S), -np.inf).reshape(scores.shape)
weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min))
total = weights.sum(axis=-1, keepdims=True)
total[total == 0] = 1
return (weights @ value / total).reshape(B, H, T, D), weights, total
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


def splitting(name, says, *, heads="x.data.reshape(B, T, total, D).swapaxes(1, 2)", turned="apply_rotary(heads[:, :shared], rotation)",
              back="return apply_rotary(grad, rotation.conj())"):
    """An answer to heads, right but for what is given here."""
    return Wrong("heads", name, says=says, body={0: f"heads = {heads}\nturned = {turned}", 1: back})


HEADS = [
    splitting("splits with a reshape alone", "A reshape cannot exchange two axes", heads="x.data.reshape(B, total, T, D)"),
    splitting("the heads vary fastest", "head after head", heads="x.data.reshape(B, T, D, total).transpose(0, 3, 1, 2)"),
    splitting("heads and batch exchanged", "begin with x.data", heads="x.data.reshape(B, T, total, D).transpose(2, 0, 1, 3)"),
    splitting("cuts the Tensor", "begin with x.data", heads="x.reshape(B, T, total, D).swapaxes(1, 2)"),
    splitting("cuts the Tensor, turns its array", "begin with x.data", heads="x.reshape(B, T, total, D).swapaxes(1, 2)",
              turned="apply_rotary(heads.data[:, :shared], rotation)"),
    splitting("nothing is turned", "The query was not turned", turned="heads[:, :shared]"),
    splitting("only the queries are turned", "The key was not turned",
              turned="np.concatenate([apply_rotary(heads[:, :num_heads], rotation), heads[:, num_heads:shared]], axis=1)"),
    splitting("the queries alone", "and `turned` the first 4 + 2", turned="apply_rotary(heads[:, :num_heads], rotation)"),
    splitting("all heads are turned", "and `turned` the first 4 + 2", turned="apply_rotary(heads, rotation)"),
    splitting("the values are turned too", "it was turned", heads="apply_rotary(x.data.reshape(B, T, total, D).swapaxes(1, 2), rotation)",
              turned="heads[:, :shared]"),
    splitting("turns the wrong way, and back the wrong way", "The query was turned the wrong way",
              turned="apply_rotary(heads[:, :shared], rotation.conj())", back="return apply_rotary(grad, rotation)"),
    splitting("turns twice", "by rotation: apply_rotary(..., rotation), once",
              turned="apply_rotary(apply_rotary(heads[:, :shared], rotation), rotation)"),
    splitting("turns in place", "changed the numbers of x", turned="heads[:, :shared]\nturned[...] = apply_rotary(turned, rotation)"),
    splitting("query and key are float64", "so the query must be float32 too",
              turned="apply_rotary(heads[:, :shared].astype(np.float64), rotation)"),
    splitting("the gradients are turned like the input", "of the query turns the gradient the same way as the forward",
              back="return apply_rotary(grad, rotation)"),
    splitting("the gradients are not turned", "The gradient of the query came back as it was", back="return grad"),
    splitting("the gradient is halved", "and nothing else", back="return apply_rotary(grad, rotation.conj()) / 2"),
    splitting("turns the heads again, not the gradient", "and nothing else", back="return apply_rotary(heads, rotation.conj())"),
    splitting("gives no gradient back", "turn_back must return the gradient", back="apply_rotary(grad, rotation.conj())"),
    splitting("turns the gradient in place", "wrote into the gradient", back="grad[...] = apply_rotary(grad, rotation.conj())\nreturn grad"),
    splitting("reads any gradient as complex numbers", "backwards too",
              back="return (grad.view(COMPLEX[grad.dtype]) * rotation.conj()).view(grad.dtype)"),
    splitting("the gradient of split_heads is float64", "comes back as float64",
              back="return apply_rotary(grad.astype(np.float64), rotation.conj())"),
    splitting("the gradient of split_heads is always float32", "must stay float64",
              back="return apply_rotary(grad.astype(np.float32), rotation.conj())"),
    Wrong("heads", "merges with a reshape alone", says="exchange heads and tokens before the reshape", body={2: '''
return x.reshape(B, T, H * D)
'''}),
    Wrong("heads", "merges the numbers of the heads alternately", says="side by side", body={2: '''
return x.transpose(0, 2, 3, 1).reshape(B, T, H * D)
'''}),
    Wrong("heads", "adds the heads up", says="must give (3, 2, 8)", body={2: '''
return x.sum(axis=1)
'''}),
    Wrong("heads", "merges the array and loses the gradient", says="gradient of merge_heads was lost", body={2: '''
return record(x.data.swapaxes(1, 2).reshape(B, T, H * D), None)
'''}),
    Wrong("heads", "the gradient of merge_heads is only reshaped", says="give each head the columns", body={2: '''
return record(x.data.swapaxes(1, 2).reshape(B, T, H * D), lambda grad: (grad.reshape(B, H, T, D),), x)
'''}),
    Wrong("heads", "the gradient of merge_heads is float64", says="must stay float32", body={2: '''
def backward(grad):
    whole = np.zeros((B, H, T, D))
    for h in range(H):
        whole[:, h] = grad[:, :, h * D:(h + 1) * D]
    return (whole,)
return record(x.data.swapaxes(1, 2).reshape(B, T, H * D), backward, x)
'''}),
    Right("heads", "the queries and the keys one after the other, and back by the quotient", body={0: '''
heads = np.stack([x.data[:, :, n * D:(n + 1) * D] for n in range(total)], axis=1)
turned = np.concatenate([apply_rotary(part, rotation) for part in np.split(heads[:, :shared], [num_heads], axis=1)], axis=1)
''', 1: '''
return apply_rotary(grad, 1 / rotation)
''', 2: '''
return x.transpose(0, 2, 1, 3).reshape(B, T, -1)
'''}),
    Right("heads", "with cos and sin", body={0: '''
def turn(array, sin):
    cos = rotation.real.astype(x.dtype)
    even, odd = array[..., 0::2], array[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(array.shape)

sin = rotation.imag.astype(x.dtype)
heads = x.data.reshape(B, T, total, D).transpose(0, 2, 1, 3)
turned = turn(heads[:, :shared], sin)
''', 1: '''
return turn(grad, -sin)
''', 2: '''
return x.swapaxes(1, 2).reshape(B, T, H * D)
'''}),
    Right("heads", "with the operations of Tensor, and nothing of what is given", body={0: '''
def turn(part):
    return record(apply_rotary(part.data, rotation), lambda grad: (apply_rotary(grad, rotation.conj()),), part)

a, b = num_heads * D, shared * D
query = x[:, :, :a].reshape(B, T, num_heads, D).transpose(0, 2, 1, 3)
key = x[:, :, a:b].reshape(B, T, num_kv_heads, D).transpose(0, 2, 1, 3)
return turn(query), turn(key), x[:, :, b:].reshape(B, T, num_kv_heads, D).transpose(0, 2, 1, 3)
'''}),
]


UPDATE = "key, value = cache.update(layer_idx, key, value, positions)\n"
UNTURNED_KEY = "key = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads, np.ones_like(rotation))[1]\n"


def forward(rotation="self.rotary(positions)", before="", mask="visible(positions, positions)",
            cached=UPDATE + "mask = cache_mask(positions, cache.layers[layer_idx])", after="",
            result="self.out(merge_heads(mixed))"):
    """`Attention.forward`; every argument is the code of one step."""
    return f'''
rotation = {rotation}
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads, rotation)
{before}
mask = {mask}
if cache is not None:
{indent(cached, "    ")}
{after}
mixed = scaled_dot_product_attention(query, key, value, mask)
return {result}
'''


LAYER = [
    Wrong("attention", "angles from the place in the array", says="from the places 0, 1, 2", body=forward(
        rotation="self.rotary(np.arange(x.shape[1])[None])")),
    Wrong("attention", "angles counted from the first new token", says="turned by their own positions", body=forward(
        rotation="self.rotary(positions - positions[:, :1])")),
    Wrong("attention", "turns only the query", says="the keys were not turned", body=forward(before=UNTURNED_KEY)),
    Wrong("attention", "no rotary embedding", says="neither queries nor keys were turned", body=forward(
        rotation="self.rotary(np.zeros_like(positions))")),
    Wrong("attention", "turns the value too", says="Was the value turned?", body=forward(
        before="value = Tensor(apply_rotary(value.data, rotation))")),
    Wrong("attention", "turns query and key once more", says="turned twice", body=forward(
        before="query, key = (Tensor(apply_rotary(part.data, rotation)) for part in (query, key))")),
    Wrong("attention", "no mask", says="look into the future", body=forward(mask="None", cached=UPDATE)),
    Wrong("attention", "a triangle for a mask", says="its padding is read", body=forward(
        mask="np.tile(np.tril(np.ones((x.shape[1], x.shape[1]), bool)), (len(positions), 1, 1))")),
    Wrong("attention", "the cache's mask for the new keys only", says="that it returns", body=forward(
        cached="cache.update(layer_idx, key, value, positions)\nmask = cache_mask(positions, cache.layers[layer_idx])")),
    Wrong("attention", "always the first layer of the cache", says="Pass layer_idx on", body=forward(cached='''
key, value = cache.update(0, key, value, positions)
mask = cache_mask(positions, cache.layers[0])
''')),
    Wrong("attention", "ignores the cache", says="Nothing was stored", body=forward(cached="pass")),
    Wrong("attention", "stores the keys before they are turned", says="before cache.update stores them", body=forward(
        before=UNTURNED_KEY + "where = positions",
        cached=UPDATE + '''
mask = cache_mask(positions, cache.layers[layer_idx])
where = cache.layers[layer_idx].positions
''', after='''
angles = self.rotary(where)
key = record(apply_rotary(key.data, angles), lambda grad: (apply_rotary(grad, angles.conj()),), key)
''')),
    Wrong("attention", "turns what comes back from the cache", says="They are not turned again", body=forward(cached=UPDATE + '''
key = Tensor(apply_rotary(key.data, self.rotary(cache.layers[layer_idx].positions)))
mask = cache_mask(positions, cache.layers[layer_idx])
''')),
    Wrong("attention", "attends to the new tokens only", says="not only to the new ones", body=forward(
        cached="cache.update(layer_idx, key, value, positions)")),
    Wrong("attention", "a mask of the new tokens for all cached keys", says="cache_mask", body=forward(cached=UPDATE)),
    Wrong("attention", "tells the cache places instead of positions", says="the tokens' own positions", body=forward(cached='''
layer = cache.layers[layer_idx]
held = 0 if layer.positions is None else layer.length
key, value = cache.update(layer_idx, key, value, np.arange(held, held + x.shape[1]) + 0 * positions)
mask = cache_mask(positions, layer)
''')),
    Wrong("attention", "asks for the mask before the update", says="only then ask cache_mask", body=forward(
        cached="mask = cache_mask(positions, cache.layers[layer_idx])\n" + UPDATE)),
    Wrong("attention", "updates without layer_idx", says="Call cache.update with layer_idx", body=forward(cached='''
key, value = cache.update(key, value, positions)
mask = cache_mask(positions, cache.layers[layer_idx])
''')),
    Wrong("attention", "asks the cache instead of its layer", says="cache_mask(positions, cache.layers[layer_idx])", body=forward(
        cached=UPDATE + "mask = cache_mask(positions, cache)")),
    Wrong("attention", "forgets the output projection", says="Does self.out come last?", body=forward(
        result="merge_heads(mixed)")),
    Wrong("attention", "no mask for a single query", says="read the padding", body=forward(cached=UPDATE + '''
mask = None if positions.shape[1] == 1 else visible(positions, cache.layers[layer_idx].positions)
''')),
    Wrong("attention", "no mask for a single query, with window and sinks", says="looks at `padded`", body=forward(
        cached=UPDATE + '''
layer = cache.layers[layer_idx]
mask = None if x.shape[1] == 1 else visible(positions, layer.positions, layer.window, layer.sinks)
''')),
    Wrong("attention", "forgets the window of the cache", says="window and sinks on to visible", body=forward(
        cached=UPDATE + "mask = visible(positions, cache.layers[layer_idx].positions)")),
    Wrong("attention", "forgets the sinks of the cache", says="window and sinks on to visible", body=forward(
        cached=UPDATE + "layer = cache.layers[layer_idx]\nmask = visible(positions, layer.positions, layer.window)")),
    Wrong("attention", "no mask with a cache", says="the mask that cache_mask gives", body=forward(
        cached=UPDATE + "mask = None")),
    Right("attention", "always a mask, from the positions in the cache", body='''
qkv = self.qkv(x)
query, key, value = split_heads(qkv, self.num_heads, self.num_kv_heads, self.rotary(positions))
key_positions, window, sinks = positions, None, 0
if cache is not None:
    key, value = cache.update(layer_idx, key, value, positions)
    layer = cache.layers[layer_idx]
    key_positions, window, sinks = layer.positions, layer.window, layer.sinks
mask = visible(positions, key_positions, window, sinks)
mixed = scaled_dot_product_attention(query, key, value, mask)
return self.out(merge_heads(mixed))
'''),
    Right("attention", "hands arrays to the cache", body='''
query, key, value = split_heads(self.qkv(x), self.num_heads, self.num_kv_heads, self.rotary(positions))
if cache is None:
    mask = visible(positions, positions)
else:
    key, value = cache.update(layer_idx, key.data, value.data, positions)
    mask = cache_mask(positions, cache.layers[layer_idx])
return self.out(merge_heads(scaled_dot_product_attention(query, key, value, mask)))
'''),
    Right("attention", "cuts and turns with the operations of Tensor", body='''
B, T, _ = x.shape
shared = self.num_heads + self.num_kv_heads
heads = self.qkv(x).reshape(B, T, shared + self.num_kv_heads, self.head_dim).transpose(0, 2, 1, 3)
rotation, plain = self.rotary(positions), heads[:, :shared]
turned = record(apply_rotary(plain.data, rotation), lambda grad: (apply_rotary(grad, rotation.conj()),), plain)
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
