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

# Where an exercise has two regions, the first is in the forward and the second in `backward`. A template is filled with what
# is right, but for the one part that is wrong.
def filled(regions, right, **parts):
    return {number: region.format(**{**right, **parts}) for number, region in enumerate(regions)}


CROSS_ENTROPY = '''
scores = scores - {largest}
log_p = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
loss = {loss}
''', '''
part = np.exp(log_p)
{onehot}
part = {part}
'''
CROSS_ENTROPY_RIGHT = {
    "largest": "scores.max(axis=-1, keepdims=True)",
    "loss": "-log_p[rows, targets].mean()",
    "onehot": "part[rows, targets] -= 1",
    "part": "part * (grad / n)",
}

RMS_NORM = "scale = {scale}", '''
unit = data * scale
h = {h}
by_x = {by_x}
by_weight = {by_weight}
'''
RMS_NORM_RIGHT = {
    "scale": "1 / np.sqrt(np.mean(data ** 2, axis=-1, keepdims=True) + eps)",
    "h": "grad * gain",
    "by_x": "scale * (h - unit * (h * unit).mean(axis=-1, keepdims=True))",
    "by_weight": "(grad * unit).reshape(-1, d).sum(axis=0)",
}

SWIGLU = '''
sigmoid = 0.5 * np.tanh(0.5 * gate) + 0.5
y = {y}
''', '''
part[..., :width] = {by_gate}
part[..., width:] = {by_up}
'''
SWIGLU_RIGHT = {
    "y": "gate * sigmoid * up",
    "by_gate": "grad * up * (sigmoid + gate * sigmoid * (1 - sigmoid))",
    "by_up": "grad * gate * sigmoid",
}

LINEAR = "y = {y}", '''
flat = grad.reshape(-1, d_out)
by_x = {by_x}
by_weight = {by_weight}
by_bias = {by_bias}
'''
LINEAR_RIGHT = {
    "y": "data @ matrix",
    "by_x": "grad @ matrix.T",
    "by_weight": "rows.T @ flat",
    "by_bias": "flat.sum(axis=0)",
}


def walking(name, says, *, once="id(value) not in seen", mark="seen.add(id(value))", pair="name, value", parts="parts(value)",
            path='f"{name}.{key}" if name else key', descend="yield from walk"):
    """An answer to modules, right but for what is given here."""
    return Wrong("modules", name, says=says, body=f'''
if isinstance(value, Tensor) and {once}:
    {mark}
    yield {pair}
for key, part in {parts}:
    {descend}({path}, part)''')


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
    Wrong("softmax", "the logarithm of the sum added to the maximum", says="subtract the maximum first, by itself", body='''
scores = np.where(np.isneginf(x.data).all(axis=axis, keepdims=True), 0, x.data)
top = scores.max(axis=axis, keepdims=True)
y = np.exp(x.data - (top + np.log(np.exp(scores - top).sum(axis=axis, keepdims=True))))
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
    Wrong("softmax", "backward assigns a name of the forward", says="assign to another name", body=SOFTMAX_FORWARD + '''
def backward(grad):
    y = y * (grad - (grad * y).sum(axis=axis, keepdims=True))
    return y,

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
    Wrong("cross_entropy", "logarithm of the softmax", says="the logarithm of a probability that was rounded to 0", body={0: '''
p = softmax(Tensor(scores)).data
loss = -np.log(p[rows, targets]).mean()
''', 1: '''
part = p * (grad / n)
part[rows, targets] -= grad / n
'''}),
    Wrong("cross_entropy", "the largest logit of all rows", says="Each row has a largest logit of its own",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, largest="scores.max()")),
    Wrong("cross_entropy", "the loss has another name", says="name 'loss' is not defined",
          body={0: CROSS_ENTROPY[0].replace("loss =", "mean =").format(**CROSS_ENTROPY_RIGHT)}),
    Wrong("cross_entropy", "sum instead of mean", says="the mean is wanted",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, loss="-log_p[rows, targets].sum()")),
    Wrong("cross_entropy", "maximum subtracted in the sum only", says="that of the target too",
          body=filled(("picked = scores[rows, targets]" + CROSS_ENTROPY[0], CROSS_ENTROPY[1]), CROSS_ENTROPY_RIGHT,
                      loss="(np.log(np.exp(scores).sum(axis=-1)) - picked).mean()")),
    Wrong("cross_entropy", "sign of the loss", says="the sign is wrong",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, loss="log_p[rows, targets].mean()")),
    Wrong("cross_entropy", "divided by all rows", says="the sum is divided by all rows",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, loss="-log_p[rows, targets].sum() / np.float32(counts.size)")),
    Wrong("cross_entropy", "gradient divided by all rows", says="the gradient is divided by all rows",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, part="part * (grad / counts.size)")),
    Wrong("cross_entropy", "gradient of the sum", says="the mean was forgotten",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, part="part * grad")),
    Wrong("cross_entropy", "incoming gradient unused", says="the incoming gradient is not used",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, part="part / np.float32(n)")),
    Wrong("cross_entropy", "one-hot forgotten", says="the one-hot part is missing",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, onehot="pass")),
    Wrong("cross_entropy", "the targets of all rows from each", says="`[rows, targets]` takes one",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, loss="-log_p[:, targets].mean()")),
    Wrong("cross_entropy", "one-hot in the columns of all targets", says="`[rows, targets]` takes one",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, onehot="part[:, targets] -= 1")),
    Wrong("cross_entropy", "divided by the number of classes", says="It is (p - onehot) * grad / n",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, part="part * (grad / classes)")),
    Wrong("cross_entropy", "sign of the gradient", says="the sign is wrong",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, part="part * (-grad / n)")),
    Wrong("cross_entropy", "writes to the logits", says="Input 0 was written to",
          body=filled(("scores -= {largest}" + CROSS_ENTROPY[0], CROSS_ENTROPY[1]), CROSS_ENTROPY_RIGHT)),
    Wrong("cross_entropy", "backward works once", says="Backward must not write to what the forward kept", body={0: '''
p = np.exp(scores - scores.max(axis=-1, keepdims=True))
total = p.sum(axis=-1, keepdims=True)
loss = (np.log(total[:, 0]) + scores.max(axis=-1) - scores[rows, targets]).mean()
p /= total
''', 1: '''
p[rows, targets] -= 1
part = p * (grad / n)
'''}),
    Wrong("cross_entropy", "float64 by the one-hot matrix", says="expected float32, but it is float64",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, onehot="part = part - np.eye(classes)[targets]")),
    Wrong("cross_entropy", "divided by a NumPy integer", says="or an integer such as counts.sum()",
          body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT, loss="-log_p[rows, targets].sum() / counts.sum()")),
    Wrong("cross_entropy", "put together from operators", says="Write it as one", body={0: '''
flat = logits.reshape(-1, classes)[np.flatnonzero(counts)]
flat = flat - flat.max(axis=-1, keepdims=True)
return (flat.exp().sum(axis=-1).log() - flat[rows, targets]).mean()
'''}),
    Right("cross_entropy", "log-softmax", body=filled(CROSS_ENTROPY, CROSS_ENTROPY_RIGHT)),
    Right("cross_entropy", "one row at a time, with a one-hot matrix", body={0: '''
losses, part_of_one = [], np.zeros((n, classes), np.float32)
onehot = np.eye(classes, dtype=np.float32)
for row, target in enumerate(targets):
    powers = np.exp(scores[row] - scores[row].max())
    losses.append(math.log(powers.sum()) + scores[row].max() - scores[row][target])
    part_of_one[row] = powers / powers.sum() - onehot[target]
loss = np.float32(sum(losses) / n)
''', 1: "part = part_of_one * (grad / n)"}),

    # ---- rms_norm
    Wrong("rms_norm", "eps outside the root", says="eps stands outside the root",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / (np.sqrt(np.mean(data ** 2, axis=-1, keepdims=True)) + eps)")),
    Wrong("rms_norm", "eps forgotten", says="eps is missing",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(np.mean(data ** 2, axis=-1, keepdims=True))")),
    Wrong("rms_norm", "mean over the batch", says="the mean runs over the wrong axis",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(np.mean(data ** 2, axis=0, keepdims=True) + eps)")),
    Wrong("rms_norm", "mean over everything", says="the mean runs over the whole array",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(np.mean(data ** 2) + eps)")),
    Wrong("rms_norm", "as for one vector", says="the sum of squares over the whole array is used",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / math.sqrt(float(data.ravel().dot(data.ravel())) / d + eps)")),
    Wrong("rms_norm", "sum of squares", says="the sum of squares is used",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(np.sum(data ** 2, axis=-1, keepdims=True) + eps)")),
    Wrong("rms_norm", "no root", says="the root was forgotten",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / (np.mean(data ** 2, axis=-1, keepdims=True) + eps)")),
    Wrong("rms_norm", "the root mean square itself", says="`scale` is s = 1 / sqrt",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="np.sqrt(np.mean(data ** 2, axis=-1, keepdims=True) + eps)")),
    Wrong("rms_norm", "the weight twice", says="with the weight is done behind your line",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="gain / np.sqrt(np.mean(data ** 2, axis=-1, keepdims=True) + eps)")),
    Wrong("rms_norm", "the scale of one vector becomes an array, under its old name", says="assign to another name",
          body=filled((RMS_NORM[0], "scale = np.float32(scale)" + RMS_NORM[1]), RMS_NORM_RIGHT)),
    Wrong("rms_norm", "variance", says="as LayerNorm does",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(data.var(axis=-1, keepdims=True) + eps)")),
    Wrong("rms_norm", "the mean loses its axis", says="must keep that axis",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, scale="1 / np.sqrt(np.mean(data ** 2, axis=-1) + eps)")),
    Wrong("rms_norm", "float64", says="expected float32, but it is float64", body=filled(
        RMS_NORM, RMS_NORM_RIGHT, scale="np.sqrt(d) / np.sqrt(np.sum(data ** 2, axis=-1, keepdims=True) + eps * d)")),
    Wrong("rms_norm", "scale taken for a constant", says="the scale was taken for a constant",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_x="scale * h")),
    Wrong("rms_norm", "weight missing in the gradient", says="the weight is missing in the gradient by x",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, h="grad")),
    Wrong("rms_norm", "gradient sums over the features", says="became a sum",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_x="scale * (h - unit * (h * unit).sum(axis=-1, keepdims=True))")),
    Wrong("rms_norm", "scale missing before the bracket", says="the factor s before the bracket is missing",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_x="h - unit * (h * unit).mean(axis=-1, keepdims=True)")),
    Wrong("rms_norm", "x in the bracket", says="x stands in the bracket where u = s x is meant",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_x="scale * (h - data * (h * data).mean(axis=-1, keepdims=True))")),
    Wrong("rms_norm", "weight gradient without u", says="the factor u is missing",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="grad.reshape(-1, d).sum(axis=0)")),
    Wrong("rms_norm", "weight gradient from x", says="multiply by x divided by its root mean square",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="(grad * data).reshape(-1, d).sum(axis=0)")),
    Wrong("rms_norm", "weight gradient from the output", says="the output, which already holds the weight",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="(grad * y).reshape(-1, d).sum(axis=0)")),
    Wrong("rms_norm", "u from the output, by the weight", says="no division of the result gives it back", body={0: RMS_NORM[0].format(
        **RMS_NORM_RIGHT), 1: RMS_NORM[1].replace("unit = data * scale", "unit = y / gain").format(**RMS_NORM_RIGHT)}),
    Wrong("rms_norm", "the gradient by x has another name", says="name 'by_x' is not defined", body={0: RMS_NORM[0].format(
        **RMS_NORM_RIGHT), 1: RMS_NORM[1].replace("by_x =", "by_data =").format(**RMS_NORM_RIGHT)}),
    Wrong("rms_norm", "weight gradient not summed", says="sum over all leading axes",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="(grad * unit).sum(axis=0)")),
    Wrong("rms_norm", "half of u in the bracket", says="h = g w and u = s x",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_x="scale * (h - data * (h * unit).mean(axis=-1, keepdims=True))")),
    Wrong("rms_norm", "weight gradient averaged", says="the sum of g u over all leading axes",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="(grad * unit).reshape(-1, d).mean(axis=0)")),
    Wrong("rms_norm", "the scale of one vector is indexed", says="`scale` is a plain number, not an array", body={1: '''
unit, h = data * scale, grad * gain
along = (h * data).mean(axis=-1) * scale[..., 0] ** 3
by_x = h * scale - data * along[..., None]
by_weight = (grad * unit).reshape(-1, d).sum(axis=0)
'''}),
    Wrong("rms_norm", "x divided in place", says="Input 0 was written to",
          body=filled((RMS_NORM[0], RMS_NORM[1].replace("unit = data * scale", "unit = data\nunit *= scale")), RMS_NORM_RIGHT)),
    Wrong("rms_norm", "writes into the gradient", says="Backward wrote to the gradient that it was given", body={1: '''
unit = data * scale
by_weight = (grad * unit).reshape(-1, d).sum(axis=0)
grad *= gain
by_x = scale * (grad - unit * (grad * unit).mean(axis=-1, keepdims=True))
'''}),
    Wrong("rms_norm", "float64 by the weight", says="gradient by the weight: expected float32, but it is float64",
          body=filled(RMS_NORM, RMS_NORM_RIGHT, by_weight="sum((grad * unit).reshape(-1, d), np.zeros(d))")),
    Wrong("rms_norm", "the plain version", says="Write it as one", body={0: "return plain_rms_norm(x, weight, eps)"}),
    Right("rms_norm", "textbook", body=filled(RMS_NORM, RMS_NORM_RIGHT)),
    Right("rms_norm", "einsum", body={0: '''
power = np.einsum("...d,...d->...", data, data) / d
scale = ((power + eps) ** -0.5)[..., None]
''', 1: '''
h = grad * gain
along = np.einsum("...d,...d->...", h, data)[..., None] / d
by_x = h * scale - data * along * scale ** 3
by_weight = np.einsum("nd,nd->d", grad.reshape(-1, d), (data * scale).reshape(-1, d))
'''}),

    # ---- swiglu
    Wrong("swiglu", "gate and up exchanged", says="gate and up are exchanged", body={0: '''
divisor = 1 + np.exp(-up)
y = up / divisor * gate
''', 1: '''
sigmoid = 1 / divisor
part[..., :width] = grad * up * sigmoid
part[..., width:] = grad * gate * (sigmoid + up * sigmoid * (1 - sigmoid))
'''}),
    Wrong("swiglu", "sigmoid instead of silu", says="silu(gate) is gate * sigmoid(gate)",
          body=filled(SWIGLU, SWIGLU_RIGHT, y="sigmoid * up")),
    Wrong("swiglu", "no product with up", says="the product with up is missing",
          body=filled(SWIGLU, SWIGLU_RIGHT, y="gate * sigmoid")),
    Wrong("swiglu", "silu of both", says="silu was taken of both halves",
          body=filled(SWIGLU, SWIGLU_RIGHT, y="gate * sigmoid * up / (1 + np.exp(-up))")),
    Wrong("swiglu", "exp overflows", says="infinity divided by infinity",
          body=filled(("powers = np.exp(gate)\nsigmoid = powers / (1 + powers)\ny = {y}", SWIGLU[1]), SWIGLU_RIGHT)),
    Wrong("swiglu", "halves of the gradient exchanged", says="the two halves of the gradient are exchanged",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate=SWIGLU_RIGHT["by_up"], by_up=SWIGLU_RIGHT["by_gate"])),
    Wrong("swiglu", "half of the derivative", says="gate * sigmoid * (1 - sigmoid) is missing",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * up * sigmoid")),
    Wrong("swiglu", "derivative of sigmoid", says="the derivative of sigmoid was taken",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * up * sigmoid * (1 - sigmoid)")),
    Wrong("swiglu", "a factor sigmoid forgotten", says="the derivative of silu(gate) is sigmoid + gate * sigmoid",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * up * (sigmoid + gate * (1 - sigmoid))")),
    Wrong("swiglu", "silu in its own derivative", says="silu(gate) stands in the derivative where the gate is meant",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * up * (sigmoid + gate * sigmoid * sigmoid * (1 - sigmoid))")),
    Wrong("swiglu", "gradient by the gate without up", says="lacks the factor up",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * (sigmoid + gate * sigmoid * (1 - sigmoid))")),
    Wrong("swiglu", "gradient by up takes the gate", says="it takes silu(gate)",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_up="grad * gate")),
    Wrong("swiglu", "exp of the gate", says="silu(gate) is gate / (1 + exp(-gate))",
          body=filled(SWIGLU, SWIGLU_RIGHT, y="gate / (1 + np.exp(gate)) * up")),
    Wrong("swiglu", "gradient by up from the result", says="no division of y gives back",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_up="grad * y / up")),
    Wrong("swiglu", "gradient by the gate from the result", says="no division of y gives back",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_gate="grad * (y / gate + y * (1 - sigmoid))")),
    Wrong("swiglu", "the result has another name", says="name 'y' is not defined",
          body={0: "sigmoid = 1 / (1 + np.exp(-gate))\nsilu = gate * sigmoid\nsilu *= up"}),
    Wrong("swiglu", "incoming gradient unused", says="the incoming gradient is not used", body=filled(
        SWIGLU, SWIGLU_RIGHT, by_gate="up * (sigmoid + gate * sigmoid * (1 - sigmoid))", by_up="gate * sigmoid")),
    Wrong("swiglu", "incoming gradient used in one half", says="both have the factor grad",
          body=filled(SWIGLU, SWIGLU_RIGHT, by_up="gate * sigmoid")),
    Wrong("swiglu", "the gate, a view, becomes silu", says="Input 0 was written to", body={0: '''
sigmoid = 0.5 * np.tanh(0.5 * gate) + 0.5
slope = sigmoid + gate * sigmoid * (1 - sigmoid)
gate *= sigmoid
y = gate * up
''', 1: '''
part[..., :width] = grad * up * slope
part[..., width:] = grad * gate
'''}),
    Wrong("swiglu", "put together from silu", says="Write it as one",
          body={0: "return silu(gate_up[..., :width]) * gate_up[..., width:]"}),
    Right("swiglu", "sigmoid from tanh", body=filled(SWIGLU, SWIGLU_RIGHT)),
    Right("swiglu", "exp that overflows to infinity, so that NumPy warns and the sigmoid is 0", body=filled(
        ("sigmoid = 1 / (1 + np.exp(-gate))\ny = {y}", "part = np.concatenate([{by_gate}, {by_up}], axis=-1)"), SWIGLU_RIGHT)),
    Right("swiglu", "exp of minus the absolute value", body={0: '''
small = np.exp(-np.abs(gate))
sigmoid = np.where(gate >= 0, 1, small) / (1 + small)
silu_gate = gate * sigmoid
y = silu_gate * up
''', 1: '''
part[:] = 0
part[..., :width] += grad * up * sigmoid * (1 + gate - silu_gate)
part[..., width:] += grad * silu_gate
'''}),

    # ---- linear
    Wrong("linear", "weight transposed", says="the weight was transposed",
          body=filled(LINEAR, LINEAR_RIGHT, y="data @ matrix.T")),
    Wrong("linear", "result stays flat", says="The result: expected shape (3, 2, 4), but it is (6, 4)",
          body=filled(LINEAR, LINEAR_RIGHT, y="rows @ matrix", by_x="(flat @ matrix.T).reshape(x.shape)")),
    Wrong("linear", "weight not transposed in the gradient", says="the weight must be transposed here",
          body=filled(LINEAR, LINEAR_RIGHT, by_x="grad @ matrix")),
    Wrong("linear", "weight gradient transposed", says="it is transposed; the weight is (in, out)",
          body=filled(LINEAR, LINEAR_RIGHT, by_weight="flat.T @ rows")),
    Wrong("linear", "weight gradient not flattened", says="sum over all leading axes",
          body=filled(LINEAR, LINEAR_RIGHT, by_weight="data.swapaxes(-1, -2) @ grad")),
    Wrong("linear", "nothing flattened in the way back", says="sum over all leading axes",
          body=filled(LINEAR, LINEAR_RIGHT, by_weight="rows.T @ grad")),
    Wrong("linear", "gradient by x stays flat", says="did not get the shape of x back",
          body=filled(LINEAR, LINEAR_RIGHT, by_x="flat @ matrix.T")),
    Wrong("linear", "bias gradient over the batch only", says="sum over all leading axes",
          body=filled(LINEAR, LINEAR_RIGHT, by_bias="grad.sum(axis=0)")),
    Wrong("linear", "bias gradient averaged", says="the sum is wanted",
          body=filled(LINEAR, LINEAR_RIGHT, by_bias="flat.mean(axis=0)")),
    Wrong("linear", "the bias gradient has another name", says="name 'by_bias' is not defined",
          body={0: "y = data @ matrix", 1: LINEAR[1].replace("by_bias =", "by_b =").format(**LINEAR_RIGHT)}),
    Wrong("linear", "flattened the wrong way", says="linear of shape (3, 2, 4): expected",
          body=filled(LINEAR, LINEAR_RIGHT, y="(matrix.T @ data.reshape(d_in, -1)).T.reshape(x.shape[:-1] + (d_out,))")),
    Wrong("linear", "float64 by the weight", says="gradient by the weight: expected float32, but it is float64",
          body=filled(LINEAR, LINEAR_RIGHT, by_weight="sum(np.outer(r, g) for r, g in zip(rows, flat)) * np.ones(1)")),
    Wrong("linear", "adds the bias, too", says="the bias was added twice",
          body=filled(LINEAR, LINEAR_RIGHT, y="data @ matrix + (0 if bias is None else bias.data)")),
    Wrong("linear", "asks whether the bias is true", says="where `if bias is not None` is meant",
          body=filled(LINEAR, LINEAR_RIGHT, by_bias="flat.sum(axis=0) if bias else None")),
    Wrong("linear", "flags exchanged", says="Usually `requires_grad` of another Tensor was asked", body=filled(
        LINEAR, LINEAR_RIGHT, by_x="grad @ matrix.T if weight.requires_grad else None",
        by_weight="rows.T @ flat if x.requires_grad else None")),
    Wrong("linear", "the bias asks the weight", says="Here only bias requires a gradient", body=filled(
        LINEAR, LINEAR_RIGHT, by_bias="flat.sum(axis=0) if weight.requires_grad else None")),
    Wrong("linear", "asks a bias that is None", says="Here the bias is None", body=filled(
        LINEAR, LINEAR_RIGHT, by_bias="flat.sum(axis=0) if bias.requires_grad else None")),
    Wrong("linear", "the plain version", says="Write it as one",
          body={0: "return x @ weight if bias is None else x @ weight + bias"}),
    Right("linear", "without flattening", body=filled(LINEAR, LINEAR_RIGHT)),
    Right("linear", "None where no gradient is needed", body=filled(
        LINEAR, LINEAR_RIGHT, by_x="grad @ matrix.T if x.requires_grad else None",
        by_weight="rows.T @ flat if weight.requires_grad else None",
        by_bias="flat.sum(axis=0) if bias is not None and bias.requires_grad else None")),
    Right("linear", "with einsum", body=filled(
        LINEAR, LINEAR_RIGHT, y='np.einsum("...i,io->...o", data, matrix)', by_x='np.einsum("...o,io->...i", grad, matrix)',
        by_weight='np.einsum("ni,no->io", rows, flat)', by_bias='np.einsum("no->o", flat)')),

    # ---- modules
    Wrong("modules", "one level only", says="Some are missing", body='''
for key, part in parts(value):
    if isinstance(part, Tensor) and id(part) not in seen:
        seen.add(id(part))
        yield f"{name}.{key}" if name else key, part'''),
    walking("shared weight twice", "A shared Tensor must come once", once="True"),
    walking("lists are no modules", "Some are missing", parts="parts(value) if isinstance(value, Module) else ()"),
    Wrong("modules", "only modules directly in a list", says="Some are missing", body='''
for key, part in parts(value):
    path = f"{name}.{key}" if name else key
    if isinstance(part, Tensor) and id(part) not in seen:
        seen.add(id(part))
        yield path, part
    elif isinstance(part, Module):
        yield from walk(path, part)
    else:
        for number, item in parts(part):
            if isinstance(item, Module):
                yield from walk(f"{path}.{number}", item)'''),
    Wrong("modules", "remembers within one module only", says="also where two modules hold it", body='''
met = set()
if isinstance(value, Tensor):
    yield name, value
for key, part in parts(value):
    if id(part) not in met:
        met.add(id(part))
        yield from walk(f"{name}.{key}" if name else key, part)'''),
    walking("begins at the end", "in which the attributes were set", parts="reversed(list(parts(value)))"),
    walking("equal numbers are taken for one Tensor", "Tensors with equal numbers are not the same Tensor",
            once="value.data.tobytes() not in seen", mark="seen.add(value.data.tobytes())"),
    walking("forgets what it met", "A shared Tensor must come once", mark="pass"),
    walking("no list index in the name", "A name is the whole path, list indices too",
            path='name if isinstance(key, int) else f"{name}.{key}" if name else key'),
    walking("a name begins with a dot", "joined by dots", path='f"{name}.{key}"'),
    walking("the last part of the path alone", "A name is the whole path", path="str(key)"),
    walking("no dots", "joined by dots", path='f"{name}{key}"'),
    walking("arrays instead of Tensors", "The second of each pair is the parameter itself", pair="name, value.data"),
    walking("a generator called without yield from", "only with `yield from`", descend="walk"),
    walking("gives back the walk of the first part", "only with `yield from`", descend="return walk"),
    walking("yields the walks themselves", "must yield pairs", descend="yield walk"),
    walking("only what requires a gradient", "whether it requires a gradient or not",
            once="value.requires_grad and id(value) not in seen"),
    walking("Tensors before modules", "in which the attributes were set",
            parts="sorted(parts(value), key=lambda item: not isinstance(item[1], Tensor))"),
    walking("sorted by name", "in which the attributes were set", parts="sorted(parts(value))"),
    walking("names only", "must yield pairs", pair="name"),
    walking("Tensor before the name", "must yield pairs", pair="value, name"),
    Wrong("modules", "takes everything for a module", says="for any value", body='''
if isinstance(value, Tensor):
    yield name, value
    return
for key, part in vars(value).items():
    yield from walk(f"{name}.{key}" if name else key, part)'''),
    Right("modules", "as a list, with the Tensors looked at from their module", body='''
found = []
for key, part in parts(value):
    path = ".".join(filter(None, [name, str(key)]))
    if not isinstance(part, Tensor):
        found += walk(path, part)
    elif id(part) not in seen:
        seen.add(id(part))
        found.append((path, part))
return found'''),
    Right("modules", "with a list of what was seen", body='''
if id(value) not in seen:
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield name, value
    else:
        for key, part in parts(value):
            for pair in walk(name + "." + str(key) if name else str(key), part):
                yield pair'''),
]
