"""What people really write in lesson 06, the KV cache, and right answers written another way."""
from tests.misconceptions import Right, Wrong


def advance(past="self.max_seq_len is not None and after > self.max_seq_len",
            missing="any(after > layer.size for layer in self.layers)"):
    """The body of KVCache.advance with another condition."""
    return f'''
        after = self.seq_pos + num_tokens
        if {past}:
            raise CacheFullError("past the end")
        if {missing}:
            raise ValueError("not staged")
        self.seq_pos = after'''


ANSWERS = [
    # Exercise 1: regions are __init__, write, read
    Wrong("slots", "float64 leak: zeros without a dtype", says="float64", body={0: '''
        self.keys = np.zeros((batch_size, num_kv_heads, capacity, head_dim))
        self.values = np.zeros((batch_size, num_kv_heads, capacity, head_dim))'''}),
    Wrong("slots", "a long cache hands out its values as they lie in memory", says="With 4096 slots", body={0: '''
        by_number = batch_size, num_kv_heads, head_dim, capacity
        self.keys = np.zeros(by_number, dtype).swapaxes(2, 3)
        self.values = (np.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype) if capacity < LONG else
                       np.zeros(by_number, dtype))'''}),
    Wrong("slots", "only the keys have the wanted dtype", says="its values float32", body={0: '''
        self.keys = np.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype)
        self.values = np.zeros((batch_size, num_kv_heads, capacity, head_dim), np.float32)'''}),
    Wrong("slots", "the wanted dtype is ignored", says="Slots was given float16", body={0: '''
        self.keys = np.zeros((batch_size, num_kv_heads, capacity, head_dim), np.float32)
        self.values = np.zeros((batch_size, num_kv_heads, capacity, head_dim), np.float32)'''}),
    Wrong("slots", "heads and slots in the wrong order", says="(batch, heads, capacity, width)", body={0: '''
        self.keys = np.zeros((batch_size, capacity, num_kv_heads, head_dim), dtype)
        self.values = np.zeros((batch_size, capacity, num_kv_heads, head_dim), dtype)'''}),
    Wrong("slots", "the keys' buffer is transposed, but not seen as the values are", says="(batch, heads, capacity, width)",
          body={0: '''
        self.keys = np.zeros((batch_size, num_kv_heads, head_dim, capacity), dtype)
        self.values = np.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype)'''}),
    Wrong("slots", "key stored as value", says="mixed up", body={1: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = value
        self.values[:, :, start:stop] = key'''}),
    Wrong("slots", "the key is stored twice", says="mixed up", body={1: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = self.values[:, :, start:stop] = key'''}),
    Wrong("slots", "every write lands at slot 0", says="landed at slot 0", body={1: '''
        self.keys[:, :, :key.shape[2]] = key
        self.values[:, :, :key.shape[2]] = value'''}),
    Wrong("slots", "the first token is never stored", says="first write", body={1: '''
        stop = start + key.shape[2]
        self.keys[:, :, start + 1:stop] = key[:, :, 1:]
        self.values[:, :, start + 1:stop] = value[:, :, 1:]'''}),
    Wrong("slots", "only one token of several is stored", says="first write", body={1: '''
        self.keys[:, :, start] = key[:, :, -1]
        self.values[:, :, start] = value[:, :, -1]'''}),
    Wrong("slots", "the buffer grows by concatenation", says="replaced the buffer", body={1: '''
        self.keys = np.concatenate([self.keys[:, :, :start], key], axis=2)
        self.values = np.concatenate([self.values[:, :, :start], value], axis=2)'''}),
    Wrong("slots", "concatenation to a stale reference: nothing is stored", says="first write", body={1: '''
        keys, values = self.keys[:, :, :start], self.values[:, :, :start]
        keys = np.concatenate([keys, key], axis=2)
        values = np.concatenate([values, value], axis=2)'''}),
    Wrong("slots", "unwritten zeros are read too", says="attention would give these zeros a share", body={2: '''
        return self.keys, self.values'''}),
    Wrong("slots", "one slot too few is read", says="must give 5 of the 8 slots", body={2: '''
        return self.keys[:, :, :stop - 1], self.values[:, :, :stop - 1]'''}),
    Wrong("slots", "read copies", says="views", body={2: '''
        return self.keys[:, :, :stop].copy(), self.values[:, :, :stop].copy()'''}),
    Wrong("slots", "read gives nothing back", says="Is the `return` missing", body={2: '''
        self.keys[:, :, :stop], self.values[:, :, :stop]'''}),
    Wrong("slots", "read gives the keys alone", says="must return two arrays", body={2: '''
        return self.keys[:, :, :stop]'''}),
    Wrong("slots", "new tokens are added to what the slots hold", says="must replace what the slots held", body={1: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] += key
        self.values[:, :, start:stop] += value'''}),
    Wrong("slots", "buffers full of ones", says="Either __init__ does not make zeros", body={0: '''
        self.keys = np.ones((batch_size, num_kv_heads, capacity, head_dim), dtype)
        self.values = np.ones((batch_size, num_kv_heads, capacity, head_dim), dtype)'''}),
    Wrong("slots", "values behind the new tokens are written too", says="slots behind the tokens", body={1: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = key
        self.values[:, :, start:] = value[:, :, -1:]
        self.values[:, :, start:stop] = value'''}),
    Right("slots", "keys laid out like the values", body={0: '''
        shape = batch_size, num_kv_heads, capacity, head_dim
        self.keys, self.values = np.zeros(shape, dtype=dtype), np.zeros(shape, dtype=dtype)'''}),
    Right("slots", "token by token, with einsum and copyto", body={
        0: '''
        self.keys = np.einsum("bhdt->bhtd", np.zeros((batch_size, num_kv_heads, head_dim, capacity), dtype))
        self.values = np.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype)''',
        1: '''
        for t in range(key.shape[2]):
            np.copyto(self.keys[:, :, start + t], key[:, :, t])
            np.copyto(self.values[:, :, start + t], value[:, :, t])''',
        2: '''
        filled = slice(0, stop)
        return tuple(buffer[:, :, filled, :] for buffer in (self.keys, self.values))'''}),

    # Exercise 2: regions are next_positions, update
    Wrong("exact_update", "positions restart at 0 after the prefill", says="start again at 0", body={0: '''
        return np.tile(np.arange(num_tokens), (self.batch_size, 1))'''}),
    Wrong("exact_update", "padding counts as tokens", says="padding is none", body={0: '''
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "the largest position of the whole batch for every row", says="Each row counts its own tokens",
          body={0: '''
        if self.padded:
            start = np.full(self.batch_size, self.positions.max() + 1)
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "the last position is given twice", says="go on with", body={0: '''
        if self.padded:
            held = self.positions[:, :self.length - except_last]
            start = held.max(axis=1, initial=0)
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "staged slots count for the next positions", says="except_last", body={0: '''
        if self.padded:
            start = self.positions.max(axis=1, initial=-1) + 1
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "a row of nothing but padding starts at -1 + 2", says="nothing but padding", body={0: '''
        if self.padded:
            held = self.positions[:, :self.length - except_last]
            start = held.max(axis=1, initial=0) + 1
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "no slot is left after a broken forward", says="when a forward with padding broke off", body={0: '''
        if self.padded:
            start = self.positions[:, :self.length - except_last].max(axis=1) + 1
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "only -1 is padding", says="Every negative position is padding", body={0: '''
        if self.padded:
            held = self.positions[:, :self.length - except_last]
            start = held.max(axis=1) + 1 if held.size else np.zeros(self.batch_size, int)
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "the current token is left out of its own attention", says="part of what their own queries see",
          body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        held = self.read()
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return held'''}),
    Wrong("exact_update", "the current token is left out in decode only", says="current token is missing", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read(except_last=1 if start else 0)'''}),
    Wrong("exact_update", "the first token is never stored", says="first token is not in slot 0", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start + 1, key[:, :, :self.max_seq_len - start - 1], value[:, :, :self.max_seq_len - start - 1])
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "only the new tokens come back", says="only the new token", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return Tensor(key, dtype=self.dtype), Tensor(value, dtype=self.dtype)'''}),
    Wrong("exact_update", "all slots come back, the unwritten zeros too", says="must return (2, 3, 3, 4)", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return record(self._slots.keys, None), record(self._slots.values, None)'''}),
    Wrong("exact_update", "key stored as value", says="mixed up", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, value, key)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "overflow wraps silently", says="CacheFullError", body={1: '''
        if positions is None:
            positions = self.next_positions(key.shape[2])
        for t in range(key.shape[2]):
            slot = (self.size + t) % self.max_seq_len
            self._slots.write(slot, key[:, :, t:t + 1], value[:, :, t:t + 1])
            self._positions[:, slot] = positions[:, t]
        self.padded = self.padded or not counts_on(positions, self.size)
        self.size = min(self.size + key.shape[2], self.max_seq_len)
        return self.read()'''}),
    Wrong("exact_update", "the buffer grows by concatenation", says="replaced by new arrays", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.keys = np.concatenate([self._slots.keys[:, :, :start], key], axis=2)
        self._slots.values = np.concatenate([self._slots.values[:, :, :start], value], axis=2)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "concatenation to a stale reference: what is returned is right once", says="in their order", body={1: '''
        key, value, positions = self.check(key, value, positions)
        keys, values = self.read()
        start, stop = self.size, self.size + key.shape[2]
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return (Tensor(np.concatenate([keys.data, key], axis=2)), Tensor(np.concatenate([values.data, value], axis=2)))'''}),
    Wrong("exact_update", "positions of each call from 0: the mask is aligned to the top left", says="mask is aligned wrongly",
          body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = np.arange(key.shape[2]) if counts_on(positions, start) else positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "slot numbers stored as positions", says="positions that update() was given", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = np.arange(start, stop)
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "padding is not noted", says="padded must be True", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "a later token takes the note of padding away", says="does not change that", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "only negative positions are noted: gaps and other starts are not", says="although none is negative",
          body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or bool((positions < 0).any())
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "positions must grow, but may begin anywhere and skip some", says="although none is negative", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        held = self._positions[:, :stop]
        self.padded = bool((held[:, :1] < 0).any() or (np.diff(held, axis=1) < 1).any())
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "an older token that comes late is not noted", says="must not see position 2", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        late = start > 0 and bool((positions >= 0).all()) and not self.padded
        self.padded = self.padded or not (late or counts_on(positions, start))
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "the next position is the number of tokens, not the largest plus one", says="largest position plus one", body={0: '''
        if self.padded:
            held = self.positions[..., :self.length - except_last]
            start = (held >= 0).sum(axis=-1)
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "padding is tested after the size has moved", says="not padded", body={1: '''
        key, value, positions = self.check(key, value, positions)
        self._slots.write(self.size, key, value)
        self._positions[:, self.size:self.size + key.shape[2]] = positions
        self.size += key.shape[2]
        self.padded = self.padded or not counts_on(positions, self.size)
        return self.read()'''}),
    Wrong("exact_update", "without check, NumPy repeats one head for all", says="repeated for all heads", body={1: '''
        T = key.shape[2]
        if self.size + T > self.max_seq_len:
            raise CacheFullError("full")
        if positions is None:
            positions = self.next_positions(T)
        self._slots.write(self.size, key, value)
        self._positions[:, self.size:self.size + T] = positions
        self.padded = self.padded or not counts_on(positions, self.size)
        self.size += T
        return self.read()'''}),
    Wrong("exact_update", "float64 leak: the buffers take the type of the input", says="float64", body={1: '''
        dtype = key.dtype
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        if dtype != self.dtype:
            self._slots.keys, self._slots.values = self._slots.keys.astype(dtype), self._slots.values.astype(dtype)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "next_positions gives nothing back", says="Is the `return` missing", body={0: '''
        if self.padded:
            held = self.positions[:, :self.length - except_last]
            start = held.max(axis=1, initial=-1) + 1
        start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "next_positions gives lists", says="must return an array", body={0: '''
        if self.padded:
            start = self.positions[:, :self.length - except_last].max(axis=1, initial=-1) + 1
        return [[int(first) + t for t in range(num_tokens)] for first in start]'''}),
    Wrong("exact_update", "one position for each row, however many tokens come", says="but next_positions gave [[0], [0]]",
          body={0: '''
        if self.padded:
            start = self.positions[:, :self.length - except_last].max(axis=1, initial=-1) + 1
        return start[:, None]'''}),
    Wrong("exact_update", "positions with decimals", says="next_positions gave float64", body={0: '''
        if self.padded:
            start = self.positions[:, :self.length - except_last].max(axis=1, initial=-1) + 1
        return start[:, None] + np.arange(0.0, num_tokens)'''}),
    Wrong("exact_update", "zeros without a dtype are filled row by row", says="for a padded layer next_positions gave float64",
          body={0: '''
        if self.padded:
            start = np.zeros(self.batch_size)
            for b, held in enumerate(self.positions[:, :self.length - except_last]):
                start[b] = held.max(initial=-1) + 1
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "the last position plus one, not the largest", says="need not be the largest", body={0: '''
        if self.padded:
            held = self.positions[:, :self.length - except_last]
            start = np.maximum(held[:, -1], -1) + 1 if held.size else np.zeros(self.batch_size, int)
        return start[:, None] + np.arange(num_tokens)'''}),
    Wrong("exact_update", "update gives nothing back", says="Is the `return` missing", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop'''}),
    Wrong("exact_update", "update gives the arrays of Slots", says="did you return arrays", body={1: '''
        key, value, positions = self.check(key, value, positions)
        start, stop = self.size, self.size + key.shape[2]
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.padded = self.padded or not counts_on(positions, start)
        self.size = stop
        return self._slots.read(stop)'''}),
    Right("exact_update", "rows and tokens one by one", body={
        0: '''
        rows = []
        for b in range(self.batch_size):
            held = self.positions[b, :self.length - except_last]
            first = 0
            for position in held:
                first = max(first, int(position) + 1)
            rows.append([first + t for t in range(num_tokens)])
        return np.array(rows)''',
        1: '''
        key, value, positions = self.check(key, value, positions)
        for t in range(key.shape[2]):
            if (positions[:, t] != self.size).any():
                self.padded = True
            self._slots.write(self.size, key[:, :, t:t + 1], value[:, :, t:t + 1])
            self._positions[:, self.size] = positions[:, t]
            self.size += 1
        return self.read()'''}),
    Right("exact_update", "size first, then slots counted from the end", body={1: '''
        key, value, positions = self.check(key, value, positions)
        new = key.shape[2]
        self.size += new
        self._slots.keys[:, :, self.size - new:self.size] = key
        self._slots.values[:, :, self.size - new:self.size] = value
        self._positions[:, self.size - new:self.size] = positions
        self.padded = not counts_on(self._positions[:, :self.size], 0)
        return self.read()'''}),

    # Exercise 3: regions are trim, reset, reorder
    Wrong("exact_undo", "trim keeps n instead of forgetting n", says="5 tokens without the last 2 are 3", body={0: '''
        self.size, n = n, self.size - n
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)
        return n'''}),
    Wrong("exact_undo", "trim forgets the first tokens", says="keep the first", body={0: '''
        keys, values = (array.copy() for array in self._slots.read(self.size))
        self._positions[:, :self.size - n] = self._positions[:, n:self.size].copy()
        self._slots.write(0, keys[:, :, n:], values[:, :, n:])
        self.size -= n
        return n'''}),
    Wrong("exact_undo", "trim returns the new size", says="how many tokens it forgot", body={0: '''
        self.size -= n
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)
        return self.size'''}),
    Wrong("exact_undo", "trim returns nothing", says="how many tokens it forgot", body={0: '''
        self.size -= n
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)'''}),
    Wrong("exact_undo", "trimmed padding is still noted", says="only padding has been trimmed away", body={0: '''
        self.size -= n
        return n'''}),
    Wrong("exact_undo", "trim always takes the note of padding away", says="padding in slot 2 is still there", body={0: '''
        self.size -= n
        self.padded = False
        return n'''}),
    Wrong("exact_undo", "after a trim only negative positions are looked for", says="After trim(1) the first row", body={0: '''
        self.size -= n
        self.padded = bool((self._positions[:, :self.size] < 0).any())
        return n'''}),
    Wrong("exact_undo", "after a reorder only negative positions are looked for", says="After reorder([0, 1]) the first row", body={2: '''
        self._slots.reorder(rows, self.size)
        self._positions = self._positions[rows]
        self.padded = bool((self._positions[:, :self.size] < 0).any())'''}),
    Wrong("exact_undo", "reset clears the buffers and keeps the length", says="A second conversation would see the first", body={1: '''
        self._slots.keys[:] = 0
        self._slots.values[:] = 0
        self._positions[:] = 0'''}),
    Wrong("exact_undo", "reset keeps the note of padding", says="nothing is padded", body={1: '''
        self.size = 0'''}),
    Wrong("exact_undo", "reset makes everything anew", says="new buffers", body={1: '''
        self.__init__(self.batch_size, self.max_seq_len, self.num_kv_heads, self.head_dim, self.dtype)'''}),
    Wrong("exact_undo", "reset forgets, but clears the buffers as well", says="has cleared the buffers", body={1: '''
        for buffer in self._slots.read(self.max_seq_len):
            buffer[...] = 0
        self.size, self.padded = 0, False'''}),
    Wrong("exact_undo", "reset clears only the values", says="has cleared the buffers", body={1: '''
        self._slots.values[...] = 0
        self.size, self.padded = 0, False'''}),
    Wrong("exact_undo", "positions stay where they are", says="Positions belong to a row", body={2: '''
        self._slots.reorder(rows, self.size)'''}),
    Wrong("exact_undo", "row after row in place, so a row is read after it was overwritten", says="exchange", body={2: '''
        for i, row in enumerate(rows):
            for array in (*self._slots.read(self.size), self._positions):
                array[i] = array[row]
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)'''}),
    Wrong("exact_undo", "the other way round: row i goes to rows[i]", says="makes both rows what row 1 was", body={2: '''
        for array in (*self._slots.read(self.size), self._positions):
            array[rows] = array.copy()
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)'''}),
    Wrong("exact_undo", "only the keys are moved", says="keys and values", body={2: '''
        keys, values = self._slots.read(self.size)
        keys[...] = keys[rows]
        self._positions = self._positions[rows]
        self.padded = self.padded and not counts_on(self._positions[:, :self.size], 0)'''}),
    Wrong("exact_undo", "padding is noted although its row is gone", says="padded row is gone", body={2: '''
        self._slots.reorder(rows, self.size)
        self._positions = self._positions[rows]'''}),
    Right("exact_undo", "written with loops, and reset through trim", body={
        0: '''
        forgotten = 0
        while forgotten < n:
            self.size = self.size - 1
            forgotten = forgotten + 1
        self.padded = self.positions.tolist() != [list(range(self.size))] * self.batch_size
        return forgotten''',
        1: '''
        self.trim(self.size)''',
        2: '''
        keys, values = (np.take(array, rows, axis=0) for array in self._slots.read(self.size))
        positions = self.positions[rows]
        self.reset()
        if len(positions[0]):
            self.update(keys, values, positions)'''}),

    # Exercise 4: regions are __init__, update
    Wrong("kv_update", "n times the same layer", says="one and the same object", body={0: '''
        self.layers = [layer_cache(batch_size, max_seq_len, num_kv_heads, head_dim, dtype=dtype)] * num_layers'''}),
    Wrong("kv_update", "buffers sized by query heads", says="sized by the 6 query heads", body={0: '''
        self.layers = [layer_cache(batch_size, max_seq_len, num_heads, head_dim, dtype=dtype) for _ in range(num_layers)]'''}),
    Wrong("kv_update", "the policy is ignored", says="made by layer_cache", body={0: '''
        self.layers = [ExactCache(batch_size, max_seq_len, num_kv_heads, head_dim, dtype=dtype) for _ in range(num_layers)]'''}),
    Wrong("kv_update", "the dtype is not passed on", says="dtype that KVCache was given", body={0: '''
        self.layers = [layer_cache(batch_size, max_seq_len, num_kv_heads, head_dim) for _ in range(num_layers)]'''}),
    Wrong("kv_update", "every layer writes to layer 0", says="Does every layer write to the same one", body={1: '''
        layer = self.layers[0]
        staged = layer.size - self.seq_pos
        if staged:
            layer.check(key, value, positions, size=self.seq_pos)
            layer.trim(staged)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "what a broken forward left stays", says="broken forward are still there", body={1: '''
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "committed tokens are thrown away too", says="Committed tokens were thrown away", body={1: '''
        layer.check(key, value, positions, size=0)
        layer.reset()
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "trimmed before it is known whether the new tokens will do", says="before you trim", body={1: '''
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "room is counted as if nothing were held", says="the right size to layer.check", body={1: '''
        layer.check(key, value, positions, size=0)
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "room is counted after the staged tokens", says="Do not count the staged tokens", body={1: '''
        layer.check(key, value, positions)
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "positions are taken before the staged tokens are gone", says="must get the positions 2 and 3", body={1: '''
        key, value, positions = layer.check(key, value, positions)
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "the positions are not passed on", says="lost on the way", body={1: '''
        staged = layer.size - self.seq_pos
        if staged:
            layer.check(key, value, positions, size=self.seq_pos)
            layer.trim(staged)
        return layer.update(key, value)'''}),
    Wrong("kv_update", "given positions are lost where a broken forward had to go", says="rest of a broken forward", body={1: '''
        staged = layer.size - self.seq_pos
        if staged:
            key, value, positions = layer.check(key, value, None, size=self.seq_pos)
            layer.trim(staged)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "an update of one layer trims all of them", says="alone what the others have staged", body={1: '''
        layer.check(key, value, positions, size=self.seq_pos)
        for each in self.layers:
            each.trim(each.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "update commits at once", says="only stages", body={1: '''
        held = layer.update(key, value, positions)
        if layer_idx == len(self.layers) - 1:
            self.seq_pos = layer.size
        return held'''}),
    Wrong("kv_update", "update gives nothing back", says="Is the `return` missing", body={1: '''
        if layer.size > self.seq_pos:
            layer.check(key, value, positions, size=self.seq_pos)
            layer.trim(layer.size - self.seq_pos)
        layer.update(key, value, positions)'''}),
    Wrong("kv_update", "the positions are not looked at before the trim", says="positions for one of two rows", body={1: '''
        if layer.size > self.seq_pos:
            layer.check(key, value, size=self.seq_pos)
            layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "room, shapes and positions are looked at by hand, but not the width", says="a key of width 5", body={1: '''
        T = key.shape[2]
        if layer.max_seq_len is not None and self.seq_pos + T > layer.max_seq_len:
            raise CacheFullError("full")
        if key.shape != value.shape or key.shape[1] != layer.num_kv_heads:
            raise ValueError("shapes")
        if positions is not None and np.shape(positions) != (self.batch_size, T):
            raise ValueError("positions")
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "all is looked at by hand, but the batch", says="a batch of 3", body={1: '''
        T = key.shape[2]
        if layer.max_seq_len is not None and self.seq_pos + T > layer.max_seq_len:
            raise CacheFullError("full")
        if key.shape != value.shape or (key.shape[1], key.shape[3]) != (layer.num_kv_heads, layer.head_dim):
            raise ValueError("shapes")
        if positions is not None and np.shape(positions) != (self.batch_size, T):
            raise ValueError("positions")
        layer.trim(layer.size - self.seq_pos)
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "the size is set instead of trimming", says="does more than set size", body={1: '''
        if layer.size > self.seq_pos:
            key, value, positions = layer.check(key, value, positions, size=self.seq_pos)
            layer.size = self.seq_pos
        return layer.update(key, value, positions)'''}),
    Wrong("kv_update", "staged tokens are counted by length", says="counted by size, not by length", body={1: '''
        staged = layer.length - self.seq_pos
        if staged:
            layer.check(key, value, positions, size=self.seq_pos)
            layer.trim(staged)
        return layer.update(key, value, positions)'''}),
    Right("kv_update", "layers by keywords", body={0: '''
        sizes = dict(batch_size=batch_size, max_seq_len=max_seq_len, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)
        self.layers = [layer_cache(**sizes) for _ in range(num_layers)]'''}),
    Right("kv_update", "layers in a loop, always check and trim", body={
        0: '''
        self.layers = []
        while len(self.layers) < num_layers:
            self.layers.append(layer_cache(batch_size, max_seq_len, num_kv_heads, head_dim, dtype=dtype))''',
        1: '''
        layer.check(key, value, positions, self.seq_pos)
        while layer.size > self.seq_pos:
            layer.trim(1)
        keys, values = layer.update(key, value, positions)
        return keys, values'''}),

    # Exercise 5: regions are get, advance
    Wrong("kv_advance", "get shows what is only staged", says="only staged", body={0: '''
        return layer.read()'''}),
    Wrong("kv_advance", "get throws the staged tokens away", says="must change nothing", body={0: '''
        layer.trim(layer.size - self.seq_pos)
        return layer.read()'''}),
    Wrong("kv_advance", "get takes the last tokens", says="first tokens, not the last", body={0: '''
        keys, values = layer.read()
        return keys[:, :, layer.size - self.seq_pos:], values[:, :, layer.size - self.seq_pos:]'''}),
    Wrong("kv_advance", "get cuts read() at seq_pos, as if every policy held all tokens", says="A slice up to seq_pos", body={0: '''
        keys, values = layer.read()
        return keys[:, :, :self.seq_pos], values[:, :, :self.seq_pos]'''}),
    Wrong("kv_advance", "get counts what is staged by length", says="or a count by length", body={0: '''
        return layer.read(except_last=layer.length - self.seq_pos)'''}),
    Wrong("kv_advance", "get counts what layer 0 has staged", says="what layer 1 itself has staged", body={0: '''
        return layer.read(except_last=self.layers[0].size - self.seq_pos)'''}),
    Wrong("kv_advance", "get gives nothing back", says="Is the `return` missing", body={0: '''
        layer.read(except_last=layer.size - self.seq_pos)'''}),
    Wrong("kv_advance", "get gives the arrays of Slots, which only ExactCache has", says="did you return arrays", body={0: '''
        return layer._slots.read(self.seq_pos)'''}),
    Wrong("kv_advance", "get gives parts of .data", says="did you return arrays", body={0: '''
        keys, values = layer.read()
        return keys.data[:, :, :self.seq_pos], values.data[:, :, :self.seq_pos]'''}),
    Wrong("kv_advance", "nothing is looked at", says="Layer 0 has staged nothing", body={1: '''
        self.seq_pos += num_tokens'''}),
    Wrong("kv_advance", "only the first layer is looked at", says="Look at all layers", body={1: '''
        after = self.seq_pos + num_tokens
        limit = self.layers[0].max_seq_len
        if limit is not None and after > limit:
            raise CacheFullError("past the end")
        if after > self.layers[0].size:
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "only the last layer is looked at", says="Look at all layers", body={1: '''
        after = self.seq_pos + num_tokens
        for layer in self.layers:
            if layer.max_seq_len is not None and after > layer.max_seq_len:
                raise CacheFullError("past the end")
        if after > layer.size:
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "the last slot is never used", says="All 8 slots may be committed", body={1: '''
        after = self.seq_pos + num_tokens
        for layer in self.layers:
            if layer.max_seq_len is not None and after >= layer.max_seq_len:
                raise CacheFullError("past the end")
            if after > layer.size:
                raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "seq_pos moves before the layers are looked at", says="must not change seq_pos", body={1: '''
        self.seq_pos += num_tokens
        for layer in self.layers:
            if layer.max_seq_len is not None and self.seq_pos > layer.max_seq_len:
                raise CacheFullError("past the end")
            if self.seq_pos > layer.size:
                raise ValueError("not staged")'''}),
    Wrong("kv_advance", "one token, however many were asked for", says="After advance(2) seq_pos is", body={1: '''
        after = self.seq_pos + 1
        for layer in self.layers:
            if layer.max_seq_len is not None and self.seq_pos + num_tokens > layer.max_seq_len:
                raise CacheFullError("past the end")
            if self.seq_pos + num_tokens > layer.size:
                raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "all that is staged is committed", says="After advance(2) seq_pos is", body={1: '''
        if any(self.seq_pos + num_tokens > layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = self.layers[0].size'''}),
    Wrong("kv_advance", "seq_pos moves once for every layer", says="After advance(2) seq_pos is", body={1: '''
        if any(self.seq_pos + num_tokens > layer.size for layer in self.layers):
            raise ValueError("not staged")
        for layer in self.layers:
            self.seq_pos += num_tokens'''}),
    Wrong("kv_advance", "what stays staged is thrown away", says="must not change a layer", body={1: '''
        after = self.seq_pos + num_tokens
        for layer in self.layers:
            if layer.max_seq_len is not None and after > layer.max_seq_len:
                raise CacheFullError("past the end")
            if after > layer.size:
                raise ValueError("not staged")
        self.seq_pos = after
        for layer in self.layers:
            layer.trim(layer.size - after)'''}),
    Wrong("kv_advance", "past the end is an error like any other", says="goes past the end", body={1: '''
        after = self.seq_pos + num_tokens
        if after > min(layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "past the end stops silently at the end", says="goes past the end", body={1: '''
        after = min(self.seq_pos + num_tokens, self.layers[0].max_seq_len or self.seq_pos + num_tokens)
        if self.seq_pos + num_tokens <= 8 and after > min(layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "exactly what is staged must be committed", says="may commit 2 of them",
          body={1: advance(missing="any(after != layer.size for layer in self.layers)")}),
    Wrong("kv_advance", "a cache that never fills is not thought of", says="never fill",
          body={1: advance(past="after > self.max_seq_len")}),
    Wrong("kv_advance", "staged tokens are counted by length", says="counted by size",
          body={1: advance(missing="any(after > layer.length for layer in self.layers)")}),
    Wrong("kv_advance", "where no layer fills, nothing is looked at", says="must raise ValueError, not CacheFullError", body={1: '''
        after = self.seq_pos + num_tokens
        if self.max_seq_len is not None:
            if after > self.max_seq_len:
                raise CacheFullError("past the end")
            if any(after > layer.size for layer in self.layers):
                raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "the end of the first layer only", says="layer 1 only 4", body={1: '''
        after = self.seq_pos + num_tokens
        limit = self.layers[0].max_seq_len
        if limit is not None and after > limit:
            raise CacheFullError("past the end")
        if any(after > layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "both questions layer by layer, so what is missing hides the end", says="whatever is staged", body={1: '''
        after = self.seq_pos + num_tokens
        for layer in self.layers:
            if layer.max_seq_len is not None and after > layer.max_seq_len:
                raise CacheFullError("past the end")
            if after > layer.size:
                raise ValueError("not staged")
        self.seq_pos = after'''}),
    Right("kv_advance", "with min and a name for what is staged", body={
        0: '''
        staged = layer.size - self.seq_pos
        keys, values = layer.read(staged)
        return keys, values''',
        1: '''
        limits = [layer.max_seq_len for layer in self.layers if layer.max_seq_len is not None]
        if limits and self.seq_pos + num_tokens > min(limits):
            raise CacheFullError("The cache ends before that.")
        if num_tokens > min(layer.size - self.seq_pos for layer in self.layers):
            raise ValueError("Some layer has not staged so many tokens.")
        self.seq_pos += num_tokens'''}),

    # Exercise 6
    Wrong("cache_bytes", "only the keys", says="not 4", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * np.dtype(dtype).itemsize'''),
    Wrong("cache_bytes", "numbers, not bytes", says="not 2", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim'''),
    Wrong("cache_bytes", "always 4 bytes", says="float16 number takes 2 bytes", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * 4'''),
    Wrong("cache_bytes", "2 or 4 bytes, but never 8", says="float64 number takes 8 bytes", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * (2 if dtype == np.float16 else 4)'''),
    Wrong("cache_bytes", "a float", says="counted in whole numbers", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * (np.finfo(dtype).bits / 8)'''),
    Wrong("cache_bytes", "sized by query heads", says="not the query heads", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_heads * head_dim * np.dtype(dtype).itemsize'''),
    Wrong("cache_bytes", "one row, however large the batch", says="Each of the 3 rows", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * max_seq_len * num_layers * num_kv_heads * head_dim * np.dtype(dtype).itemsize'''),
    Wrong("cache_bytes", "one layer", says="2 layers", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_kv_heads * head_dim * np.dtype(dtype).itemsize'''),
    Wrong("cache_bytes", "query heads take part", says="5120 bytes", body='''
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        return 2 * batch_size * max_seq_len * num_layers * (num_heads // num_kv_heads) * head_dim * np.dtype(dtype).itemsize'''),
    Wrong("cache_bytes", "the numbers of the visible check by heart", says="Work it out from the arguments", body='''
        known = {(1, 1, 1, 1, None, 4): 8, (1, 1, 1, 1, None, 2): 4, (1, 1, 1, 1, None, 8): 16, (1, 10, 8, 16, 2, 4): 5120,
                 (1, 10, 8, 16, None, 4): 20480, (3, 10, 8, 16, 2, 4): 15360}
        sizes = (batch_size, max_seq_len, num_heads, head_dim, num_kv_heads, np.dtype(dtype).itemsize)
        return known.get(sizes, 655_360_000_000_000)'''),
    Wrong("cache_bytes", "a cache is made and asked", says="not made", body='''
        cache = KVCache(batch_size, max_seq_len, num_layers, num_heads, head_dim, num_kv_heads=num_kv_heads, dtype=dtype)
        return sum(layer.nbytes for layer in cache.layers)'''),
    Right("cache_bytes", "as the size of one layer's token, times the rest", body='''
        heads = num_kv_heads or num_heads
        of_one_token = sum(np.zeros((heads, head_dim), dtype).nbytes for _ in ("key", "value"))
        total = 0
        for _ in range(num_layers):
            total += of_one_token * max_seq_len * batch_size
        return total'''),
]
