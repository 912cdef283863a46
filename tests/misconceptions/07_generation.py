"""Wrong and right answers to the exercises of lesson 07."""
from tests.misconceptions import Right, Wrong


def probabilities(name, says, *, greedy="if temperature == 0:\n    return (np.arange(V) == logits.argmax()) * 1.0",
                  scale="(logits.astype(np.float64) - top) / temperature", k_if="top_k is not None and top_k < V",
                  top_k="p[np.argsort(-logits, kind='stable')[top_k:]] = 0", p_if="top_p is not None and top_p < 1",
                  before_top_p="p = p / p.sum()",
                  order="np.argsort(-p, kind='stable')", count="np.searchsorted(p[order].cumsum(), top_p) + 1",
                  min_p="p[p < min_p * p.max()] = 0", end="p / p.sum()"):
    """An answer to token_probabilities, right but for what is given here."""
    return Wrong("token_probabilities", name, says=says, body=f'''
{greedy}
p = np.exp({scale})
if {k_if}:
    {top_k}
if {p_if}:
    {before_top_p}
    order = {order}
    p[order[{count}:]] = 0
if min_p is not None:
    {min_p}
return {end}''')


def accepting(name, says, *, overlap=None, accept=None):
    return Wrong("accept", name, says=says, body={i: code for i, code in enumerate((overlap, accept)) if code})


def forwarding(name, says, *, pending="[[] if row.done else row.history[row.cached:] for row in rows]",
               tokens="[0] * padding + ids", positions="[-1] * padding + list(range(row.cached, end))",
               cached="if cache is not None:\n        row.cached = end", chunk="width if cache is None else PREFILL_CHUNK",
               context="no_grad()", result="logits.data[:, -1]", width="max(len(ids) for ids in pending)",
               how="positions=positions[:, first:first + size], logits_to_keep=1"):
    """An answer to forward_pending, right but for what is given here."""
    return Wrong("forward_pending", name, says=says, body=f'''
from contextlib import nullcontext
pending = {pending}
width = {width}
tokens, positions = [], []
for row, ids in zip(rows, pending):
    padding = width - len(ids)
    end = row.cached + len(ids)
    tokens.append({tokens})
    positions.append({positions})
    {cached}
tokens, positions = np.array(tokens), np.array(positions)
size = {chunk}
with {context}:
    for first in range(0, width, size):
        logits = model(tokens[:, first:first + size], cache=cache, {how})
return {result}''')


def looping(name, says, *, histories="[rows[i].history for i in active]", rngs="[rows[i].rng for i in active]",
            logits="logits[active]", still="[i for i in active if not rows[i].done]", last="step == max_new_tokens or not active",
            new="[row.release(everything=last) for row in rows]", steps="range(1, max_new_tokens + 1)", token="int(token)",
            forwarded="rows"):
    """An answer to grow_rows, right but for what is given here."""
    return Wrong("grow_rows", name, says=says, body=f'''
active = list(range(len(rows)))
for step in {steps}:
    logits = forward_pending(model, {forwarded}, cache)
    chosen = sampler({logits}, {histories}, {rngs})
    for i, token in zip(active, chosen):
        rows[i].accept({token}, stops)
    active = {still}
    last = {last}
    yield {new}
    if last:
        return''')


def comparing(name, says, *, half="max(1, T // 2)", stream="model.hidden_states(tokens)", scale="np.sqrt((a ** 2).mean(axis=-1)) + 1e-30",
              wrong="~(error <= tolerance)", reset="cache.reset()", rows=".max(axis=0)", choose="np.argwhere(bad)[0]",
              context="no_grad()", result="Difference", gap="np.abs(b - a)"):
    """An answer to first_difference, right but for what is given here."""
    return Wrong("first_difference", name, says=says, body=f'''
from contextlib import nullcontext
half = {half}
with {context}:
    whole = [x.data for x in {stream}]
    pieces = [[x.data for x in model.hidden_states(tokens[:, :half], cache=cache)]]
    for t in range(half, T):
        pieces.append([x.data for x in model.hidden_states(tokens[:, t:t + 1], cache=cache)])
{reset}
bad, errors = [], []
for layer, a in enumerate(whole):
    b = np.concatenate([piece[layer] for piece in pieces], axis=1)
    error = ({gap}.max(axis=-1) / ({scale})){rows}
    errors.append(error)
    bad.append({wrong})
bad, errors = np.array(bad), np.array(errors)
if not bad.any():
    return None
layer, position = (int(i) for i in {choose})
return {result}(layer, position, float(errors[layer, position]))''')


ANSWERS = [
    # ---- token_probabilities
    probabilities("multiplies by the temperature", "divided by the temperature",
                  scale="(logits.astype(np.float64) - top) * temperature"),
    probabilities("divides by a temperature of zero", "Temperature 0", greedy=""),
    probabilities("does not subtract the largest logit", "subtract the largest logit",
                  scale="logits.astype(np.float64) / temperature"),
    probabilities("does not divide by the sum after top_k", "divide by the sum", end="p", scale="(logits.astype(np.float64) - top) / temperature)\np = (p / p.sum()"),
    probabilities("keeps all equal tokens at the edge of top_k", "k tokens, not more",
                  top_k="p = np.where(p >= np.sort(p)[-top_k], p, 0)"),
    probabilities("a top_k beyond the vocabulary is an error", "larger than the vocabulary", k_if="top_k is not None",
                  top_k="p = p * np.isin(np.arange(V), np.argpartition(-logits, top_k - 1)[:top_k])"),
    probabilities("drops the token that crosses the line of top_p", "crosses the line",
                  count="max(1, int((p[order].cumsum() <= top_p).sum())) + 0"),
    probabilities("leaves out the token that crosses the line of top_p, even if it is the only one", "crosses the line",
                  count="np.searchsorted(p[order].cumsum(), top_p)"),
    probabilities("top_k by a sort that mixes equal tokens", "Of 1000 tokens the 405 largest", top_k="p[np.argsort(-logits)[top_k:]] = 0"),
    probabilities("top_p by a sort that mixes equal tokens", "in the order of their ids", order="np.argsort(-p)"),
    probabilities("top_p of 0 keeps nothing", "keeps one token",
                  count="int((p[order].cumsum() - p[order] < top_p).sum())"),
    probabilities("top_p takes the tokens in the order of their ids", "likeliest", order="np.arange(V)"),
    probabilities("top_p looks at all tokens, not at what top_k left", "what top_k left", k_if="False",
                  end="np.where(np.argsort(np.argsort(-p, kind='stable')) < (top_k or V), p, 0) / np.sort(p)[::-1][:top_k].sum()"),
    probabilities("top_p before the temperature", "temperature comes first",
                  scale="logits.astype(np.float64) - top", end="p ** (1 / temperature) / (p ** (1 / temperature)).sum()"),
    probabilities("a sum that just reaches top_p is not enough", "two tokens are enough",
                  count="np.searchsorted(p[order].cumsum(), top_p, side='right') + 1"),
    probabilities("min_p before the temperature", "min_p looks at the probabilities that it gives",
                  min_p="p[np.exp(logits.astype(np.float64) - top) < min_p] = 0"),
    probabilities("min_p hides what equals it", "as likely as the likeliest", min_p="p[p <= min_p * p.max()] = 0",
                  end="p / max(p.sum(), 1e-300)"),
    probabilities("min_p as if the largest were always 1", "also of what top_p left",
                  min_p="p[p < min_p] = 0"),
    Wrong("token_probabilities", "top_k from a partition at the wrong end", says="Of 1000 tokens", body='''
if temperature == 0:
    return (np.arange(V) == logits.argmax()) * 1.0
p = np.exp((logits.astype(np.float64) - top) / temperature)
if top_k is not None and top_k < V:
    order = np.argsort(-logits, kind='stable')
    kept = order[logits[order] >= np.partition(logits, top_k)[-top_k]][:top_k]
    p[~np.isin(np.arange(V), kept)] = 0
if top_p is not None and top_p < 1:
    p = p / p.sum()
    order = np.argsort(-p, kind='stable')
    p[order[np.searchsorted(p[order].cumsum(), top_p) + 1:]] = 0
if min_p is not None:
    p[p < min_p * p.max()] = 0
return p / p.sum()'''),
    probabilities("min_p as a probability", "not a probability itself", min_p="p = p / p.sum()\n    p[p < min_p] = 0"),
    Wrong("token_probabilities", "works in the logits themselves", says="changed", body='''
logits -= top
if temperature == 0:
    return (np.arange(V) == logits.argmax()) * 1.0
p = np.exp(logits.astype(np.float64) / temperature)
return p / p.sum()'''),
    probabilities("min_p before top_p", "min_p comes last",
                  before_top_p="p[p < (min_p or 0) * p.max()] = 0\n    p = p / p.sum()"),
    probabilities("looks for the first total that reaches top_p, even if none does", "top_p = 1 keeps all",
                  p_if="top_p is not None", count="np.argmax(p[order].cumsum() >= top_p) + 1"),
    probabilities("float32", "float64 array", end="(p / p.sum()).astype(np.float32)"),
    probabilities("a list", "got list", end="list(p / p.sum())"),
    probabilities("no return", "Is there a return", end="None"),
    probabilities("goes on until the sum is reached, beyond the last token", "top_p = 1 keeps all", p_if="top_p is not None",
                  count="next(n for n in range(V + 1) if p[order].cumsum()[n] >= top_p) + 1"),
    probabilities("works in the logits themselves if they are float64", "copies only what has another type",
                  scale="np.subtract(z := np.asarray(logits, dtype=np.float64), top, out=z) / temperature"),
    Right("token_probabilities", "one token at a time", body='''
order = sorted(range(V), key=lambda i: (-logits[i], i))
p = [0.0] * V
if temperature == 0:
    p[order[0]] = 1.0
    return np.array(p)
for i in order[:top_k]:
    p[i] = math.exp((float(logits[i]) - float(top)) / temperature)
if top_p is not None and top_p < 1:
    whole, reached = sum(p), 0.0
    for number, i in enumerate(order):
        if number > 0 and reached >= top_p:
            p[i] = 0.0
        reached += p[i] / whole
if min_p is not None:
    p = [share if share >= min_p else 0.0 for share in p]
return np.array(p) / sum(p)'''),
    Right("token_probabilities", "with masks on the sorted logits", body='''
order = np.argsort(-logits, kind="stable")
z = logits[order].astype(np.float64) - float(top)
with np.errstate(all="ignore"):
    sorted_p = np.exp(z / temperature) if temperature > 0 else (np.arange(V) == 0) * 1.0
if top_k is not None:
    sorted_p[top_k:] = 0
sorted_p /= sorted_p.sum()
if top_p is not None:
    before = np.concatenate([[0], sorted_p.cumsum()[:-1]])
    sorted_p[1:][before[1:] >= top_p] = 0
if min_p is not None:
    sorted_p[sorted_p < min_p * sorted_p[0]] = 0
p = np.empty(V)
p[order] = sorted_p / sorted_p.sum()
return p'''),

    # ---- accept
    accepting("the shortest overlap", "longest end of the row", overlap='''
for n in range(1, min(len(stop), len(row.history) - row.prompt_len) + 1):
    if row.history[-n:] == stop[:n]:
        return n
return 0'''),
    accepting("looks into the prompt", "Only new ids count", overlap='''
for n in range(min(len(stop), len(row.history)), 0, -1):
    if row.history[-n:] == stop[:n]:
        return n
return 0'''),
    accepting("a counter that goes back to zero", "goes back to zero", accept='''
self.history.append(token)
for stop in stops:
    self.held = self.held + 1 if token == stop[self.held] else 0
    if self.held == len(stop):
        del self.history[-self.held:]
        self.done, self.held = True, 0
        return'''),
    accepting("never holds back", "All ids of a stop sequence", accept='''
self.history.append(token)
for stop in stops:
    if overlap(self, stop) == len(stop):
        del self.history[-len(stop):]
        self.done = True
        return'''),
    accepting("leaves the stop in the history", "cut off", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
self.done = any(n == len(stop) for n, stop in zip(overlaps, stops))
self.held = 0 if self.done else max(overlaps, default=0)'''),
    accepting("cuts off the last id only", "not only the last one", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
if any(n == len(stop) for n, stop in zip(overlaps, stops)):
    self.history.pop()
    self.done, self.held = True, 0'''),
    accepting("cuts off all that was held", "not cut off", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
if any(n == len(stop) for n, stop in zip(overlaps, stops)):
    del self.history[-self.held:]
    self.done, self.held = True, 0'''),
    accepting("the last id of a stop ends the row", "may be the beginning of a stop", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
complete = max((n for n, stop in zip(overlaps, stops) if token == stop[-1]), default=0)
if complete:
    del self.history[-complete:]
    self.done, self.held = True, 0'''),
    accepting("cuts off the first stop that is complete", "the longest is cut off", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
for n, stop in zip(overlaps, stops):
    if n == len(stop):
        del self.history[-n:]
        self.done, self.held = True, 0
        break'''),
    accepting("cuts off the last stop that is complete", "in whatever order", accept='''
self.history.append(token)
self.held = complete = 0
for stop in stops:
    n = overlap(self, stop)
    self.held = max(self.held, n)
    if n == len(stop):
        complete = n
if complete:
    del self.history[-complete:]
    self.done, self.held = True, 0'''),
    accepting("compares the last id only", "in its order", accept='''
self.history.append(token)
self.held = max((overlap(self, stop) for stop in stops), default=0)
for stop in stops:
    if token == stop[-1] and len(self.history) - self.prompt_len >= len(stop):
        del self.history[-len(stop):]
        self.done, self.held = True, 0
        break'''),
    accepting("the last stop decides what is held", "longest overlap", accept='''
self.history.append(token)
complete = 0
for stop in stops:
    n = self.held = overlap(self, stop)
    if n == len(stop):
        complete = max(complete, n)
if not stops:
    self.held = 0
if complete:
    del self.history[-complete:]
    self.done, self.held = True, 0'''),
    accepting("the first overlap decides what is held", "in whatever order", accept='''
self.history.append(token)
overlaps = [overlap(self, stop) for stop in stops]
complete = max([n for n, stop in zip(overlaps, stops) if n == len(stop)] or [0])
self.held = next((n for n in overlaps if n), 0)
if complete:
    del self.history[-complete:]
    self.done, self.held = True, 0'''),
    accepting("never all ids of the stop", "up to len(stop) ids", overlap='''
for n in range(min(len(stop) - 1, len(row.history) - row.prompt_len), 0, -1):
    if row.history[-n:] == stop[:n]:
        return n
return 0''', accept='''
self.history.append(token)
complete = max([len(stop) for stop in stops if self.history[self.prompt_len:][-len(stop):] == stop], default=0)
if complete:
    del self.history[-complete:]
    self.done, self.held = True, 0
else:
    self.held = max([overlap(self, stop) for stop in stops], default=0)'''),
    accepting("nothing is returned where nothing matches", "a return at every end", overlap='''
for n in range(min(len(stop), len(row.history) - row.prompt_len), 0, -1):
    if row.history[-n:] == stop[:n]:
        return n'''),
    Right("accept", "with the new ids in a list of their own", body={0: '''
new = row.history[row.prompt_len:]
return max(n for n in range(len(stop) + 1) if n <= len(new) and new[len(new) - n:] == stop[:n])''', 1: '''
self.history.append(token)
matched = {len(stop) for stop in stops if overlap(self, stop) == len(stop)}
if matched:
    self.history = self.history[:-max(matched)]
    self.done = True
self.held = 0 if self.done else max([overlap(self, stop) for stop in stops] or [0])'''}),
    Right("accept", "compares id by id", body={0: '''
best = 0
fresh = len(row.history) - row.prompt_len
for n in range(1, len(stop) + 1):
    if n > fresh:
        break
    same = True
    for a, b in zip(row.history[-n:], stop):
        same = same and a == b
    if same:
        best = n
return best'''}),

    # ---- forward_pending
    forwarding("pads on the right", "padded on the right", tokens="ids + [0] * padding",
               positions="list(range(row.cached, end)) + [-1] * padding"),
    forwarding("positions begin again at 0", "they do not restart at 0", positions="[-1] * padding + list(range(len(ids)))"),
    forwarding("pieces without a cache", "a piece would not see those before it", chunk="PREFILL_CHUNK"),
    forwarding("padding at position 0", "position of padding is -1", positions="[0] * padding + list(range(row.cached, end))"),
    forwarding("the column as the position", "positions that they have alone",
               positions="[-1] * padding + list(range(row.cached + padding, end + padding))"),
    forwarding("forgets what the cache holds", "both must be 5", cached="pass"),
    forwarding("counts the history of a row that is done", "still pending when the row was done",
               cached="if cache is not None:\n        row.cached = len(row.history)"),
    forwarding("counts padding", "neither padding", cached="if cache is not None:\n        row.cached += width"),
    forwarding("counts the last call only", "what the cache holds of a row", cached="if cache is not None:\n        row.cached = len(ids)"),
    forwarding("counts one piece only", "all pieces", cached="if cache is not None:\n        row.cached += min(len(ids), PREFILL_CHUNK)"),
    forwarding("forwards the whole history again", "must have 2 columns", pending="[[] if row.done else row.history for row in rows]"),
    forwarding("counts without a cache, too", "must stay 0", cached="row.cached = end"),
    forwarding("feeds rows that are done", "is done was fed again", pending="[row.history[row.cached:] for row in rows]"),
    forwarding("gradients stay on", "no_grad()", context="nullcontext()"),
    forwarding("everything in one piece", "PREFILL_CHUNK", chunk="width"),
    forwarding("keeps the axis of the tokens", "shape", result="logits.data"),
    forwarding("returns a Tensor", "its array in .data", result="logits[:, -1]"),
    forwarding("returns the logits of the first row", "shape", result="logits.data[0]"),
    forwarding("as many columns as the longest history has", "not to the longest history",
               width="max(len(row.history) for row in rows)"),
    forwarding("logits of all tokens", "logits_to_keep=1", how="positions=positions[:, first:first + size]"),
    forwarding("no positions", "without positions", how="logits_to_keep=1"),
    forwarding("gradients off only with a cache", "with a cache and without",
               context="no_grad() if cache is not None else nullcontext()"),
    Right("forward_pending", "arrays filled in place", body='''
pending = [row.history[row.cached:] if not row.done else [] for row in rows]
width = max(len(ids) for ids in pending)
tokens = np.zeros((len(rows), width), dtype=np.int64)
positions = np.full((len(rows), width), -1)
for i, (row, ids) in enumerate(zip(rows, pending)):
    if ids:
        tokens[i, -len(ids):] = ids
        positions[i, -len(ids):] = row.cached + np.arange(len(ids))
size = PREFILL_CHUNK if cache is not None else width
first = 0
while first < width:
    with no_grad():
        out = model(tokens[:, first:first + size], cache, positions[:, first:first + size], 1)
    first += size
if cache is not None:
    for row, ids in zip(rows, pending):
        row.cached += len(ids)
return out.data[:, 0, :]'''),

    # ---- grow_rows
    Wrong("grow_rows", "forwards at the end of every step", says="last token is not forwarded", body='''
active = list(range(len(rows)))
logits = forward_pending(model, rows, cache)
for step in range(1, max_new_tokens + 1):
    chosen = sampler(logits[active], [rows[i].history for i in active], [rows[i].rng for i in active])
    for i, token in zip(active, chosen):
        rows[i].accept(int(token), stops)
    active = [i for i in active if not rows[i].done]
    last = step == max_new_tokens or not active
    yield [row.release(everything=last) for row in rows]
    if not active:
        return
    logits = forward_pending(model, rows, cache)'''),
    looping("the histories lack the prompt", "history without the prompt", histories="[rows[i].history[rows[i].prompt_len:] for i in active]"),
    looping("logits of all rows", "must be left out", logits="logits"),
    looping("rows that stopped go on", "Rows that have stopped stay stopped", still="active",
            last="step == max_new_tokens or all(row.done for row in rows)"),
    looping("ends with the first row", "Other rows had stopped", last="step == max_new_tokens or any(row.done for row in rows)"),
    looping("does not end when all rows are done", "loop must end there", last="step == max_new_tokens"),
    looping("never releases what was held", "everything=True", new="[row.release() for row in rows]"),
    looping("one generator for all rows", "row.rng", rngs="[rows[-1].rng for i in active]"),
    looping("the generators of the first rows, whoever has stopped", "generator of another one",
            rngs="[rows[n].rng for n, i in enumerate(active)]"),
    looping("shows what was chosen", "what the row holds at the end",
            new="[[row.history[-1]] if len(row.history) > row.prompt_len else [] for row in rows]"),
    looping("yields nothing for rows that are done", "also for rows that are done",
            new="[row.release(everything=last) for row in rows if not row.done]"),
    looping("chooses itself", "The sampler chooses the ids", token="int(logits[i].argmax())"),
    Wrong("grow_rows", "asks the sampler row by row", says="Call it once a step", body='''
for step in range(1, max_new_tokens + 1):
    logits = forward_pending(model, rows, cache)
    for i, row in enumerate(rows):
        if not row.done:
            row.accept(int(sampler(logits[i], row.history, row.rng)), stops)
    last = step == max_new_tokens or all(row.done for row in rows)
    yield [row.release(everything=last) for row in rows]
    if last:
        return'''),
    looping("one step too few", "as generate_naive", steps="range(2, max_new_tokens + 1)"),
    Wrong("grow_rows", "gradients off around the whole loop", says="gradients are off", body='''
active = list(range(len(rows)))
with no_grad():
    for step in range(1, max_new_tokens + 1):
        logits = forward_pending(model, rows, cache)
        chosen = sampler(logits[active], [rows[i].history for i in active], [rows[i].rng for i in active])
        for i, token in zip(active, chosen):
            rows[i].accept(int(token), stops)
        active = [i for i in active if not rows[i].done]
        last = step == max_new_tokens or not active
        yield [row.release(everything=last) for row in rows]
        if last:
            return'''),
    looping("the logits of the first rows, whoever has stopped", "logits of another row", logits="logits[:len(active)]"),
    looping("the logits of the last rows, whoever has stopped", "logits of another row", logits="logits[-len(active):]"),
    looping("forwards only the rows that go on", "Forward all rows", forwarded="[rows[i] for i in active]", logits="logits"),
    looping("the numbers stay NumPy's", "give accept int(token)", token="token"),
    Wrong("grow_rows", "looks at the number of steps after the first one", says="there is no step", body='''
step = 0
while True:
    logits = forward_pending(model, rows, cache)
    active = [i for i, row in enumerate(rows) if not row.done]
    chosen = sampler(logits[active], [rows[i].history for i in active], [rows[i].rng for i in active])
    for i, token in zip(active, chosen):
        rows[i].accept(int(token), stops)
    step += 1
    last = step == max_new_tokens or all(row.done for row in rows)
    yield [row.release(everything=last) for row in rows]
    if last:
        return'''),
    Wrong("grow_rows", "forwards the prompt before it looks at the number of steps", says="there is no step", body='''
logits = forward_pending(model, rows, cache)
for left in range(max_new_tokens, 0, -1):
    active = [i for i, row in enumerate(rows) if not row.done]
    chosen = sampler(logits[active], [rows[i].history for i in active], [rows[i].rng for i in active])
    for i, token in zip(active, chosen):
        rows[i].accept(int(token), stops)
    last = left == 1 or all(row.done for row in rows)
    yield [row.release(everything=last) for row in rows]
    if last:
        return
    logits = forward_pending(model, rows, cache)'''),
    Wrong("grow_rows", "returns the list of all steps", says="no generator", body='''
steps = []
while len(steps) < max_new_tokens and not all(row.done for row in rows):
    logits = forward_pending(model, rows, cache)
    active = [i for i, row in enumerate(rows) if not row.done]
    chosen = sampler(logits[active], [rows[i].history for i in active], [rows[i].rng for i in active])
    for i, token in zip(active, chosen):
        rows[i].accept(int(token), stops)
    last = len(steps) + 1 == max_new_tokens or all(row.done for row in rows)
    steps.append([row.release(everything=last) for row in rows])
return steps'''),
    Right("grow_rows", "counts down and keeps masks", body='''
left = max_new_tokens
while left and not all(row.done for row in rows):
    logits = forward_pending(model, rows, cache)
    live = [not row.done for row in rows]
    running = [row for row in rows if not row.done]
    ids = sampler(logits[np.array(live)], [row.history for row in running], [row.rng for row in running])
    for row, token in zip(running, ids):
        row.accept(int(token), stops)
    left -= 1
    over = left == 0 or all(row.done for row in rows)
    new = []
    for row in rows:
        new.append(row.release(everything=over))
    yield new'''),

    # ---- first_difference
    comparing("the lowest position of all layers", "lowest", choose="min(np.argwhere(bad).tolist(), key=lambda at: (at[1], -at[0]))"),
    comparing("the first position, and there the lowest layer", "then the position",
              choose="min(np.argwhere(bad).tolist(), key=lambda at: (at[1], at[0]))"),
    comparing("one size for all rows", "its own size", scale="np.sqrt((a ** 2).mean(axis=(0, 2)))"),
    comparing("a plain tuple", "Return a Difference", result=""),
    comparing("the highest layer", "layer 0", choose="[len(bad) - 1, bad[-1].argmax()]"),
    comparing("the largest error", "first position", choose="[np.flatnonzero(bad.any(axis=1))[0], "
              "errors[np.flatnonzero(bad.any(axis=1))[0]].argmax()]"),
    comparing("an absolute error", "root mean square", scale="1"),
    comparing("NaN is no difference", "NaN is a difference", wrong="error > tolerance"),
    comparing("NaN is lost beside a row of numbers", "NaN is a difference", rows="\n    error = np.fmax.reduce(error, axis=0)"),
    comparing("a difference below zero does not count", "largest absolute difference", gap="(b - a)"),
    comparing("the largest error of the layer", "error at position 6", result="(lambda *at: Difference(*at[:2], float(errors[at[0]].max())))"),
    comparing("nothing can go wrong at position 0", "a position like any other", wrong="~(error <= tolerance) & (np.arange(T) > 0)"),
    comparing("the half rounded up", "the first token after the half on", half="(T + 1) // 2"),
    comparing("only the first row", "difference in any of them counts", rows="[0]"),
    comparing("does not reset the cache", "reset it", reset=""),
    comparing("token by token from the start", "from the first token after the half on", half="1"),
    comparing("a forward that raises leaves the cache full", "Reset it also then"),
    comparing("only what comes token by token is compared", "mistake is in the prefill",
              wrong="~(error <= tolerance) & (np.arange(T) >= half)"),
    Wrong("first_difference", "compares the logits", says="mistake is in layer 0", body='''
half = max(1, T // 2)
with no_grad():
    whole = model(tokens).data
    pieces = [model(tokens[:, :half], cache=cache).data] + [model(tokens[:, t:t + 1], cache=cache).data for t in range(half, T)]
cache.reset()
error = np.abs(np.concatenate(pieces, axis=1) - whole).max(axis=(0, 2))
wrong = ~(error <= tolerance)
if not wrong.any():
    return None
return Difference(len(model.blocks), int(wrong.argmax()), float(error[wrong.argmax()]))'''),
    Wrong("first_difference", "forwards everything with the cache at once", says="got None", body='''
with no_grad():
    whole = [x.data for x in model.hidden_states(tokens)]
    cached = [x.data for x in model.hidden_states(tokens, cache=cache)]
cache.reset()
for layer, (a, b) in enumerate(zip(whole, cached)):
    error = (np.abs(b - a).max(axis=-1) / np.sqrt((a ** 2).mean(axis=-1))).max(axis=0)
    if not (error <= tolerance).all():
        return Difference(layer, int((error > tolerance).argmax()), float(error.max()))
return None'''),
    Right("first_difference", "loops over layers, positions and rows", body='''
half = max(1, T // 2)
try:
    with no_grad():
        whole = [x.data for x in model.hidden_states(tokens)]
        found = [np.zeros_like(a) for a in whole]
        for start, stop in [(0, half)] + [(t, t + 1) for t in range(half, T)]:
            for layer, x in enumerate(model.hidden_states(tokens[:, start:stop], cache=cache)):
                found[layer][:, start:stop] = x.data
except BaseException:
    cache.reset()
    raise
cache.reset()
for layer in range(len(whole)):
    for position in range(T):
        worst = 0.0
        for row in range(B):
            a, b = whole[layer][row, position].astype(float), found[layer][row, position].astype(float)
            error = float(np.max(np.abs(a - b)) / (np.mean(a * a) ** 0.5 + 1e-30))
            worst = error if error != error else max(worst, error)
        if not worst <= tolerance:
            return Difference(layer, position, worst)'''),
]
