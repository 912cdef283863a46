"""Answers to the exercises of 02_layers."""
from tests.misconceptions import Right, Wrong

SOFTMAX_BACKWARD = '''
def backward(grad):
    return y * (grad - (grad * y).sum(axis=axis, keepdims=True)),

return record(y, backward, x)
'''

SOFTMAX_FORWARD = '''
y = np.exp(x.data - np.maximum(x.data.max(axis=axis, keepdims=True), np.finfo(x.dtype).min))
y /= np.maximum(y.sum(axis=axis, keepdims=True), np.finfo(x.dtype).tiny)
'''

# What the exercise swiglu needs besides the one line that is wrong.
SWIGLU = '''
sigmoid = 0.5 * np.tanh(0.5 * gate) + 0.5
y = {y}

def backward(grad):
    by_gate = {by_gate}
    by_up = {by_up}
    return np.concatenate([by_gate, by_up], axis=-1),

return record(y, backward, gate_up)
'''
SWIGLU_RIGHT = {
    "y": "gate * sigmoid * up",
    "by_gate": "grad * up * (sigmoid + gate * sigmoid * (1 - sigmoid))",
    "by_up": "grad * gate * sigmoid",
}

RMS_NORM = '''
scale = {scale}
y = {y}

def backward(grad):
    unit = x.data * scale
    h = {h}
    by_x = {by_x}
    return by_x, {by_weight}

return record(y, backward, x, weight)
'''
RMS_NORM_RIGHT = {
    "scale": "1 / np.sqrt(np.mean(x.data ** 2, axis=-1, keepdims=True) + eps)",
    "y": "x.data * scale * weight.data",
    "h": "grad * weight.data",
    "by_x": "scale * (h - unit * (h * unit).mean(axis=-1, keepdims=True))",
    "by_weight": "(grad * unit).reshape(-1, d).sum(axis=0)",
}

CROSS_ENTROPY = '''
n = {n}
flat = logits.data.reshape(-1, classes)[counts]
flat = flat - {largest}
log_p = flat - np.log(np.exp(flat).sum(axis=-1, keepdims=True))
rows = np.arange(len(targets))
loss = {loss}

def backward(grad):
    part = np.exp(log_p)
    {onehot}
    full = np.zeros((counts.size, classes), np.float32)
    full[counts] = {part}
    return full.reshape(logits.shape),

return record(loss, backward, logits)
'''
CROSS_ENTROPY_RIGHT = {
    "n": "len(targets)",
    "largest": "flat.max(axis=-1, keepdims=True)",
    "loss": "-log_p[rows, targets].sum() / np.float32(n)",
    "onehot": "part[rows, targets] -= 1",
    "part": "part * (grad / n)",
}

LINEAR = '''
y = {y}

def backward(grad):
    flat = x.data.reshape(-1, d_in)
    grad_rows = grad.reshape(-1, d_out)
    parts = [{by_x}, {by_weight}]
    if bias is not None:
        parts.append({by_bias})
    return tuple(parts)

return record(y, backward, *([x, weight] if bias is None else [x, weight, bias]))
'''
LINEAR_RIGHT = {
    "y": "x.data @ weight.data if bias is None else x.data @ weight.data + bias.data",
    "by_x": "grad @ weight.data.T",
    "by_weight": "flat.T @ grad_rows",
    "by_bias": "grad_rows.sum(axis=0)",
}

WALK = '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor):
        if {wanted}:
            seen.add(id(value))
            yield name, value
    elif isinstance(value, (Module, list, tuple)):
        for key, item in {items} if isinstance(value, Module) else enumerate(value):
            {descend}(f"{{name}}.{{key}}" if name else str(key), item)

yield from walk(prefix, self)
'''
WALK_RIGHT = {
    "wanted": "id(value) not in seen",
    "items": "vars(value).items()",
    "descend": "yield from walk",
}

PROBLEMS = '''
problems = [f"missing {name}" for name in own if name not in arrays]
problems += [f"unexpected {name}" for name in arrays if name not in own]
problems += [f"wrong shape {name}" for name in own if name in arrays and own[name].shape != arrays[name].shape]
if problems:
    raise ValueError(", ".join(problems))
'''

LOAD = '''
problems = []
for name in own:
    if name not in arrays:
        problems.append("missing " + name)
    elif own[name].shape != arrays[name].shape:
        problems.append("wrong shape " + name)
    elif not np.can_cast(arrays[name].dtype, own[name].dtype, "same_kind"):
        problems.append("wrong dtype " + name)
for name in arrays:
    if name not in own:
        problems.append("unexpected " + name)
if problems:
    raise ValueError(", ".join(problems))
for name, parameter in own.items():
'''

ANSWERS = [
    # ---- softmax
    Wrong("softmax", "exp before the maximum", says="exp was taken before the maximum was subtracted", body='''
y = np.exp(x.data)
y = y / y.sum(axis=axis, keepdims=True)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "maximum of the whole array", says="not the maximum of each row", body='''
y = np.exp(x.data - x.data.max())
y = y / y.sum(axis=axis, keepdims=True)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "axis ignored", says="another axis than `axis`", body='''
y = np.exp(x.data - x.data.max(axis=-1, keepdims=True))
y = y / y.sum(axis=-1, keepdims=True)

def backward(grad):
    return y * (grad - (grad * y).sum(axis=-1, keepdims=True)),

return record(y, backward, x)
'''),
    Wrong("softmax", "sum without keepdims", says="keepdims=True is missing", body='''
y = np.exp(x.data - x.data.max())
y = y / y.sum(axis=axis)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "maximum without keepdims", says="keepdims=True is missing at the maximum", body='''
y = np.exp(x.data - x.data.max(axis=axis))
y = y / y.sum(axis=axis, keepdims=True)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "sum over the last axis", says="both sums run along `axis`", body='''
y = np.exp(x.data - np.maximum(x.data.max(axis=axis, keepdims=True), np.finfo(x.dtype).min))
y /= np.maximum(y.sum(axis=-1, keepdims=True), np.finfo(x.dtype).tiny)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "gradient without p before the bracket", says="p stands before the bracket",
          body=SOFTMAX_FORWARD + '''
def backward(grad):
    return grad - (grad * y).sum(axis=axis, keepdims=True),

return record(y, backward, x)
'''),
    Wrong("softmax", "sum over everything", says="the whole array, not along `axis`", body='''
y = np.exp(x.data - x.data.max())
y = y / y.sum()
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "diagonal of the Jacobian only", says="it depends on all of them", body='''
y = np.exp(x.data - x.data.max(axis=axis, keepdims=True))
y = y / y.sum(axis=axis, keepdims=True)
return record(y, lambda grad: (grad * y * (1 - y),), x)
'''),
    Wrong("softmax", "gradient summed over the last axis", says="the sum in the gradient runs over another axis", body='''
y = np.exp(x.data - x.data.max(axis=axis, keepdims=True))
y = y / y.sum(axis=axis, keepdims=True)
return record(y, lambda grad: (y * (grad - (grad * y).sum(axis=-1, keepdims=True)),), x)
'''),
    Wrong("softmax", "gradient without keepdims", says="keepdims=True is missing in the gradient",
          body=SOFTMAX_FORWARD + "return record(y, lambda grad: (y * (grad - (grad * y).sum(axis=axis)),), x)"),
    Wrong("softmax", "gradient without p in the sum", says="the factor p is missing inside the sum",
          body=SOFTMAX_FORWARD + "return record(y, lambda grad: (y * (grad - grad.sum(axis=axis, keepdims=True)),), x)"),
    Wrong("softmax", "nothing returned", says="The function returned NoneType. It must return what `record` gives",
          body=SOFTMAX_FORWARD + SOFTMAX_BACKWARD.replace("return record", "record")),
    Wrong("softmax", "an array returned", says="The function returned ndarray. It must return what `record` gives",
          body=SOFTMAX_FORWARD + "return y"),
    Wrong("softmax", "all -inf", says="a row that allows nothing must give zeros", body='''
y = np.exp(x.data - x.data.max(axis=axis, keepdims=True))
y = y / y.sum(axis=axis, keepdims=True)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "all -inf gives equal probabilities", says="a row that allows nothing must give zeros", body='''
finite = np.maximum(x.data, np.finfo(x.dtype).min)
y = np.exp(finite - finite.max(axis=axis, keepdims=True))
y = y / y.sum(axis=axis, keepdims=True)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "put together from operators", says="Write it as one", body='''
limits = np.finfo(x.dtype)
powers = (x - np.maximum(x.data.max(axis=axis, keepdims=True), limits.min)).exp()
return powers / (powers.sum(axis=axis, keepdims=True) + limits.tiny)
'''),
    Wrong("softmax", "backward overwrites what was kept", says="Backward must not write to what the forward kept",
          body=SOFTMAX_FORWARD + '''
result = y.copy()

def backward(grad):
    along = (grad * y).sum(axis=axis, keepdims=True)
    part = y
    part *= grad - along
    return part,

return record(result, backward, x)
'''),
    Wrong("softmax", "backward writes into the gradient", says="Backward wrote to the gradient that it was given",
          body=SOFTMAX_FORWARD + '''
def backward(grad):
    grad -= (grad * y).sum(axis=axis, keepdims=True)
    grad *= y
    return grad,

return record(y, backward, x)
'''),
    Wrong("softmax", "maximum subtracted in place", says="Input 0 was written to", body='''
scores = x.data
scores -= np.maximum(scores.max(axis=axis, keepdims=True), np.finfo(x.dtype).min)
y = np.exp(scores)
y /= np.maximum(y.sum(axis=axis, keepdims=True), np.finfo(x.dtype).tiny)
''' + SOFTMAX_BACKWARD),
    Wrong("softmax", "float64 on the way back", says="gradient of softmax over axis -1: expected float32, but it is float64",
          body=SOFTMAX_FORWARD + '''
def backward(grad):
    p = y.astype(np.float64)
    return p * (grad - (grad * p).sum(axis=axis, keepdims=True)),

return record(y, backward, x)
'''),
    Right("softmax", "0 / 0 that is not chosen, at which NumPy warns", body='''
top = x.data.max(axis=axis, keepdims=True)
powers = np.exp(x.data - np.where(np.isneginf(top), np.float32(0), top))
total = powers.sum(axis=axis, keepdims=True)
y = np.where(total > 0, powers / total, np.float32(0))
''' + SOFTMAX_BACKWARD),
    Right("softmax", "float32 by name", body='''
top = x.data.max(axis=axis, keepdims=True)
powers = np.exp(x.data - np.where(np.isneginf(top), 0, top))
total = powers.sum(axis=axis, keepdims=True)
y = np.zeros(x.shape, dtype=np.float32)
np.divide(powers, total, out=y, where=total > 0)
''' + SOFTMAX_BACKWARD),
    Right("softmax", "row by row", body='''
moved = np.moveaxis(x.data, axis, -1)
y = np.zeros_like(moved)
for index in np.ndindex(moved.shape[:-1]):
    row = moved[index]
    allowed = row > -np.inf
    if allowed.any():
        powers = np.exp(row[allowed] - row.max())
        y[index][allowed] = powers / powers.sum()
y = np.moveaxis(y, -1, axis)
''' + SOFTMAX_BACKWARD),
    Right("softmax", "with the Jacobian", body='''
top = x.data.max(axis=axis, keepdims=True)
y = np.exp(x.data - np.where(top == -np.inf, 0, top))
total = y.sum(axis=axis, keepdims=True)
y = y / np.where(total == 0, 1, total)

def backward(grad):
    p, g = np.moveaxis(y, axis, -1), np.moveaxis(grad, axis, -1)
    jacobian = p[..., :, None] * (np.eye(p.shape[-1], dtype=p.dtype) - p[..., None, :])
    return np.moveaxis(np.einsum("...i,...ij->...j", g, jacobian), -1, axis),

return record(y, backward, x)
'''),

    # ---- cross_entropy
    Wrong("cross_entropy", "logarithm of the softmax", says="the logarithm of a probability that was rounded to 0", body='''
p = softmax(Tensor(logits.data.reshape(-1, classes)[counts])).data
rows, n = np.arange(len(targets)), len(targets)

def backward(grad):
    part = p.copy()
    part[rows, targets] -= 1
    full = np.zeros((counts.size, classes), p.dtype)
    full[counts] = part * (grad / n)
    return full.reshape(logits.shape),

return record(-np.log(p[rows, targets]).mean(), backward, logits)
'''),
    Wrong("cross_entropy", "the largest logit of all rows", says="Each row has a largest logit of its own",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "largest": "flat.max()"})),
    Wrong("cross_entropy", "sum instead of mean", says="the mean is wanted",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "loss": "-log_p[rows, targets].sum()"})),
    Wrong("cross_entropy", "maximum subtracted in the sum only", says="that of the target too",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT,
              "loss": "(np.log(np.exp(flat).sum(axis=-1)) - logits.data.reshape(-1, classes)[counts][rows, targets]).mean()"})),
    Wrong("cross_entropy", "sign of the loss", says="the sign is wrong",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "loss": "log_p[rows, targets].mean()"})),
    Wrong("cross_entropy", "divided by all rows", says="the sum is divided by all rows",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "n": "counts.size"})),
    Wrong("cross_entropy", "gradient divided by all rows", says="the gradient is divided by all rows",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "part": "part * (grad / counts.size)"})),
    Wrong("cross_entropy", "gradient of the sum", says="the mean was forgotten",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "part": "part * grad"})),
    Wrong("cross_entropy", "incoming gradient unused", says="the incoming gradient is not used",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "part": "part / np.float32(n)"})),
    Wrong("cross_entropy", "one-hot forgotten", says="the one-hot part is missing",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "onehot": "pass"})),
    Wrong("cross_entropy", "ignored rows get a gradient", says="rows that are ignored get a gradient", body='''
flat = logits.data.reshape(-1, classes)
flat = flat - flat.max(axis=-1, keepdims=True)
log_p = flat - np.log(np.exp(flat).sum(axis=-1, keepdims=True))
rows, n = np.flatnonzero(counts), len(targets)

def backward(grad):
    part = np.exp(log_p)
    part[rows, targets] -= 1
    return (part * (grad / n)).reshape(logits.shape),

return record(-log_p[rows, targets].mean(), backward, logits)
'''),
    Wrong("cross_entropy", "writes to the logits", says="Input 0 was written to", body='''
flat = logits.data.reshape(-1, classes)
flat -= flat.max(axis=-1, keepdims=True)
log_p = flat - np.log(np.exp(flat).sum(axis=-1, keepdims=True))
rows, n = np.flatnonzero(counts), len(targets)

def backward(grad):
    part = np.exp(log_p)
    part[rows, targets] -= 1
    part[~counts] = 0
    return (part * (grad / n)).reshape(logits.shape),

return record(-log_p[rows, targets].mean(), backward, logits)
'''),
    Wrong("cross_entropy", "backward works once", says="Backward must not write to what the forward kept", body='''
flat = logits.data.reshape(-1, classes)
flat = flat - flat.max(axis=-1, keepdims=True)
p = np.exp(flat)
total = p.sum(axis=-1, keepdims=True)
p /= total
rows, n = np.flatnonzero(counts), len(targets)
loss = (np.log(total[counts, 0]) - flat[rows, targets]).mean()

def backward(grad):
    p[rows, targets] -= 1
    p[~counts] = 0
    return (p * (grad / n)).reshape(logits.shape),

return record(loss, backward, logits)
'''),
    Wrong("cross_entropy", "float64 on the way back", says="expected float32, but it is float64",
          body=CROSS_ENTROPY.format(**CROSS_ENTROPY_RIGHT).replace("classes), np.float32)", "classes))")),
    Wrong("cross_entropy", "divided by a NumPy integer", says="or an integer such as counts.sum()",
          body=CROSS_ENTROPY.format(**{**CROSS_ENTROPY_RIGHT, "n": "counts.sum()", "loss": "-log_p[rows, targets].sum() / n"})),
    Wrong("cross_entropy", "targets paired with the first rows", says="`targets` was paired with the first rows", body='''
flat = logits.data.reshape(-1, classes)
flat = flat - flat.max(axis=-1, keepdims=True)
log_p = flat - np.log(np.exp(flat).sum(axis=-1, keepdims=True))
rows, n = np.arange(len(targets)), len(targets)

def backward(grad):
    part = np.exp(log_p)
    part[rows, targets] -= 1
    return (part * (grad / n)).reshape(logits.shape),

return record(-log_p[rows, targets].mean(), backward, logits)
'''),
    Wrong("cross_entropy", "put together from operators", says="Write it as one", body='''
flat = logits.reshape(-1, classes)[np.flatnonzero(counts)]
flat = flat - flat.max(axis=-1, keepdims=True)
return (flat.exp().sum(axis=-1).log() - flat[np.arange(len(targets)), targets]).mean()
'''),
    Right("cross_entropy", "log-softmax", body=CROSS_ENTROPY.format(**CROSS_ENTROPY_RIGHT)),
    Right("cross_entropy", "one row at a time, with a one-hot matrix", body='''
flat, full, losses, taken = logits.data.reshape(-1, classes), np.zeros((counts.size, classes), np.float32), [], 0
onehot = np.eye(classes, dtype=np.float32)
for row in range(counts.size):
    if counts[row]:
        target = targets[taken]
        taken += 1
        powers = np.exp(flat[row] - flat[row].max())
        losses.append(math.log(powers.sum()) + flat[row].max() - flat[row][target])
        full[row] = powers / powers.sum() - onehot[target]
loss = np.float32(sum(losses) / taken)
return record(loss, lambda grad: ((full * (grad / taken)).reshape(logits.shape),), logits)
'''),

    # ---- rms_norm
    Wrong("rms_norm", "eps outside the root", says="eps stands outside the root", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "scale": "1 / (np.sqrt(np.mean(x.data ** 2, axis=-1, keepdims=True)) + eps)"})),
    Wrong("rms_norm", "eps forgotten", says="eps is missing", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "scale": "1 / np.sqrt(np.mean(x.data ** 2, axis=-1, keepdims=True))"})),
    Wrong("rms_norm", "mean over the batch", says="the mean runs over the wrong axis", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "scale": "1 / np.sqrt(np.mean(x.data ** 2, axis=0, keepdims=True) + eps)"})),
    Wrong("rms_norm", "mean over everything", says="the mean runs over the whole array", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "scale": "1 / np.sqrt(np.mean(x.data ** 2) + eps)"})),
    Wrong("rms_norm", "sum of squares", says="the sum of squares is used", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "scale": "1 / np.sqrt(np.sum(x.data ** 2, axis=-1, keepdims=True) + eps)"})),
    Wrong("rms_norm", "LayerNorm", says="that is LayerNorm", body='''
centred = x.data - x.data.mean(axis=-1, keepdims=True)
y = centred / np.sqrt((centred ** 2).mean(axis=-1, keepdims=True) + eps) * weight.data
return record(y, lambda grad: (grad, grad.reshape(-1, d).sum(axis=0)), x, weight)
'''),
    Wrong("rms_norm", "no weight", says="the weight was forgotten",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "y": "x.data * scale"})),
    Wrong("rms_norm", "float64", says="expected float32, but it is float64", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT,
        "scale": "np.sqrt(d) / np.sqrt(np.sum(x.data ** 2, axis=-1, keepdims=True) + eps * d)"})),
    Wrong("rms_norm", "scale taken for a constant", says="the scale was taken for a constant",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_x": "scale * h"})),
    Wrong("rms_norm", "weight missing in the gradient", says="the weight is missing in the gradient by x",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "h": "grad"})),
    Wrong("rms_norm", "gradient sums over the features", says="became a sum", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "by_x": "scale * (h - unit * (h * unit).sum(axis=-1, keepdims=True))"})),
    Wrong("rms_norm", "scale missing before the bracket", says="the factor s before the bracket is missing",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_x": "h - unit * (h * unit).mean(axis=-1, keepdims=True)"})),
    Wrong("rms_norm", "x in the bracket", says="x stands in the bracket where u = s x is meant", body=RMS_NORM.format(**{
        **RMS_NORM_RIGHT, "by_x": "scale * (h - x.data * (h * x.data).mean(axis=-1, keepdims=True))"})),
    Wrong("rms_norm", "weight gradient without u", says="the factor u is missing",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "grad.reshape(-1, d).sum(axis=0)"})),
    Wrong("rms_norm", "weight gradient from x", says="multiply by x divided by its root mean square",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "(grad * x.data).reshape(-1, d).sum(axis=0)"})),
    Wrong("rms_norm", "weight gradient from the output", says="the output, which already holds the weight",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "(grad * y).reshape(-1, d).sum(axis=0)"})),
    Wrong("rms_norm", "weight gradient not summed", says="sum over all leading axes",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "(grad * unit).sum(axis=0)"})),
    Wrong("rms_norm", "x divided in place", says="Input 0 was written to", body='''
unit = x.data
scale = 1 / np.sqrt((unit * unit).mean(axis=-1, keepdims=True) + eps)
unit *= scale

def backward(grad):
    h = grad * weight.data
    by_x = scale * (h - unit * (h * unit).mean(axis=-1, keepdims=True))
    return by_x, (grad * unit).reshape(-1, d).sum(axis=0)

return record(unit * weight.data, backward, x, weight)
'''),
    Wrong("rms_norm", "half of u in the bracket", says="h = g w and u = s x",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_x": "scale * (h - x.data * (h * unit).mean(axis=-1, keepdims=True))"})),
    Wrong("rms_norm", "weight gradient averaged", says="the sum of g u over all leading axes",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "(grad * unit).reshape(-1, d).mean(axis=0)"})),
    Wrong("rms_norm", "writes into the gradient", says="Backward wrote to the gradient that it was given", body='''
scale = 1 / np.sqrt(np.mean(x.data ** 2, axis=-1, keepdims=True) + eps)
unit = x.data * scale

def backward(grad):
    by_weight = (grad * unit).reshape(-1, d).sum(axis=0)
    grad *= weight.data
    return scale * (grad - unit * (grad * unit).mean(axis=-1, keepdims=True)), by_weight

return record(unit * weight.data, backward, x, weight)
'''),
    Wrong("rms_norm", "float64 by the weight", says="gradient by the weight: expected float32, but it is float64",
          body=RMS_NORM.format(**{**RMS_NORM_RIGHT, "by_weight": "sum((grad * unit).reshape(-1, d), np.zeros(d))"})),
    Wrong("rms_norm", "the plain version", says="Write it as one", body="return plain_rms_norm(x, weight, eps)"),
    Right("rms_norm", "textbook", body=RMS_NORM.format(**RMS_NORM_RIGHT)),
    Right("rms_norm", "einsum", body='''
power = np.einsum("...d,...d->...", x.data, x.data) / d
scale = (power + eps) ** -0.5
y = np.einsum("...d,...,d->...d", x.data, scale, weight.data)

def backward(grad):
    h = grad * weight.data
    along = np.einsum("...d,...d->...", h, x.data) / d
    by_x = h * scale[..., None] - x.data * (along * scale ** 3)[..., None]
    return by_x, np.einsum("nd,nd,n->d", grad.reshape(-1, d), x.data.reshape(-1, d), scale.reshape(-1))

return record(y, backward, x, weight)
'''),

    # ---- swiglu
    Wrong("swiglu", "gate and up exchanged", says="gate and up are exchanged", body='''
gate, up = up, gate
''' + SWIGLU.format(**SWIGLU_RIGHT)),
    Wrong("swiglu", "sigmoid instead of silu", says="silu(gate) is gate * sigmoid(gate)",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "y": "sigmoid * up"})),
    Wrong("swiglu", "no product with up", says="the product with up is missing",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "y": "gate * sigmoid"})),
    Wrong("swiglu", "silu of both", says="silu was taken of both halves",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "y": "gate * sigmoid * up / (1 + np.exp(-up))"})),
    Wrong("swiglu", "exp overflows", says="infinity divided by infinity", body='''
powers = np.exp(gate)
sigmoid = powers / (1 + powers)

def backward(grad):
    by_gate = grad * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
    return np.concatenate([by_gate, grad * gate * sigmoid], axis=-1),

return record(gate * sigmoid * up, backward, gate_up)
'''),
    Wrong("swiglu", "halves of the gradient exchanged", says="the two halves of the gradient are exchanged",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": SWIGLU_RIGHT["by_up"], "by_up": SWIGLU_RIGHT["by_gate"]})),
    Wrong("swiglu", "half of the derivative", says="gate * sigmoid * (1 - sigmoid) is missing",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": "grad * up * sigmoid"})),
    Wrong("swiglu", "derivative of sigmoid", says="the derivative of sigmoid was taken",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": "grad * up * sigmoid * (1 - sigmoid)"})),
    Wrong("swiglu", "a factor sigmoid forgotten", says="The derivative of silu(gate) is sigmoid + gate * sigmoid",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": "grad * up * (sigmoid + gate * (1 - sigmoid))"})),
    Wrong("swiglu", "silu in its own derivative", says="silu(gate) stands in the derivative where the gate is meant",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": "grad * up * (sigmoid + gate * sigmoid * sigmoid * (1 - sigmoid))"})),
    Wrong("swiglu", "gradient by the gate without up", says="lacks the factor up",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_gate": "grad * (sigmoid + gate * sigmoid * (1 - sigmoid))"})),
    Wrong("swiglu", "gradient by up takes the gate", says="it takes silu(gate)",
          body=SWIGLU.format(**{**SWIGLU_RIGHT, "by_up": "grad * gate"})),
    Wrong("swiglu", "float64 zeros for both halves", says="gradient of swiglu: expected float32, but it is float64", body='''
sigmoid = 0.5 * np.tanh(0.5 * gate) + 0.5

def backward(grad):
    part = np.zeros(gate_up.shape)
    part[..., :width] = grad * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
    part[..., width:] = grad * gate * sigmoid
    return part,

return record(gate * sigmoid * up, backward, gate_up)
'''),
    Wrong("swiglu", "the gate, a view, becomes silu", says="Input 0 was written to", body='''
sigmoid = 0.5 * np.tanh(0.5 * gate) + 0.5
slope = sigmoid + gate * sigmoid * (1 - sigmoid)
gate *= sigmoid

def backward(grad):
    return np.concatenate([grad * up * slope, grad * gate], axis=-1),

return record(gate * up, backward, gate_up)
'''),
    Wrong("swiglu", "put together from silu", says="Write it as one",
          body="return silu(gate_up[..., :width]) * gate_up[..., width:]"),
    Right("swiglu", "sigmoid from tanh", body=SWIGLU.format(**SWIGLU_RIGHT)),
    Right("swiglu", "exp that overflows to infinity, so that NumPy warns and the sigmoid is 0", body='''
sigmoid = 1 / (1 + np.exp(-gate))

def backward(grad):
    by_gate = grad * up * (sigmoid + gate * sigmoid * (1 - sigmoid))
    return np.concatenate([by_gate, grad * gate * sigmoid], axis=-1),

return record(gate * sigmoid * up, backward, gate_up)
'''),
    Right("swiglu", "exp of minus the absolute value", body='''
small = np.exp(-np.abs(gate))
sigmoid = np.where(gate >= 0, 1, small) / (1 + small)
silu_gate = gate * sigmoid

def backward(grad):
    out = np.zeros(gate_up.shape, gate_up.dtype)
    out[..., :width] += grad * up * sigmoid * (1 + gate - silu_gate)
    out[..., width:] += grad * silu_gate
    return out,

return record(silu_gate * up, backward, gate_up)
'''),

    # ---- linear
    Wrong("linear", "weight transposed", says="the weight was transposed", body=LINEAR.format(**{
        **LINEAR_RIGHT, "y": "x.data @ weight.data.T + (0 if bias is None else bias.data)"})),
    Wrong("linear", "bias forgotten", says="the bias was forgotten",
          body=LINEAR.format(**{**LINEAR_RIGHT, "y": "x.data @ weight.data"})),
    Wrong("linear", "result stays flat", says="The result: expected shape (3, 2, 4), but it is (6, 4)", body=LINEAR.format(**{
        **LINEAR_RIGHT, "y": "x.data.reshape(-1, d_in) @ weight.data + (0 if bias is None else bias.data)",
        "by_x": "(grad_rows @ weight.data.T).reshape(x.shape)"})),
    Wrong("linear", "weight not transposed in the gradient", says="the weight must be transposed here",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_x": "grad @ weight.data"})),
    Wrong("linear", "weight gradient transposed", says="it is transposed; the weight is (in, out)",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_weight": "grad_rows.T @ flat"})),
    Wrong("linear", "weight gradient not flattened", says="sum over all leading axes",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_weight": "x.data.swapaxes(-1, -2) @ grad"})),
    Wrong("linear", "nothing flattened in the way back", says="sum over all leading axes",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_weight": "flat.T @ grad"})),
    Wrong("linear", "gradient by x stays flat", says="did not get the shape of x back",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_x": "grad_rows @ weight.data.T"})),
    Wrong("linear", "bias gradient over the batch only", says="sum over all leading axes",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_bias": "grad.sum(axis=0)"})),
    Wrong("linear", "bias gradient averaged", says="the sum is wanted",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_bias": "grad_rows.mean(axis=0)"})),
    Wrong("linear", "flattened the wrong way", says="linear of shape (3, 2, 4): expected", body=LINEAR.format(**{
        **LINEAR_RIGHT, "y": "(weight.data.T @ x.data.reshape(d_in, -1)).T.reshape(x.shape[:-1] + (d_out,)) "
                             "+ (0 if bias is None else bias.data)"})),
    Wrong("linear", "float64 by the weight", says="gradient by the weight: expected float32, but it is float64",
          body=LINEAR.format(**{**LINEAR_RIGHT, "by_weight": "sum(np.outer(r, g) for r, g in zip(flat, grad_rows)) * np.ones(1)"})),
    Wrong("linear", "None is added", says="Here the bias is None",
          body=LINEAR.format(**{**LINEAR_RIGHT, "y": "x.data @ weight.data + bias.data"})),
    Wrong("linear", "always three gradients", says="Here the bias is None", body='''
y = x.data @ weight.data + (0 if bias is None else bias.data)

def backward(grad):
    rows = grad.reshape(-1, d_out)
    return grad @ weight.data.T, x.data.reshape(-1, d_in).T @ rows, rows.sum(axis=0)

return record(y, backward, *([x, weight] if bias is None else [x, weight, bias]))
'''),
    Wrong("linear", "flags exchanged", says="Usually `requires_grad` of another Tensor was asked", body=LINEAR.format(**{
        **LINEAR_RIGHT, "by_x": "grad @ weight.data.T if weight.requires_grad else None",
        "by_weight": "flat.T @ grad_rows if x.requires_grad else None"})),
    Wrong("linear", "the bias asks the weight", says="Here only bias requires a gradient", body=LINEAR.format(**{
        **LINEAR_RIGHT, "by_bias": "grad_rows.sum(axis=0) if weight.requires_grad else None"})),
    Wrong("linear", "asks whether the bias is true", says="where `if bias is not None` is meant", body=LINEAR.format(**{
        **LINEAR_RIGHT, "y": "x.data @ weight.data + (bias.data if bias else 0)"})),
    Wrong("linear", "the plain version", says="Write it as one",
          body="return x @ weight if bias is None else x @ weight + bias"),
    Right("linear", "without flattening", body=LINEAR.format(**LINEAR_RIGHT)),
    Right("linear", "None where no gradient is needed", body=LINEAR.format(**{
        **LINEAR_RIGHT, "by_x": "grad @ weight.data.T if x.requires_grad else None",
        "by_weight": "flat.T @ grad_rows if weight.requires_grad else None",
        "by_bias": "grad_rows.sum(axis=0) if bias.requires_grad else None"})),
    Right("linear", "with einsum", body=LINEAR.format(
        y='np.einsum("...i,io->...o", x.data, weight.data) + (0 if bias is None else bias.data)',
        by_x='np.einsum("...o,io->...i", grad, weight.data)',
        by_weight='np.einsum("ni,no->io", flat, grad_rows)',
        by_bias='np.einsum("no->o", grad_rows)')),

    # ---- modules: region 0 is named_parameters, region 1 is load_state_dict
    Wrong("modules", "lists skipped", says="Modules in lists are skipped", body={0: '''
for name, value in vars(self).items():
    path = f"{prefix}.{name}" if prefix else name
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Module):
        yield from value.named_parameters(path)
'''}),
    Wrong("modules", "tuples skipped", says="Modules in tuples are skipped", body={0: '''
seen = set()
for name, value in vars(self).items():
    path = f"{prefix}.{name}" if prefix else name
    for key, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
        full = path if key is None else f"{path}.{key}"
        found = [(full, item)] if isinstance(item, Tensor) else []
        found = item.named_parameters(full) if isinstance(item, Module) else found
        for found_name, tensor in found:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield found_name, tensor
'''}),
    Wrong("modules", "takes all that a list holds for modules", says="a list may hold all of these", body={0: '''
def own(module, path):
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            yield f"{path}.{name}" if path else name, value

yield from own(self, prefix)
for name, value in vars(self).items():
    if isinstance(value, Module):
        yield from own(value, name)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from own(item, f"{name}.{i}")
'''}),
    Wrong("modules", "one level only", says="Modules inside modules inside the model are skipped", body={0: '''
def own(module, path):
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            yield f"{path}.{name}" if path else name, value

yield from own(self, prefix)
for name, value in vars(self).items():
    if isinstance(value, Module):
        yield from own(value, name)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            if isinstance(item, Module):
                yield from own(item, f"{name}.{i}")
'''}),
    Wrong("modules", "shared weight twice", says="A shared Tensor must come once", body={0: '''
def walk(name, value):
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Module):
        for key, item in vars(value).items():
            yield from walk(f"{name}.{key}" if name else key, item)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from walk(f"{name}.{key}", item)

yield from walk(prefix, self)
'''}),
    Wrong("modules", "remembers within one module only", says="also where two modules hold it", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
    elif isinstance(value, Module):
        yield from value.named_parameters(name)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from walk(f"{name}.{key}", item)

for key, item in vars(self).items():
    yield from walk(f"{prefix}.{key}" if prefix else key, item)
'''}),
    Wrong("modules", "only modules directly in a list", says="Modules in lists in lists are skipped", body={0: '''
seen = set()

def walk(module, path):
    for key, value in vars(module).items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield name, value
        elif isinstance(value, Module):
            yield from walk(value, name)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                if isinstance(item, Module):
                    yield from walk(item, f"{name}.{i}")

yield from walk(self, prefix)
'''}),
    Wrong("modules", "no Tensors in lists", says="Tensors in lists are skipped", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Module):
        for key, item in vars(value).items():
            path = f"{name}.{key}" if name else key
            if isinstance(item, Tensor):
                if id(item) not in seen:
                    seen.add(id(item))
                    yield path, item
            else:
                yield from walk(path, item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(f"{name}.{i}", item)

yield from walk(prefix, self)
'''}),
    Wrong("modules", "no list index in the name", says="A name is the whole path, list indices too", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
    elif isinstance(value, Module):
        for key, item in vars(value).items():
            yield from walk(f"{name}.{key}" if name else key, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from walk(name, item)

yield from walk(prefix, self)
'''}),
    Wrong("modules", "prefix without a dot", says="A prefix is joined by a dot", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor) and id(value) not in seen:
        seen.add(id(value))
        yield prefix + name, value
    elif isinstance(value, Module):
        for key, item in vars(value).items():
            yield from walk(f"{name}.{key}" if name else key, item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(f"{name}.{i}", item)

yield from walk("", self)
'''}),
    Wrong("modules", "prefix ignored", says="With prefix 'a.b' expected", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor) and id(value) not in seen:
        seen.add(id(value))
        yield name, value
    elif isinstance(value, (Module, list, tuple)):
        for key, item in vars(value).items() if isinstance(value, Module) else enumerate(value):
            yield from walk(f"{name}.{key}" if name else key, item)

yield from walk("", self)
'''}),
    Wrong("modules", "arrays instead of Tensors", says="The second of each pair is the parameter itself", body={0: '''
seen = set()

def walk(name, value):
    if isinstance(value, Tensor) and id(value) not in seen:
        seen.add(id(value))
        yield name, value.data
    elif isinstance(value, (Module, list, tuple)):
        for key, item in vars(value).items() if isinstance(value, Module) else enumerate(value):
            yield from walk(f"{name}.{key}" if name else key, item)

yield from walk(prefix, self)
'''}),
    Wrong("modules", "a generator called without yield from", says="only with `yield from`",
          body={0: WALK.format(**{**WALK_RIGHT, "descend": "walk"})}),
    Wrong("modules", "no yield from at the end", says="named_parameters gave None back",
          body={0: WALK.format(**WALK_RIGHT).replace("yield from walk(prefix", "walk(prefix")}),
    Wrong("modules", "only what requires a gradient", says="whether it requires a gradient or not",
          body={0: WALK.format(**{**WALK_RIGHT, "wanted": "value.requires_grad and id(value) not in seen"})}),
    Wrong("modules", "sorted by name", says="in which the attributes were set",
          body={0: WALK.format(**{**WALK_RIGHT, "items": "sorted(vars(value).items())"})}),
    Wrong("modules", "partly loaded", says="was partly loaded before the error", body={1: '''
for name, parameter in own.items():
    if name not in arrays:
        raise ValueError("missing " + name)
    if arrays[name].shape != parameter.shape:
        raise ValueError("wrong shape " + name)
    parameter.data[...] = arrays[name]
for name in arrays:
    if name not in own:
        raise ValueError("unexpected " + name)
'''}),
    Wrong("modules", "the first problem only", says="one message must name all", body={1: '''
for name, parameter in own.items():
    if name not in arrays:
        raise ValueError("missing " + name)
    if arrays[name].shape != parameter.shape:
        raise ValueError("wrong shape " + name)
for name in arrays:
    if name not in own:
        raise ValueError("unexpected " + name)
for name, parameter in own.items():
    parameter.data[...] = arrays[name]
'''}),
    Wrong("modules", "KeyError for a missing name", says="must raise a ValueError", body={1: '''
unexpected = [name for name in arrays if name not in own]
if unexpected:
    raise ValueError(f"unexpected {unexpected}")
for name, parameter in own.items():
    np.copyto(parameter.data, arrays[name], casting="same_kind")
'''}),
    Wrong("modules", "broadcast", says="which NumPy would broadcast", body={1: '''
problems = [f"missing {name}" for name in own if name not in arrays]
problems += [f"unexpected {name}" for name in arrays if name not in own]
if problems:
    raise ValueError(", ".join(problems))
for name, parameter in own.items():
    parameter.data[...] = arrays[name]
'''}),
    Wrong("modules", "dtype of the state", says="cast to the dtype of the parameter", body={1: LOAD + '''
    parameter.data = arrays[name].copy()
'''}),
    Wrong("modules", "only float32 is loaded", says="float64 arrays must be loaded and cast",
          body={1: LOAD.replace(', "same_kind"', "") + '''
    np.copyto(parameter.data, arrays[name], casting="same_kind")
'''}),
    Wrong("modules", "copies into the Tensor", says="np.copyto copies between arrays", body={1: LOAD + '''
    np.copyto(parameter, arrays[name], casting="same_kind")
'''}),
    Wrong("modules", "a new array", says="copy the numbers into the existing array", body={1: LOAD + '''
    parameter.data = arrays[name].astype(parameter.dtype)
'''}),
    Wrong("modules", "as many numbers, then reshape", says="which has as many numbers", body={1: '''
problems = [f"missing {name}" for name in own if name not in arrays]
problems += [f"unexpected {name}" for name in arrays if name not in own]
problems += [f"wrong size {name}" for name in own if name in arrays and own[name].size != arrays[name].size]
if problems:
    raise ValueError(", ".join(problems))
for name, parameter in own.items():
    parameter.data[...] = arrays[name].reshape(parameter.shape)
'''}),
    Wrong("modules", "complex numbers lose their imaginary part", says="complex numbers, which cannot be cast",
          body={1: PROBLEMS + '''for name, parameter in own.items():
    parameter.data[...] = arrays[name]
'''}),
    Wrong("modules", "complex numbers are found while others are loaded", says="complex numbers, which cannot be cast",
          body={1: PROBLEMS + '''for name, parameter in own.items():
    np.copyto(parameter.data, arrays[name], casting="same_kind")
'''}),
    Right("modules", "collected in a dictionary, loaded in two passes", body={0: '''
found = {}

def visit(path, value):
    if isinstance(value, Tensor):
        if all(value is not other for other in found.values()):
            found[".".join(path)] = value
    elif isinstance(value, Module):
        for key in value.__dict__:
            visit(path + [key], value.__dict__[key])
    elif isinstance(value, (list, tuple)):
        for i in range(len(value)):
            visit(path + [str(i)], value[i])

visit(prefix.split(".") if prefix else [], self)
yield from found.items()
''', 1: LOAD + '''
    parameter.data[...] = arrays[name]
'''}),
]
