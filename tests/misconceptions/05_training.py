"""Answers to the exercises of 05_training."""
from tests.misconceptions import Right, Wrong

ADAMW = '''
g = {g}
m *= beta1
m += (1 - beta1) * g
v *= beta2
v += (1 - beta2) * {square}
m_hat, v_hat = {corrected}
weights -= {decay}
weights -= lr * m_hat / {spread}
'''
ADAMW_RIGHT = {
    "g": "grad",
    "square": "g ** 2",
    "corrected": "m / (1 - beta1 ** step), v / (1 - beta2 ** step)",
    "decay": "lr * weight_decay * weights",
    "spread": "(np.sqrt(v_hat) + eps)",
}

SCHEDULE = '''
if step <= warmup:
    return {up}
{after}progress = {progress}
return {down}
'''
SCHEDULE_RIGHT = {
    "up": "peak * step / warmup",
    "after": "if step >= total:\n    return final\n",
    "progress": "(step - warmup) / (total - warmup)",
    "down": "final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2",
}

STEP = '''
{zero}
total = 0.0
for inputs, targets in batches:
    {zero_inside}
    loss = cross_entropy(model(inputs), targets) * {share}
    loss.backward()
    total {collect_loss} loss.item()
    {step_inside}
grad = optimiser.collect()
norm = {clip}
{check}
{step}
{late_check}
return total, norm
'''
STEP_RIGHT = {
    "zero": "optimiser.zero_grad()",
    "zero_inside": "pass",
    "share": "(1 / len(batches))",
    "collect_loss": "+=",
    "step_inside": "pass",
    "clip": "clip_gradients([grad], max_norm)",
    "check": "if not (math.isfinite(total) and math.isfinite(norm)):\n    raise Diverged('no finite number')",
    "step": "optimiser.step(lr)",
    "late_check": "",
}


def adamw(**changes):
    return ADAMW.format(**{**ADAMW_RIGHT, **changes})


def schedule(**changes):
    return SCHEDULE.format(**{**SCHEDULE_RIGHT, **changes})


def step(**changes):
    return STEP.format(**{**STEP_RIGHT, **changes})


ANSWERS = [
    # --- next_batch ---
    Wrong("next_batch", "targets equal inputs", says="repeat the last token", body='''
begin = rng.choice(places, batch_size)
inputs = np.stack([ids[b:b + length] for b in begin])
return inputs, inputs.copy()
'''),
    Wrong("next_batch", "inputs and targets exchanged", says="exchanged", body='''
begin = rng.choice(places, batch_size)
windows = np.stack([ids[b:b + length + 1] for b in begin])
return windows[:, 1:], windows[:, :-1]
'''),
    Wrong("next_batch", "window one id too short", says="one id more than the length", body='''
begin = rng.choice(places, batch_size)
windows = np.stack([ids[b:b + length] for b in begin])
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "the last place is never drawn", says="last possible beginning is never used", body='''
begin = rng.choice(places, batch_size) if starts is not None else rng.integers(max(1, last), size=batch_size)
windows = np.stack([ids[b:b + length + 1] for b in begin])
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "windows run over the end", says="over the end", body='''
begin = rng.integers(len(ids), size=batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "starts are ignored", says="Draw from places", body='''
begin = rng.integers(last + 1, size=batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "starts too near to the end are kept", says="over the end", body='''
begin = rng.choice(places if starts is None else starts, batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "random numbers from elsewhere", says="draw only from rng", body='''
begin = np.random.default_rng().choice(places, batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "the same window in every row", says="the same window", body='''
begin = np.full(batch_size, rng.choice(places))
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "slices that run over the end", says="over the end", body='''
begin = rng.integers(len(ids), size=batch_size)
windows = np.stack([ids[b:b + length + 1] for b in begin])
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "windows joined instead of stacked", says="too many indices for array: array is 1-dimensional", body='''
begin = rng.choice(places, batch_size)
windows = np.concatenate([ids[b:b + length + 1] for b in begin])
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "rows of floats", says="inputs must be integers", body='''
inputs, targets = np.zeros((batch_size, length)), np.zeros((batch_size, length))
for row, b in enumerate(rng.choice(places, batch_size)):
    inputs[row] = ids[b:b + length]
    targets[row] = ids[b + 1:b + length + 1]
return inputs, targets
'''),
    Wrong("next_batch", "windows returned whole", says="Return two arrays", body='''
begin = rng.choice(places, batch_size)
return ids[begin[:, None] + np.arange(length + 1)]
'''),
    Wrong("next_batch", "nothing returned", says="Return two arrays", body='''
begin = rng.choice(places, batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
inputs, targets = windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "one place for the whole batch", says="'int' object is not subscriptable", body='''
begin = int(rng.choice(places))
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "input plus one instead of the next id", says="not the inputs plus one", body='''
begin = rng.choice(places, batch_size)
inputs = ids[begin[:, None] + np.arange(length)]
return inputs, inputs + 1
'''),
    Wrong("next_batch", "shuffles the starts", says="starts was changed", body='''
begin = rng.choice(places, batch_size)
if starts is not None:
    rng.shuffle(starts)
    begin = np.resize(starts[starts <= last], batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)]
return windows[:, :-1], windows[:, 1:]
'''),
    Wrong("next_batch", "ids of two bytes", says="In a text of one window every row is that window", body='''
begin = rng.choice(places, batch_size)
windows = ids[begin[:, None] + np.arange(length + 1)].astype(np.int16)
return windows[:, :-1], windows[:, 1:]
'''),
    Right("next_batch", "with a loop", body='''
inputs, targets = [], []
for _ in range(batch_size):
    b = int(rng.choice(places))
    inputs.append(ids[b:b + length])
    targets.append(ids[b + 1:b + length + 1])
return np.array(inputs), np.array(targets)
'''),
    Right("next_batch", "with sliding windows", body='''
windows = np.lib.stride_tricks.sliding_window_view(ids, length + 1)[rng.choice(places, batch_size)]
return windows[:, :length], windows[:, 1:]
'''),

    # --- adamw_update ---
    Wrong("adamw_update", "decay added to the gradient", says="added to the gradient",
          body=adamw(g="grad + weight_decay * weights", decay="0")),
    Wrong("adamw_update", "no correction", says="divide by 1 - beta ** step", body=adamw(corrected="m, v")),
    Wrong("adamw_update", "only v is corrected", says="divide it by 1 - beta1 ** step",
          body=adamw(corrected="m, v / (1 - beta2 ** step)")),
    Wrong("adamw_update", "only m is corrected", says="divide it by 1 - beta2 ** step",
          body=adamw(corrected="m / (1 - beta1 ** step), v")),
    Wrong("adamw_update", "no square root", says="square root of v is missing", body=adamw(spread="(v_hat + eps)")),
    Wrong("adamw_update", "eps inside the root", says="outside of the square root", body=adamw(spread="np.sqrt(v_hat + eps)")),
    Wrong("adamw_update", "decay without the learning rate", says="multiplied with the learning rate",
          body=adamw(decay="weight_decay * weights")),
    Wrong("adamw_update", "step counted from 0", says="step already counts from 1",
          body=adamw(corrected="m / (1 - beta1 ** (step + 1)), v / (1 - beta2 ** (step + 1))")),
    Wrong("adamw_update", "decay inside the fraction", says="went through the fraction", body='''
m[:] = beta1 * m + (1 - beta1) * grad
v[:] = beta2 * v + (1 - beta2) * grad ** 2
weights -= lr * ((m / (1 - beta1 ** step) + weight_decay * weights) / (np.sqrt(v / (1 - beta2 ** step)) + eps))
'''),
    Wrong("adamw_update", "no decay", says="no weight decay", body=adamw(decay="0")),
    Wrong("adamw_update", "mean of the gradient, not of its square", says="not of its square", body=adamw(square="g")),
    Wrong("adamw_update", "new arrays instead of the old ones", says="do not assign", body='''
m = beta1 * m + (1 - beta1) * grad
v = beta2 * v + (1 - beta2) * grad ** 2
weights -= lr * (m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps) + weight_decay * weights)
'''),
    Wrong("adamw_update", "weights are a new array", says="weights did not change", body='''
m[:] = beta1 * m + (1 - beta1) * grad
v[:] = beta2 * v + (1 - beta2) * grad ** 2
weights = weights - lr * (m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps) + weight_decay * weights)
'''),
    Wrong("adamw_update", "the gradient is changed", says="grad was changed", body='''
m[:] = beta1 * m + (1 - beta1) * grad
v[:] = beta2 * v + (1 - beta2) * grad ** 2
grad[:] = m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps)
weights -= lr * (grad + weight_decay * weights)
'''),
    Wrong("adamw_update", "m corrected in place", says="The step uses the corrected mean; m keeps the plain one", body='''
m *= beta1
m += (1 - beta1) * grad
v *= beta2
v += (1 - beta2) * grad ** 2
m /= 1 - beta1 ** step
v /= 1 - beta2 ** step
weights -= lr * (m / (np.sqrt(v) + eps) + weight_decay * weights)
'''),
    Wrong("adamw_update", "v corrected in place", says="The step uses the corrected mean; v keeps the plain one", body='''
m *= beta1
m += (1 - beta1) * grad
v *= beta2
v += (1 - beta2) * grad ** 2
v /= 1 - beta2 ** step
weights -= lr * (m / (1 - beta1 ** step) / (np.sqrt(v) + eps) + weight_decay * weights)
'''),
    Wrong("adamw_update", "betas exchanged with their complements", says="beta1 and 1 - beta1 are exchanged", body='''
m[:] = (1 - beta1) * m + beta1 * grad
v[:] = (1 - beta2) * v + beta2 * grad ** 2
weights -= lr * (m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps) + weight_decay * weights)
'''),
    Wrong("adamw_update", "uphill", says="the step is subtracted", body='''
m[:] = beta1 * m + (1 - beta1) * grad
v[:] = beta2 * v + (1 - beta2) * grad ** 2
weights += lr * (m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps) - weight_decay * weights)
'''),
    Wrong("adamw_update", "the decay pushes away from zero", says="the decay has the wrong sign", body='''
m[:] = beta1 * m + (1 - beta1) * grad
v[:] = beta2 * v + (1 - beta2) * grad ** 2
weights -= lr * (m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + eps) - weight_decay * weights)
'''),
    Wrong("adamw_update", "the decay after the step", says="as it was before the step",
          body=adamw(decay="0") + "weights -= lr * weight_decay * weights\n"),
    Wrong("adamw_update", "the mean of the whole gradient", says="Each weight has means of its own", body=adamw(g="grad.mean()")),
    Wrong("adamw_update", "the mean square of the whole gradient", says="Each weight has means of its own",
          body=adamw(square="np.mean(g ** 2)")),
    Wrong("adamw_update", "the square root by a division", says="add eps to what you divide by",
          body=adamw(spread="(v_hat / np.sqrt(v_hat) + eps)")),
    Wrong("adamw_update", "no eps", says="add eps to what you divide by", body=adamw(spread="np.sqrt(v_hat)")),
    Right("adamw_update", "as the formulas stand", body='''
m[...] = beta1 * m + (1 - beta1) * grad
v[...] = beta2 * v + (1 - beta2) * grad ** 2
m_hat, v_hat = m / (1 - beta1 ** step), v / (1 - beta2 ** step)
weights -= lr * (m_hat / (v_hat ** 0.5 + eps) + weight_decay * weights)
'''),
    Right("adamw_update", "decay first", body=adamw()),

    # --- learning_rate ---
    Wrong("learning_rate", "first step of length 0", says="first step changes nothing",
          body=schedule(up="peak * (step - 1) / warmup")),
    Wrong("learning_rate", "one step ahead", says="that of the second step", body=schedule(up="peak * (step + 1) / warmup")),
    Wrong("learning_rate", "a warm-up to 1", says="a share of the peak", body=schedule(up="step / warmup")),
    Wrong("learning_rate", "a wave over all steps", says="must end at step `total`", body=schedule(progress="(step - warmup) / total")),
    Wrong("learning_rate", "cosine from step 0", says="begin at the end of the warm-up", body=schedule(progress="step / total")),
    Wrong("learning_rate", "down to zero", says="fall to `final`, not to 0",
          body=schedule(down="peak * (1 + math.cos(math.pi * progress)) / 2")),
    Wrong("learning_rate", "wave too high", says="not of the height peak",
          body=schedule(down="final + peak * (1 + math.cos(math.pi * progress)) / 2")),
    Wrong("learning_rate", "a straight line down", says="straight line", body=schedule(down="peak + (final - peak) * progress")),
    Wrong("learning_rate", "rises again after the end", says="rises again", body=schedule(after="")),
    Wrong("learning_rate", "division by no warm-up", says="must not divide by zero", body='''
if step >= total:
    return final
up = step / warmup
down = (step - warmup) / (total - warmup)
return peak * up if up < 1 else final + (peak - final) * (1 + math.cos(math.pi * down)) / 2
'''),
    Wrong("learning_rate", "division by nothing but warm-up", says="must not divide by zero",
          body=schedule(after="", progress="min(1.0, (step - warmup) / (total - warmup))")),
    Wrong("learning_rate", "a quarter of a wave", says="that is a quarter of a wave",
          body=schedule(down="final + (peak - final) * math.cos(math.pi * progress / 2)")),
    Wrong("learning_rate", "the end before the warm-up", says="look at the warm-up first", body='''
if step >= total:
    return final
if step <= warmup:
    return peak * step / warmup
progress = (step - warmup) / (total - warmup)
return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2
'''),
    Wrong("learning_rate", "nothing returned", says="nothing was returned", body='''
if step <= warmup:
    rate = peak * step / warmup
else:
    rate = final + (peak - final) * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2
'''),
    Right("learning_rate", "with the progress clipped", body='''
if step <= warmup:
    return step / warmup * peak
progress = min(1.0, (step - warmup) / max(1, total - warmup))
weight = math.cos(math.pi * progress / 2) ** 2
return weight * peak + (1 - weight) * final
'''),

    # --- clip_gradients ---
    Wrong("clip_gradients", "each array by its own norm", says="each array was clipped by its own norm", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
for grad in grads:
    own = math.sqrt(float((grad ** 2).sum()))
    if own > max_norm:
        grad *= max_norm / own
return norm
'''),
    Wrong("clip_gradients", "sum of the norms", says="sum of the norms", body='''
norm = sum(float(np.sqrt((grad ** 2).sum())) for grad in grads)
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "no square root", says="square root", body='''
norm = sum(float((grad ** 2).sum()) for grad in grads)
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "added up before squaring", says="square each number", body='''
norm = math.sqrt(sum(float(grad.sum()) ** 2 for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "the largest number of each array", says="only the largest number of each array", body='''
norm = math.sqrt(sum(float(np.abs(grad).max()) ** 2 for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "small gradients grow", says="made larger", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
for grad in grads:
    grad *= max_norm / max(norm, 1e-12)
return norm
'''),
    Wrong("clip_gradients", "new arrays", says="Write into the arrays", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad = grad * (max_norm / norm)
return norm
'''),
    Wrong("clip_gradients", "new arrays in the list", says="is not seen outside", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
if norm > max_norm:
    grads[:] = [grad * (max_norm / norm) for grad in grads]
return norm
'''),
    Wrong("clip_gradients", "the norm after clipping", says="return the one before", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return min(norm, max_norm)
'''),
    Wrong("clip_gradients", "nothing returned", says="Nothing was returned", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
for grad in grads:
    grad *= min(1.0, max_norm / max(norm, 1e-12))
'''),
    Wrong("clip_gradients", "each number by itself", says="each number was clipped by itself", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
for grad in grads:
    np.clip(grad, -max_norm, max_norm, out=grad)
return norm
'''),
    Wrong("clip_gradients", "the limit against the square", says="compared with the square of the norm", body='''
squares = sum(float((grad ** 2).sum()) for grad in grads)
norm = math.sqrt(squares)
if squares > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "divides by a norm of zero", says="all zero have the norm 0", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
for grad in grads:
    grad *= min(1.0, max_norm / norm)
return norm
'''),
    Wrong("clip_gradients", "the arrays returned", says="Return the norm before clipping, one number", body='''
norm = math.sqrt(sum(float((grad ** 2).sum()) for grad in grads))
return [grad * min(1.0, max_norm / max(norm, 1e-12)) for grad in grads]
'''),
    Wrong("clip_gradients", "products of vectors", says="Arrays may have any number of axes", body='''
norm = math.sqrt(sum(float(grad @ grad) for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "the norm of a matrix as an operator", says="NumPy's norm with ord=2", body='''
norm = math.sqrt(sum(np.linalg.norm(grad, 2) ** 2 for grad in grads))
if norm > max_norm:
    for grad in grads:
        grad *= max_norm / norm
return norm
'''),
    Wrong("clip_gradients", "shrinks the flat array, which may be a copy", says="ravel and reshape copy it", body='''
flat = [grad.ravel() for grad in grads]
norm = math.sqrt(sum(float(part @ part) for part in flat))
if norm > max_norm:
    for part in flat:
        part *= max_norm / norm
return norm
'''),
    Right("clip_gradients", "with NumPy's infinity for a norm of zero", body='''
norm = np.sqrt(sum((grad ** 2).sum() for grad in grads))
factor = min(1.0, max_norm / norm)
for grad in grads:
    grad *= factor
return norm
'''),
    Right("clip_gradients", "joined into one vector", body='''
norm = float(np.linalg.norm(np.concatenate([grad.ravel() for grad in grads])))
scale = min(1.0, max_norm / (norm + 1e-12))
for grad in grads:
    grad[...] = grad * scale
return norm
'''),

    # --- train_step ---
    Wrong("train_step", "old gradients are kept", says="zero_grad comes first", body=step(zero="pass")),
    Wrong("train_step", "no clipping", says="not clipped before the step",
          body=step(clip="clip_gradients([grad.copy()], max_norm)")),
    Wrong("train_step", "clipping after the step", says="not clipped before the step",
          body=step(clip="float(np.linalg.norm(grad))", late_check="clip_gradients([grad], max_norm)")),
    Wrong("train_step", "clips the parameters' gradients and never collects", says="collect() copies the gradients",
          body=step(clip="clip_gradients([parameter.grad for parameter in optimiser.parameters], max_norm)")
          .replace("grad = optimiser.collect()\n", "")),
    Wrong("train_step", "the loss is divided twice", says="number of pairs twice",
          body=step().replace("loss.item()", "loss.item() / len(batches)")),
    Wrong("train_step", "sum instead of mean", says="sum of the batches' losses", body=step(share="1.0")),
    Wrong("train_step", "loss of the last batch", says="last batch only", body=step(collect_loss="=")),
    Wrong("train_step", "gradients forgotten between the batches", says="only the last batch had an effect",
          body=step(zero_inside="optimiser.zero_grad()")),
    Wrong("train_step", "a step after every batch", says="then step once",
          body=step(step_inside="clip_gradients([optimiser.collect()], max_norm); optimiser.step(lr)", step="pass")),
    Wrong("train_step", "never checks for NaN", says="must raise Diverged", body=step(check="")),
    Wrong("train_step", "looks at the loss only", says="A finite loss with an infinite gradient must raise Diverged",
          body=step(check="if not math.isfinite(total):\n    raise Diverged('no finite loss')")),
    Wrong("train_step", "looks at the norm only", says="although its gradient is finite, must raise Diverged",
          body=step(check="if not math.isfinite(norm):\n    raise Diverged('no finite norm')")),
    Wrong("train_step", "raises for finite numbers", says="although the loss and the norm are finite",
          body=step(check="if math.isfinite(total) and math.isfinite(norm):\n    raise Diverged('no finite number')")),
    Wrong("train_step", "checks too late", says="after the weights had changed",
          body=step(check="", late_check=STEP_RIGHT["check"])),
    Wrong("train_step", "the norm after clipping", says="before clipping it is larger",
          body=step(clip="min(clip_gradients([grad], max_norm), max_norm)")),
    Wrong("train_step", "gradient of the sum, loss of the mean", says="it belongs to the sum of the losses", body='''
optimiser.zero_grad()
total = 0.0
for inputs, targets in batches:
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    total += loss.item() / len(batches)
norm = clip_gradients([optimiser.collect()], max_norm)
if not (math.isfinite(total) and math.isfinite(norm)):
    raise Diverged("no finite number")
optimiser.step(lr)
return total, norm
'''),
    Wrong("train_step", "the norm divided once more", says="The norm of two batches: expected",
          body=step().replace("return total, norm", "return total, norm / len(batches)")),
    Wrong("train_step", "looks for NaN only", says="An infinite loss, although its gradient is finite, must raise Diverged",
          body=step(check="if math.isnan(total) or math.isnan(norm):\n    raise Diverged('not a number')")),
    Wrong("train_step", "Diverged without a sentence", says="without a sentence",
          body=step(check="if not (math.isfinite(total) and math.isfinite(norm)):\n    raise Diverged")),
    Wrong("train_step", "another error", says="must raise Diverged, but ValueError was raised",
          body=step(check="if not (math.isfinite(total) and math.isfinite(norm)):\n    raise ValueError('not finite')")),
    Wrong("train_step", "gradients forgotten last", says="zero_grad comes first, not last",
          body=step(zero="pass", late_check="optimiser.zero_grad()")),
    Wrong("train_step", "clipping without a list", says="clip_gradients wants a list",
          body=step(clip="clip_gradients(grad, max_norm)")),
    Wrong("train_step", "nothing returned", says="Return the loss and the norm, not None",
          body=step().replace("return total, norm", "pass")),
    Wrong("train_step", "the loss is a Tensor", says="not a Tensor",
          body=step(check="").replace("loss.item()", "loss")),
    Right("train_step", "a list of two", body=step().replace("return total, norm", "return [total, norm]")),
    Right("train_step", "one backward through the mean", body='''
optimiser.zero_grad()
loss = 0
for inputs, targets in batches:
    loss = loss + cross_entropy(model(inputs), targets)
loss = loss / len(batches)
loss.backward()
norm = clip_gradients([optimiser.collect()], max_norm)
value = loss.item()
if not np.isfinite([value, norm]).all():
    raise Diverged(f"loss {value}, norm {norm}")
optimiser.step(lr)
return value, norm
'''),
    Right("train_step", "scaled when collected", body='''
optimiser.zero_grad()
losses = []
for inputs, targets in batches:
    loss = cross_entropy(model(inputs), targets)
    losses.append(loss.item())
    if not math.isfinite(losses[-1]):
        raise Diverged("the loss is no number")
    loss.backward()
grad = optimiser.collect()
grad /= len(batches)
norm = clip_gradients([grad], max_norm)
if not math.isfinite(norm):
    raise Diverged("the norm is no number")
optimiser.step(lr)
return sum(losses) / len(losses), norm
'''),
]
