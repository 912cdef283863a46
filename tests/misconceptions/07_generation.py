"""Wrong and right answers to the exercises of lesson 07."""
from tests.misconceptions import Right, Wrong


def probabilities(name, says, *, scale="(p - top) / temperature", order="order[:np.searchsorted(p[order].cumsum(), top_p) + 1]",
                  min_p="p[p < min_p * p.max()] = 0"):
    """An answer to token_probabilities, right but for what is given here."""
    return Wrong("token_probabilities", name, says=says, body={0: f"p = np.exp({scale})", 1: f"order = {order}", 2: min_p})


def accepting(name, says, *, overlap=None, accept=None):
    return Wrong("accept", name, says=says, body={i: code for i, code in enumerate((overlap, accept)) if code})


def forwarding(name, says, *, tokens="[0] * padding + ids", positions="[-1] * padding + list(range(row.cached, end))",
               cached="if cache is not None:\n        row.cached = end"):
    """An answer to forward_pending, right but for what is given here."""
    return Wrong("forward_pending", name, says=says, body=f'''
for row, ids in zip(rows, pending):
    padding = width - len(ids)
    end = row.cached + len(ids)
    tokens.append({tokens})
    positions.append({positions})
    {cached}''')


def looping(name, says, *, histories="[rows[i].history for i in active]", rngs="[rows[i].rng for i in active]",
            logits="logits[active]", grown="for i, token in zip(active, chosen):\n    rows[i].accept(int(token), stops)",
            new="yield [row.release(everything=last) for row in rows]", forwarded="rows"):
    """An answer to grow_rows, right but for what is given here."""
    return Wrong("grow_rows", name, says=says, body={0: f'''
logits = forward_pending(model, {forwarded}, cache)
chosen = sampler({logits}, {histories}, {rngs})
{grown}''', 1: new})


def comparing(name, says, *, scale="np.sqrt((a ** 2).mean(axis=-1)) + 1e-30", wrong="~(error <= tolerance)", rows=".max(axis=0)",
              choose="np.argwhere(bad)[0]", result="Difference", gap="np.abs(b - a)"):
    """An answer to first_difference, right but for what is given here."""
    return Wrong("first_difference", name, says=says, body=f'''
bad, errors = [], []
for a, b in zip(full, cached):
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
    probabilities("multiplies by the temperature", "divided by the temperature", scale="(p - top) * temperature"),
    probabilities("divides the exponentials by the temperature", "before the exponential", scale="p - top) / (temperature"),
    probabilities("does not subtract the largest logit", "subtract the largest logit", scale="p / temperature"),
    probabilities("subtracts the largest logit after the division", "subtract the largest logit", scale="p / temperature - top"),
    probabilities("goes on from the logits", "Go on from `p`", scale="(logits - top) / temperature"),
    probabilities("drops the token that crosses the line of top_p", "crosses the line",
                  order="order[:max(1, int((p[order].cumsum() <= top_p).sum()))]"),
    probabilities("leaves out the token that crosses the line of top_p, even if it is the only one", "crosses the line",
                  order="order[:np.searchsorted(p[order].cumsum(), top_p)]"),
    probabilities("top_p of 0 keeps nothing", "keeps one token", order="order[p[order].cumsum() - p[order] < top_p]"),
    probabilities("top_p adds up the probabilities as they lie in p", "begins with the likeliest",
                  order="order[:np.searchsorted(p.cumsum(), top_p) + 1]"),
    probabilities("top_p keeps the tokens, not their indices", "for each of `ids`",
                  order="p[order[:np.searchsorted(p[order].cumsum(), top_p) + 1]]"),
    probabilities("top_p as a least probability", "crosses the line", order="order[p[order] >= top_p]"),
    probabilities("a sum that just reaches top_p is not enough", "two tokens are enough",
                  order="order[:np.searchsorted(p[order].cumsum(), top_p, side='right') + 1]"),
    probabilities("min_p before the temperature", "min_p looks at the probabilities that it gives",
                  min_p="p[np.exp(logits[ids].astype(np.float64) - top) < min_p] = 0"),
    probabilities("min_p hides what equals it", "as likely as the likeliest", min_p="p[p <= min_p * p.max()] = 0"),
    probabilities("min_p as if the largest were always 1", "also of what top_p left", min_p="p[p < min_p] = 0"),
    probabilities("min_p as a probability", "not a probability itself", min_p="p = p / p.sum()\np[p < min_p] = 0"),
    probabilities("min_p takes the first token for the largest", "share of the largest probability", min_p="p[p < min_p * p[0]] = 0"),
    probabilities("min_p makes p shorter", "for each of `ids`", min_p="p = p[p >= min_p * p.max()]"),
    probabilities("top_p takes order out of p, as the given line does", "for each of `ids`",
                  order="order[:np.searchsorted(p[order].cumsum(), top_p) + 1]\np = p[order]"),
    probabilities("top_p by the first sum that reaches it, where none does", "the last one may stay below top_p",
                  order="order[:np.argmax(p[order].cumsum() >= top_p) + 1]"),
    probabilities("a small number added to the temperature", "no small number is added", scale="(p - top) / (temperature + 1e-8)"),
    probabilities("a least temperature", "divided by the temperature itself", scale="(p - top) / max(temperature, 0.01)"),
    Right("token_probabilities", "as the formulas say it", body={
        0: "p = np.exp((p - top) / temperature)",
        1: "order = order[:int((p[order].cumsum() < top_p).sum()) + 1]",
        2: "p = np.where(p >= min_p * p.max(), p, 0)"}),
    Right("token_probabilities", "one token at a time", body={0: '''
p = np.array([math.exp((z - float(top)) / temperature) for z in p])
''', 1: '''
reached, kept = 0.0, []
for i in order:
    kept.append(i)
    reached += p[i]
    if reached >= top_p:
        break
order = kept
''', 2: '''
for i in range(len(p)):
    if p[i] / max(p) < min_p:
        p[i] = 0.0
'''}),

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
for stop in stops:
    self.held = self.held + 1 if token == stop[self.held] else 0
    if self.held == len(stop):
        complete = self.held
        break'''),
    accepting("never holds back", "All ids of a stop sequence", accept='''
for stop in stops:
    if overlap(self, stop) == len(stop):
        complete = max(complete, len(stop))'''),
    accepting("no stop is ever complete", "cut off", accept="self.held = max([overlap(self, stop) for stop in stops], default=0)"),
    accepting("cuts off the last id only", "not only the last one", accept='''
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
complete = int(any(n == len(stop) for n, stop in zip(overlaps, stops)))'''),
    accepting("cuts off all that was held", "not cut off", accept='''
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
if any(n == len(stop) for n, stop in zip(overlaps, stops)):
    complete = self.held'''),
    accepting("the last id of a stop ends the row", "may be the beginning of a stop", accept='''
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
complete = max((n for n, stop in zip(overlaps, stops) if token == stop[-1]), default=0)'''),
    accepting("cuts off the first stop that is complete", "the longest is cut off", accept='''
overlaps = [overlap(self, stop) for stop in stops]
self.held = max(overlaps, default=0)
for n, stop in zip(overlaps, stops):
    if n == len(stop):
        complete = n
        break'''),
    accepting("cuts off the last stop that is complete", "in whatever order", accept='''
self.held = 0
for stop in stops:
    n = overlap(self, stop)
    self.held = max(self.held, n)
    if n == len(stop):
        complete = n'''),
    accepting("compares the last id only", "in its order", accept='''
self.held = max((overlap(self, stop) for stop in stops), default=0)
for stop in stops:
    if token == stop[-1] and len(self.history) - self.prompt_len >= len(stop):
        complete = len(stop)
        break'''),
    accepting("the last stop decides what is held", "longest overlap", accept='''
self.held = 0
for stop in stops:
    n = self.held = overlap(self, stop)
    if n == len(stop):
        complete = max(complete, n)'''),
    accepting("the first overlap decides what is held", "in whatever order", accept='''
overlaps = [overlap(self, stop) for stop in stops]
complete = max([n for n, stop in zip(overlaps, stops) if n == len(stop)] or [0])
self.held = next((n for n in overlaps if n), 0)'''),
    accepting("the number of stops that are complete", "not only the last one", accept='''
self.held = 0
for stop in stops:
    n = overlap(self, stop)
    self.held = max(self.held, n)
    complete += n == len(stop)'''),
    accepting("never all ids of the stop", "up to len(stop) ids", overlap='''
for n in range(min(len(stop) - 1, len(row.history) - row.prompt_len), 0, -1):
    if row.history[-n:] == stop[:n]:
        return n
return 0''', accept='''
complete = max([len(stop) for stop in stops if self.history[self.prompt_len:][-len(stop):] == stop], default=0)
self.held = max([overlap(self, stop) for stop in stops], default=0)'''),
    accepting("needs a stop", "Without stops", accept="self.held = max(overlap(self, stop) for stop in stops)"),
    accepting("held never shrinks", "released when something else came", accept='''
overlaps = [overlap(self, stop) for stop in stops]
self.held = max([self.held, *overlaps])
complete = max([n for n, stop in zip(overlaps, stops) if n == len(stop)], default=0)'''),
    accepting("nothing is returned where nothing matches", "a return at every end", overlap='''
for n in range(min(len(stop), len(row.history) - row.prompt_len), 0, -1):
    if row.history[-n:] == stop[:n]:
        return n'''),
    accepting("appends the token a second time", "Without stops", accept='''
self.history.append(token)
self.held = 0
for stop in stops:
    n = overlap(self, stop)
    self.held = max(self.held, n)
    if n == len(stop):
        complete = max(complete, n)'''),
    accepting("sorts the stops", "accept changed the stops", accept='''
stops.sort(key=len)
self.held = max([overlap(self, stop) for stop in stops], default=0)
for stop in stops:
    if overlap(self, stop) == len(stop):
        complete = len(stop)'''),
    accepting("compares texts", "compare ids, not texts", overlap='''
text = "".join(map(str, row.history[row.prompt_len:]))
for n in range(min(len(stop), len(row.history) - row.prompt_len), 0, -1):
    if text.endswith("".join(map(str, stop[:n]))):
        return n
return 0
'''),
    Right("accept", "with the new ids in a list of their own", body={0: '''
new = row.history[row.prompt_len:]
return max(n for n in range(len(stop) + 1) if n <= len(new) and new[len(new) - n:] == stop[:n])''', 1: '''
matched = {len(stop) for stop in stops if overlap(self, stop) == len(stop)}
complete = max(matched, default=0)
self.held = 0 if complete else max([overlap(self, stop) for stop in stops] or [0])'''}),
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
    forwarding("does not pad", "with `width` numbers in it", tokens="ids", positions="list(range(row.cached, end))"),
    forwarding("pads the tokens only", "with `width` numbers in it", positions="list(range(row.cached, end))"),
    forwarding("positions begin again at 0", "they do not restart at 0", positions="[-1] * padding + list(range(len(ids)))"),
    forwarding("padding at position 0", "position of padding is -1", positions="[0] * padding + list(range(row.cached, end))"),
    forwarding("pads with the token -1", "padding is not the token 0", tokens="[-1] * padding + ids"),
    forwarding("counts before it makes the positions", "row.cached as it was before",
               tokens="[0] * padding + ids)\n    row.cached += 0 if cache is None else len(ids)\n    end = row.cached + len(ids", cached="pass"),
    forwarding("feeds the whole history again", "fed once", tokens="[0] * (width - len(row.history)) + row.history",
               positions="[-1] * (width - len(row.history)) + list(range(len(row.history)))"),
    Wrong("forward_pending", "leaves out rows that are done", says="keeps its place", body='''
for row, ids in zip(rows, pending):
    if not row.done:
        tokens.append([0] * (width - len(ids)) + ids)
        positions.append([-1] * (width - len(ids)) + list(range(row.cached, row.cached + len(ids))))
        if cache is not None:
            row.cached += len(ids)'''),
    Wrong("forward_pending", "the positions go on from the slots", says="does not count padding", body='''
start = 0 if cache is None else cache.seq_pos
for row, ids in zip(rows, pending):
    tokens.append([0] * (width - len(ids)) + ids)
    positions.append([-1] * (width - len(ids)) + list(range(start, start + len(ids))))
    if cache is not None:
        row.cached += len(ids)'''),
    forwarding("the column as the position", "positions that they have alone",
               positions="[-1] * padding + list(range(row.cached + padding, end + padding))"),
    forwarding("forgets what the cache holds", "both must be 5", cached="pass"),
    forwarding("counts the history of a row that is done", "still pending when the row was done",
               cached="if cache is not None:\n        row.cached = len(row.history)"),
    forwarding("counts padding", "neither padding", cached="if cache is not None:\n        row.cached += width"),
    forwarding("counts the last call only", "what the cache holds of a row", cached="if cache is not None:\n        row.cached = len(ids)"),
    forwarding("counts without a cache, too", "must stay 0", cached="row.cached = end"),
    forwarding("feeds rows that are done", "is done was fed again", tokens="[0] * (width - len(row.history[row.cached:])) + "
               "row.history[row.cached:]", positions="[-1] * (width - len(row.history[row.cached:])) + "
               "list(range(row.cached, len(row.history)))"),
    Right("forward_pending", "arrays filled in place", body='''
tokens = np.zeros((len(rows), width), dtype=np.int64)
positions = np.full((len(rows), width), -1)
for i, (row, ids) in enumerate(zip(rows, pending)):
    if ids:
        tokens[i, -len(ids):] = ids
        positions[i, -len(ids):] = row.cached + np.arange(len(ids))
if cache is not None:
    for row, ids in zip(rows, pending):
        row.cached += len(ids)'''),

    # ---- grow_rows
    looping("the histories lack the prompt", "history without the prompt", histories="[rows[i].history[rows[i].prompt_len:] for i in active]"),
    looping("logits of all rows", "must be left out", logits="logits"),
    looping("rows that stopped go on", "Rows that have stopped stay stopped", logits="logits",
            histories="[row.history for row in rows]", rngs="[row.rng for row in rows]",
            grown="for row, token in zip(rows, chosen):\n    row.accept(int(token), stops)"),
    looping("gives the ids to the first rows, whoever has stopped", "the row that it was chosen for",
            grown="for row, token in zip(rows, chosen):\n    row.accept(int(token), stops)"),
    looping("knows no stops", "given the stops", grown="for i, token in zip(active, chosen):\n    rows[i].accept(int(token), [])"),
    looping("only lengthens the history", "given the stops",
            grown="for i, token in zip(active, chosen):\n    rows[i].history.append(int(token))"),
    looping("never releases what was held", "comes with the last step", new="yield [row.release() for row in rows]"),
    looping("releases everything at every step", "only then", new="yield [row.release(everything=True) for row in rows]"),
    looping("one generator for all rows", "row.rng", rngs="[rows[-1].rng for i in active]"),
    looping("the generators of the first rows, whoever has stopped", "generator of another one",
            rngs="[rows[n].rng for n, i in enumerate(active)]"),
    looping("shows what was chosen", "what the row holds at the end",
            new="yield [[row.history[-1]] if len(row.history) > row.prompt_len else [] for row in rows]"),
    looping("yields nothing for rows that are done", "also for rows that are done",
            new="yield [row.release(everything=last) for row in rows if not row.done]"),
    looping("yields row by row", "After each step yield one list", new="for row in rows:\n    yield row.release(everything=last)"),
    looping("returns the ids of the first step", "no generator", new="return [row.release(everything=last) for row in rows]"),
    looping("chooses itself", "The sampler chooses the ids",
            grown="for i, token in zip(active, chosen):\n    rows[i].accept(int(logits[i].argmax()), stops)"),
    Wrong("grow_rows", "asks the sampler row by row", says="Call it once a step", body={0: '''
logits = forward_pending(model, rows, cache)
for i in active:
    rows[i].accept(int(sampler(logits[i], rows[i].history, rows[i].rng)), stops)'''}),
    Wrong("grow_rows", "forwards row by row", says="Forward all rows", body={0: '''
for i in active:
    logits = forward_pending(model, [rows[i]], cache)
    rows[i].accept(int(sampler(logits, [rows[i].history], [rows[i].rng])[0]), stops)'''}),
    looping("forwards after the choice, too", "last token is not forwarded",
            grown="for i, token in zip(active, chosen):\n    rows[i].accept(int(token), stops)\nforward_pending(model, rows, cache)"),
    looping("the logits of the first rows, whoever has stopped", "logits of another row", logits="logits[:len(active)]"),
    looping("the logits of the last rows, whoever has stopped", "logits of another row", logits="logits[-len(active):]"),
    looping("forwards only the rows that go on", "Forward all rows", forwarded="[rows[i] for i in active]", logits="logits"),
    looping("the numbers stay NumPy's", "give accept int(token)",
            grown="for i, token in zip(active, chosen):\n    rows[i].accept(token, stops)"),
    looping("takes the ids for an array", "an array or a list of ids",
            grown="for i, token in zip(active, chosen.tolist()):\n    rows[i].accept(token, stops)"),
    Right("grow_rows", "with masks and a list that grows", body={0: '''
logits = forward_pending(model, rows, cache)
running = [row for row in rows if not row.done]
ids = sampler(logits[np.array([not row.done for row in rows])], [row.history for row in running], [row.rng for row in running])
for row, token in zip(running, ids):
    row.accept(int(token), stops)''', 1: '''
new = []
for row in rows:
    new.append(row.release(everything=last))
yield new'''}),

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
    comparing("only the first row", "difference in any of them counts", rows="[0]"),
    comparing("only what comes token by token is compared", "compare all positions",
              wrong="~(error <= tolerance) & (np.arange(T) >= half)"),
    comparing("divided by the size of the cached stream", "root mean square of the full stream",
              scale="np.sqrt((b ** 2).mean(axis=-1))"),
    comparing("the errors of all rows added up", "largest error of all rows", rows=".sum(axis=0)"),
    Wrong("first_difference", "the first row that goes wrong, and there the position", says="the first position", body='''
for layer, (a, b) in enumerate(zip(full, cached)):
    error = np.abs(b - a).max(axis=-1) / np.sqrt((a ** 2).mean(axis=-1))
    for row, position in np.argwhere(~(error <= tolerance)):
        return Difference(layer, int(position), float(error[row, position]))'''),
    comparing("0 / 0 where the stream is zero", "They do not differ", scale="np.sqrt((a ** 2).mean(axis=-1))"),
    Right("first_difference", "leaves streams of zeros undivided", body='''
for layer, (a, b) in enumerate(zip(full, cached)):
    size = np.sqrt((a ** 2).mean(axis=-1))
    size[size == 0] = 1
    error = (np.abs(b - a).max(axis=-1) / size).max(axis=0)
    for position, one in enumerate(error.tolist()):
        if not one <= tolerance:
            return Difference(layer, position, one)
'''),
    Right("first_difference", "with the norm's small number, and NaN by name", body='''
for layer, (a, b) in enumerate(zip(full, cached)):
    error = (np.abs(a - b).max(-1) / np.sqrt((a ** 2).mean(-1) + 1e-5)).max(0)
    bad = np.flatnonzero((error > tolerance) | np.isnan(error))
    if len(bad):
        return Difference(layer, bad[0], error[bad[0]])
return None'''),
    Right("first_difference", "loops over layers, positions and rows", body='''
for layer in range(len(full)):
    for position in range(T):
        worst = 0.0
        for row in range(B):
            a, b = full[layer][row, position].astype(float), cached[layer][row, position].astype(float)
            error = float(np.max(np.abs(a - b)) / (np.mean(a * a) ** 0.5 + 1e-30))
            worst = error if error != error else max(worst, error)
        if not worst <= tolerance:
            return Difference(layer, position, worst)'''),
]
