"""What people really write in lesson 06, the KV cache, and right answers written another way."""
from tests.misconceptions import Right, Wrong

ANSWERS = [
    # Exercise 1: regions are write, read
    Wrong("slots", "key stored as value", says="mixed up", body={0: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = value
        self.values[:, :, start:stop] = key'''}),
    Wrong("slots", "the key is stored twice", says="mixed up", body={0: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = self.values[:, :, start:stop] = key'''}),
    Wrong("slots", "every write lands at slot 0", says="landed at slot 0", body={0: '''
        self.keys[:, :, :key.shape[2]] = key
        self.values[:, :, :key.shape[2]] = value'''}),
    Wrong("slots", "the first token is never stored", says="first write", body={0: '''
        stop = start + key.shape[2]
        self.keys[:, :, start + 1:stop] = key[:, :, 1:]
        self.values[:, :, start + 1:stop] = value[:, :, 1:]'''}),
    Wrong("slots", "only one token of several is stored", says="first write", body={0: '''
        self.keys[:, :, start] = key[:, :, -1]
        self.values[:, :, start] = value[:, :, -1]'''}),
    Wrong("slots", "the buffer grows by concatenation", says="replaced the buffer", body={0: '''
        self.keys = np.concatenate([self.keys[:, :, :start], key], axis=2)
        self.values = np.concatenate([self.values[:, :, :start], value], axis=2)'''}),
    Wrong("slots", "concatenation to a stale reference: nothing is stored", says="first write", body={0: '''
        keys, values = self.keys[:, :, :start], self.values[:, :, :start]
        keys = np.concatenate([keys, key], axis=2)
        values = np.concatenate([values, value], axis=2)'''}),
    Wrong("slots", "new tokens are added to what the slots hold", says="must replace what the slots held", body={0: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] += key
        self.values[:, :, start:stop] += value'''}),
    Wrong("slots", "values behind the new tokens are written too", says="slots behind the tokens", body={0: '''
        stop = start + key.shape[2]
        self.keys[:, :, start:stop] = key
        self.values[:, :, start:] = value[:, :, -1:]
        self.values[:, :, start:stop] = value'''}),
    Wrong("slots", "unwritten zeros are read too", says="attention would give these zeros a share", body={1: '''
        return self.keys, self.values'''}),
    Wrong("slots", "one slot too few is read", says="must give 5 of the 8 slots", body={1: '''
        return self.keys[:, :, :stop - 1], self.values[:, :, :stop - 1]'''}),
    Wrong("slots", "the rows of the batch are cut, not the slots", says="must give 5 of the 8 slots", body={1: '''
        return self.keys[:stop], self.values[:stop]'''}),
    Wrong("slots", "read copies", says="views", body={1: '''
        return self.keys[:, :, :stop].copy(), self.values[:, :, :stop].copy()'''}),
    Wrong("slots", "read gives nothing back", says="Is the `return` missing", body={1: '''
        self.keys[:, :, :stop], self.values[:, :, :stop]'''}),
    Wrong("slots", "read gives the keys alone", says="must return two arrays", body={1: '''
        return self.keys[:, :, :stop]'''}),
    Right("slots", "token by token, with copyto", body={
        0: '''
        for t in range(key.shape[2]):
            np.copyto(self.keys[:, :, start + t], key[:, :, t])
            np.copyto(self.values[:, :, start + t], value[:, :, t])''',
        1: '''
        filled = slice(0, stop)
        return tuple(buffer[:, :, filled, :] for buffer in (self.keys, self.values))'''}),

    # Exercise 2: regions are next_positions, update
    Wrong("exact_update", "padding counts as tokens", says="padding is none", body={0: '''
        start = np.full(self.batch_size, held.shape[1])'''}),
    Wrong("exact_update", "the largest position of the whole batch for every row", says="Each row counts its own tokens", body={0: '''
        start = np.full(self.batch_size, held.max(initial=-1) + 1)'''}),
    Wrong("exact_update", "one number for all rows", says="`start` is an array with one number for each row", body={0: '''
        start = held.max() + 1'''}),
    Wrong("exact_update", "a list of one number for each row", says="`start` is an array with one number for each row", body={0: '''
        start = [max(row) + 1 for row in held]'''}),
    Wrong("exact_update", "the last position is given twice", says="go on with", body={0: '''
        start = held.max(axis=1, initial=0)'''}),
    Wrong("exact_update", "staged slots count for the next positions", says="except_last", body={0: '''
        start = self.positions.max(axis=1, initial=-1) + 1'''}),
    Wrong("exact_update", "a row of nothing but padding starts at -1 + 2", says="nothing but padding", body={0: '''
        start = held.max(axis=1, initial=0) + 1'''}),
    Wrong("exact_update", "no slot is left after a broken forward", says="when a forward with padding broke off", body={0: '''
        start = held.max(axis=1) + 1'''}),
    Wrong("exact_update", "only -1 is padding", says="Every negative position is padding", body={0: '''
        start = held.max(axis=1) + 1 if held.size else np.zeros(self.batch_size, int)'''}),
    Wrong("exact_update", "zeros without a dtype are filled row by row", says="for a padded layer next_positions gave float64",
          body={0: '''
        start = np.zeros(self.batch_size)
        for b, row in enumerate(held):
            start[b] = row.max(initial=-1) + 1'''}),
    Wrong("exact_update", "the next position is the number of tokens, not the largest plus one", says="largest position plus one",
          body={0: '''
        start = (held >= 0).sum(axis=1)'''}),
    Wrong("exact_update", "the last position plus one, not the largest", says="need not be the largest", body={0: '''
        start = np.maximum(held[:, -1], -1) + 1 if held.size else np.zeros(self.batch_size, int)'''}),
    Wrong("exact_update", "the current token is left out of its own attention", says="part of what their own queries see",
          body={1: '''
        held = self.read()
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return held'''}),
    Wrong("exact_update", "the size moves after what is returned was read", says="part of what their own queries see", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        found = self.read()
        self.size = stop
        return found'''}),
    Wrong("exact_update", "the current token is left out in decode only", says="current token is missing", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return self.read(except_last=1 if start else 0)'''}),
    Wrong("exact_update", "the size stays", says="After three tokens size is 0", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        return self.read()'''}),
    Wrong("exact_update", "one token, however many come", says="After three tokens size is 1", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size += 1
        return self.read()'''}),
    Wrong("exact_update", "the first token is never stored", says="first token is not in slot 0", body={1: '''
        self._slots.write(start + 1, key[:, :, :self.max_seq_len - start - 1], value[:, :, :self.max_seq_len - start - 1])
        self._positions[:, start:stop] = positions
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "only the new tokens come back", says="one token only", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return Tensor(key, dtype=self.dtype), Tensor(value, dtype=self.dtype)'''}),
    Wrong("exact_update", "all slots come back, the unwritten zeros too", says="must return (2, 3, 3, 4)", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return record(self._slots.keys, None), record(self._slots.values, None)'''}),
    Wrong("exact_update", "key stored as value", says="mixed up", body={1: '''
        self._slots.write(start, value, key)
        self._positions[:, start:stop] = positions
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "the buffer grows by concatenation", says="replaced by new arrays", body={1: '''
        self._slots.keys = np.concatenate([self._slots.keys[:, :, :start], key], axis=2)
        self._slots.values = np.concatenate([self._slots.values[:, :, :start], value], axis=2)
        self._positions[:, start:stop] = positions
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "concatenation to a stale reference: what is returned is right once", says="in their order", body={1: '''
        keys, values = self.read()
        self._positions[:, start:stop] = positions
        self.size = stop
        return (Tensor(np.concatenate([keys.data, key], axis=2)), Tensor(np.concatenate([values.data, value], axis=2)))'''}),
    Wrong("exact_update", "positions of each call from 0: the mask is aligned to the top left", says="mask is aligned wrongly",
          body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = np.arange(key.shape[2])
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "positions are forgotten", says="mask is aligned wrongly", body={1: '''
        self._slots.write(start, key, value)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "slot numbers stored as positions", says="positions that update() was given", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = np.arange(start, stop)
        self.size = stop
        return self.read()'''}),
    Wrong("exact_update", "update gives nothing back", says="Is the `return` missing", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop'''}),
    Wrong("exact_update", "update gives the arrays of Slots", says="did you return arrays", body={1: '''
        self._slots.write(start, key, value)
        self._positions[:, start:stop] = positions
        self.size = stop
        return self._slots.read(stop)'''}),
    Right("exact_update", "rows and tokens one by one", body={
        0: '''
        for b in range(self.batch_size):
            start[b] = 0
            for position in held[b]:
                start[b] = max(start[b], position + 1)''',
        1: '''
        for t in range(key.shape[2]):
            self._slots.write(self.size, key[:, :, t:t + 1], value[:, :, t:t + 1])
            self._positions[:, self.size] = positions[:, t]
            self.size += 1
        return self.read()'''}),
    Right("exact_update", "a column of zeros for empty rows; size first, then slots counted from the end", body={
        0: '''
        start = np.maximum(0, np.max(np.pad(held, ((0, 0), (1, 0)), constant_values=-1), axis=1) + 1)''',
        1: '''
        new = key.shape[2]
        self.size += new
        self._slots.keys[:, :, self.size - new:self.size] = key
        self._slots.values[:, :, self.size - new:self.size] = value
        self._positions[:, self.size - new:self.size] = positions
        return self.read()'''}),

    # Exercise 3: regions are trim, reset, reorder
    Wrong("exact_undo", "trim keeps n instead of forgetting n", says="5 tokens without the last 2 are 3", body={0: '''
        self.size = n'''}),
    Wrong("exact_undo", "trim changes n", says="Leave n as it is", body={0: '''
        n = self.size - n
        self.size = n'''}),
    Wrong("exact_undo", "trim forgets the first tokens", says="keep the first", body={0: '''
        keys, values = (array.copy() for array in self._slots.read(self.size))
        self._positions[:, :self.size - n] = self._positions[:, n:self.size].copy()
        self._slots.write(0, keys[:, :, n:], values[:, :, n:])
        self.size -= n'''}),
    Wrong("exact_undo", "trim clears what it forgets", says="has cleared the slots", body={0: '''
        for buffer in self._slots.read(self.size):
            buffer[:, :, self.size - n:] = 0
        self.size -= n'''}),
    Wrong("exact_undo", "trim clears only the values", says="has cleared the slots", body={0: '''
        self._slots.values[:, :, self.size - n:] = 0
        self.size -= n'''}),
    Wrong("exact_undo", "trim returns early, so trimmed padding is still noted", says="do not return", body={0: '''
        self.size -= n
        return n'''}),
    Wrong("exact_undo", "trim cuts the positions", says="a column for every slot", body={0: '''
        self.size -= n
        self._positions = self._positions[:, :self.size]'''}),
    Wrong("exact_undo", "trim makes smaller buffers", says="new buffers", body={0: '''
        self.size -= n
        keys, values = self._slots.read(self.size)
        self._slots = Slots(self.batch_size, self.max_seq_len, self.num_kv_heads, self.head_dim, self.dtype)
        self._slots.write(0, keys, values)'''}),
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
    Wrong("exact_undo", "the rows of a copy are moved", says="only a copy", body={2: '''
        self._slots.reorder(rows, self.size)
        self.positions[...] = self.positions[rows]'''}),
    Wrong("exact_undo", "positions of unfilled slots are lost", says="a column for every slot", body={2: '''
        self._slots.reorder(rows, self.size)
        self._positions = self.positions[rows]'''}),
    Wrong("exact_undo", "row after row in place, so a row is read after it was overwritten", says="exchange", body={2: '''
        for i, row in enumerate(rows):
            for array in (*self._slots.read(self.size), self._positions):
                array[i] = array[row]'''}),
    Wrong("exact_undo", "the other way round: row i goes to rows[i]", says="makes both rows what row 1 was", body={2: '''
        for array in (*self._slots.read(self.size), self._positions):
            array[rows] = array.copy()'''}),
    Wrong("exact_undo", "only the keys are moved", says="keys and values", body={2: '''
        keys, values = self._slots.read(self.size)
        keys[...] = keys[rows]
        self._positions = self._positions[rows]'''}),
    Wrong("exact_undo", "only the positions are moved", says="keys and values", body={2: '''
        self._positions = self._positions[rows]'''}),
    Right("exact_undo", "written with loops, and reset through trim", body={
        0: '''
        for _ in range(n):
            self.size = self.size - 1''',
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
    Wrong("kv_update", "room is counted as if only the staged tokens were held", says="Do not count the staged tokens", body={1: '''
        layer.check(key, value, positions, size=layer.size - self.seq_pos)
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
    Wrong("kv_advance", "nothing is looked at", says="Layer 0 has staged one token", body={1: '''
        self.seq_pos += num_tokens'''}),
    Wrong("kv_advance", "only the first layer is looked at", says="Look at all layers", body={1: '''
        if after > self.layers[0].size:
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "only the last layer is looked at", says="Look at all layers", body={1: '''
        for layer in self.layers:
            pass
        if after > layer.size:
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "any layer is enough", says="Look at all layers", body={1: '''
        if after > max(layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "any staged token is enough", says="Look at all layers", body={1: '''
        if any(layer.size <= self.seq_pos for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "the layers must have staged equally many", says="in layer 0 a fourth one too", body={1: '''
        if len({layer.size for layer in self.layers}) > 1 or after > self.layers[0].size:
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "missing tokens raise the error of a full cache", says="only tokens are missing", body={1: '''
        if any(after > layer.size for layer in self.layers):
            raise CacheFullError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "what is missing ends in silence", says="must raise ValueError", body={1: '''
        if all(after <= layer.size for layer in self.layers):
            self.seq_pos = after'''}),
    Wrong("kv_advance", "the error is returned, not raised", says="must raise ValueError", body={1: '''
        if any(after > layer.size for layer in self.layers):
            return ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "seq_pos moves before the layers are looked at", says="must not change seq_pos", body={1: '''
        self.seq_pos = after
        for layer in self.layers:
            if self.seq_pos > layer.size:
                raise ValueError("not staged")'''}),
    Wrong("kv_advance", "seq_pos moves in the loop, so the first layers have moved it", says="must not change seq_pos", body={1: '''
        for layer in self.layers:
            if after > layer.size:
                raise ValueError("not staged")
            self.seq_pos = after'''}),
    Wrong("kv_advance", "one token, however many were asked for", says="After advance(2) seq_pos is", body={1: '''
        for layer in self.layers:
            if after > layer.size:
                raise ValueError("not staged")
        self.seq_pos += 1'''}),
    Wrong("kv_advance", "all that is staged is committed", says="After advance(2) seq_pos is", body={1: '''
        if any(after > layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = self.layers[0].size'''}),
    Wrong("kv_advance", "seq_pos moves once for every layer", says="After advance(2) seq_pos is", body={1: '''
        if any(after > layer.size for layer in self.layers):
            raise ValueError("not staged")
        for layer in self.layers:
            self.seq_pos += num_tokens'''}),
    Wrong("kv_advance", "the tokens are compared with the size, as if nothing were committed", says="Nothing is staged any more",
          body={1: '''
        if any(num_tokens > layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "the last staged token is never committed", says="The third token is staged in every layer", body={1: '''
        if any(after >= layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "what stays staged is thrown away", says="must not change a layer", body={1: '''
        for layer in self.layers:
            if after > layer.size:
                raise ValueError("not staged")
        self.seq_pos = after
        for layer in self.layers:
            layer.trim(layer.size - after)'''}),
    Wrong("kv_advance", "exactly what is staged must be committed", says="may commit 2 of them", body={1: '''
        if any(after != layer.size for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Wrong("kv_advance", "staged tokens are counted by length", says="counted by size", body={1: '''
        if any(after > layer.length for layer in self.layers):
            raise ValueError("not staged")
        self.seq_pos = after'''}),
    Right("kv_advance", "with min and a name for what is staged", body={
        0: '''
        staged = layer.size - self.seq_pos
        keys, values = layer.read(staged)
        return keys, values''',
        1: '''
        if num_tokens > min(layer.size - self.seq_pos for layer in self.layers):
            raise ValueError("Some layer has not staged so many tokens.")
        self.seq_pos += num_tokens'''}),

    # Exercise 6
    Wrong("cache_bytes", "only the keys", says="not 4", body='''
        return batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * dtype.itemsize'''),
    Wrong("cache_bytes", "numbers, not bytes", says="not 2", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim'''),
    Wrong("cache_bytes", "always 4 bytes", says="float16 number takes 2 bytes", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * 4'''),
    Wrong("cache_bytes", "2 or 4 bytes, but never 8", says="float64 number takes 8 bytes", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * (2 if dtype == np.float16 else 4)'''),
    Wrong("cache_bytes", "a float", says="counted in whole numbers", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_kv_heads * head_dim * (np.finfo(dtype).bits / 8)'''),
    Wrong("cache_bytes", "sized by query heads", says="not the query heads", body='''
        return 2 * batch_size * max_seq_len * num_layers * num_heads * head_dim * dtype.itemsize'''),
    Wrong("cache_bytes", "one row, however large the batch", says="Each of the 3 rows", body='''
        return 2 * max_seq_len * num_layers * num_kv_heads * head_dim * dtype.itemsize'''),
    Wrong("cache_bytes", "one layer", says="2 layers", body='''
        return 2 * batch_size * max_seq_len * num_kv_heads * head_dim * dtype.itemsize'''),
    Wrong("cache_bytes", "query heads take part", says="5120 bytes", body='''
        return 2 * batch_size * max_seq_len * num_layers * (num_heads // num_kv_heads) * head_dim * dtype.itemsize'''),
    Wrong("cache_bytes", "the numbers of the visible check by heart", says="Work it out from the arguments", body='''
        known = {(1, 1, 1, 1, 1, 4): 8, (1, 1, 1, 1, 1, 2): 4, (1, 1, 1, 1, 1, 8): 16, (1, 10, 8, 16, 2, 4): 5120,
                 (3, 10, 8, 16, 2, 4): 15360}
        sizes = (batch_size, max_seq_len, num_heads, head_dim, num_kv_heads, dtype.itemsize)
        return known.get(sizes, 655_360_000_000_000)'''),
    Wrong("cache_bytes", "a cache is made and asked", says="not made", body='''
        cache = KVCache(batch_size, max_seq_len, num_layers, num_heads, head_dim, num_kv_heads=num_kv_heads, dtype=dtype)
        return sum(layer.nbytes for layer in cache.layers)'''),
    Right("cache_bytes", "as the size of one layer's token, times the rest", body='''
        of_one_token = sum(np.zeros((num_kv_heads, head_dim), dtype).nbytes for _ in ("key", "value"))
        total = 0
        for _ in range(num_layers):
            total += of_one_token * max_seq_len * batch_size
        return total'''),
]
