"""Answers to the exercises of lesson 01."""
from tests.misconceptions import Right, Wrong


def step(mark="visited.add(id(node))", again="stack.append((node, True))",
         parents="stack.extend((parent, False) for parent in node._parents if parent.requires_grad)", add="order.append(node)"):
    """What topological_order does with one entry of the stack, with one part that is another."""
    return f'''
if parents_done:
    {add}
elif id(node) not in visited:
    {mark}
    {again}
    {parents}
'''


ANSWERS = [
    # unbroadcast
    Wrong("unbroadcast", "sums only the axes in front", says="keepdims", body='''
while grad.ndim > len(shape):
    grad = grad.sum(axis=0)
return grad
'''),
    Wrong("unbroadcast", "sums only the stretched axes", says="in front", body='''
for axis in range(1, len(shape) + 1):
    if shape[-axis] == 1:
        grad = grad.sum(axis=-axis, keepdims=True)
return grad
'''),
    Wrong("unbroadcast", "forgets that a stretched axis stays", says="stay with length 1", body='''
front = grad.ndim - len(shape)
axes = tuple(range(front)) + tuple(front + i for i, n in enumerate(shape) if n == 1)
return grad.sum(axis=axes)
'''),
    Wrong("unbroadcast", "mean in place of sum", says="take the sum", body='''
front = grad.ndim - len(shape)
axes = tuple(range(front)) + tuple(front + i for i, n in enumerate(shape) if n == 1)
return grad.mean(axis=axes).reshape(shape)
'''),
    Wrong("unbroadcast", "lines shapes up at the first axis", says="line up at the last axis", body='''
while grad.ndim > len(shape):
    grad = grad.sum(axis=-1)
for axis, n in enumerate(shape):
    if n == 1:
        grad = grad.sum(axis=axis, keepdims=True)
return grad
'''),
    Wrong("unbroadcast", "takes one of the copies", says="must be summed away", body='''
while grad.ndim > len(shape):
    grad = grad[0]
for axis, n in enumerate(shape):
    if n == 1:
        grad = grad.take([0], axis=axis)
return grad
'''),
    Wrong("unbroadcast", "reshapes", says="must be summed away", body='''
return grad.reshape(shape)
'''),
    Wrong("unbroadcast", "float64 zeros to add to", says="np.zeros needs dtype=grad.dtype", body='''
out = np.zeros(shape)
padded = (1,) * (grad.ndim - len(shape)) + shape
view = out.reshape(padded)
for index in np.ndindex(grad.shape):
    view[tuple(0 if n == 1 else i for i, n in zip(index, padded))] += grad[index]
return out
'''),
    Wrong("unbroadcast", "forgets to return", says="`return` is missing", body='''
while grad.ndim > len(shape):
    grad = grad.sum(axis=0)
for axis, n in enumerate(shape):
    if n == 1:
        grad = grad.sum(axis=axis, keepdims=True)
'''),
    Wrong("unbroadcast", "returns a list", says="an array should come back, but list came", body='''
while grad.ndim > len(shape):
    grad = grad.sum(axis=0)
for axis, n in enumerate(shape):
    if n == 1:
        grad = grad.sum(axis=axis, keepdims=True)
return grad.tolist()
'''),
    Right("unbroadcast", "one axis after the other", body='''
while grad.ndim > len(shape):
    grad = grad.sum(axis=0)
for axis, n in enumerate(shape):
    if n == 1:
        grad = grad.sum(axis=axis, keepdims=True)
return grad
'''),
    Right("unbroadcast", "by definition, element by element", body='''
out = np.zeros(shape, dtype=grad.dtype)
padded = (1,) * (grad.ndim - len(shape)) + shape
view = out.reshape(padded)
for index in np.ndindex(grad.shape):
    view[tuple(0 if n == 1 else i for i, n in zip(index, padded))] += grad[index]
return out
'''),

    # backward: region 0 is one step of the order, region 1 the loop
    Wrong("backward", "does not remember what it visited", says="Each tensor belongs into the order once", body={0: step(mark="pass")}),
    Wrong("backward", "looks for repeats only when it adds", says="must not grow with the number of paths", body={0: '''
if parents_done:
    if id(node) not in visited:
        visited.add(id(node))
        order.append(node)
else:
    stack.append((node, True))
    stack.extend((parent, False) for parent in node._parents if parent.requires_grad)
'''}),
    Wrong("backward", "visited as soon as it is on the stack", says="parents before children", body={0: '''
if parents_done:
    order.append(node)
else:
    stack.append((node, True))
    for parent in node._parents:
        if parent.requires_grad and id(parent) not in visited:
            visited.add(id(parent))
            stack.append((parent, False))
'''}),
    Wrong("backward", "itself on top of its parents", says="parents before children", body={0: '''
if parents_done:
    order.append(node)
elif id(node) not in visited:
    visited.add(id(node))
    for parent in node._parents:
        if parent.requires_grad:
            stack.append((parent, False))
    stack.append((node, True))
'''}),
    Wrong("backward", "adds a tensor when it comes to it", says="parents before children", body={0: '''
if id(node) not in visited:
    visited.add(id(node))
    order.append(node)
    stack.extend((parent, False) for parent in node._parents if parent.requires_grad)
'''}),
    Wrong("backward", "does not put the tensor back", says="it is []", body={0: step(again="pass")}),
    Wrong("backward", "looks at visited before parents_done", says="it is []", body={0: '''
if id(node) not in visited:
    visited.add(id(node))
    if parents_done:
        order.append(node)
    else:
        stack.append((node, True))
        stack.extend((parent, False) for parent in node._parents if parent.requires_grad)
'''}),
    Wrong("backward", "True for the parents in place of itself", says="with True it is added",
          body={0: step(again="stack.append((node, False))", parents="stack.extend((parent, True) for parent in node._parents "
                             "if parent.requires_grad)")}),
    Wrong("backward", "does not go on to the parents", says="it is ['result']", body={0: step(parents="pass")}),
    Wrong("backward", "parents without a mark", says="(tensor, parents_done)",
          body={0: step(parents="stack.extend(parent for parent in node._parents if parent.requires_grad)")}),
    Wrong("backward", "puts the ids into the order", says="x, a, b, c and the result must be there",
          body={0: step(add="order.append(id(node))")}),
    Wrong("backward", "walks into constants", says="requires_grad=False is not part",
          body={0: step(parents="stack.extend((parent, False) for parent in node._parents)")}),
    Wrong("backward", "children before parents", says="parents before children", body={0: step(add="order.insert(0, node)")}),
    Wrong("backward", "returns after the first", says="it is ['x']", body={0: step(add="order.append(node)\n    return order")}),
    Wrong("backward", "overwrites what has arrived", says="must not overwrite", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            grads[id(parent)] = part
'''}),
    Wrong("backward", "adds in place", says="in place", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            if id(parent) in grads:
                grads[id(parent)] += part
            else:
                grads[id(parent)] = part
'''}),
    Wrong("backward", "walks forward", says="reversed, from the result to the leaves", body={1: '''
for node in order:
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            seen = grads.get(id(parent))
            grads[id(parent)] = part if seen is None else seen + part
'''}),
    Wrong("backward", "calls the way back itself, and adds None for a constant", says="what parent_gradients yields", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in zip(node._parents, node._backward(grads[id(node)])):
            grads[id(parent)] = grads.get(id(parent), 0) + part
'''}),
    Wrong("backward", "takes leaves out, too", says="leave its entry in grads", body={1: '''
for node in reversed(order):
    arrived = grads.pop(id(node))
    if node._backward is not None:
        for parent, part in parent_gradients(node, arrived):
            grads[id(parent)] = grads.get(id(parent), 0) + part
'''}),
    Wrong("backward", "does not skip leaves", says="skip it", body={1: '''
for node in reversed(order):
    for parent, part in parent_gradients(node, grads[id(node)]):
        grads[id(parent)] = grads.get(id(parent), 0) + part
'''}),
    Wrong("backward", "fills .grad in the loop", says="the lines below the loop fill .grad", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            grads[id(parent)] = grads.get(id(parent), 0) + part
            if parent._backward is None:
                parent.grad = grads[id(parent)]
'''}),
    Wrong("backward", "adds to an entry that is not there yet", says="no entry in grads before something has arrived", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            grads[id(parent)] = grads[id(parent)] + part
'''}),
    Wrong("backward", "passes on ones in place of what arrived", says="multiplies what arrived", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, np.ones_like(node.data)):
            seen = grads.get(id(parent))
            grads[id(parent)] = part if seen is None else seen + part
'''}),
    Wrong("backward", "goes down every path", says="used more than once", body={1: '''
stack = [(self, grad)]
while stack:
    node, arrived = stack.pop()
    if node._backward is not None:
        for parent, part in parent_gradients(node, arrived):
            grads[id(parent)] = grads.get(id(parent), 0) + part
            stack.append((parent, part))
'''}),
    Wrong("backward", "keeps gradients on every tensor", says="Only leaves keep a gradient", body={1: '''
for node in reversed(order):
    node.grad = grads[id(node)] if node._backward is not None else node.grad
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            seen = grads.get(id(parent))
            grads[id(parent)] = part if seen is None else seen + part
'''}),
    Wrong("backward", "float64 zeros to add to", says="np.zeros makes float64 unless told otherwise", body={1: '''
for node in reversed(order):
    if node._backward is not None:
        for parent, part in parent_gradients(node, grads[id(node)]):
            grads[id(parent)] = grads.get(id(parent), np.zeros(parent.shape)) + part
'''}),
    Right("backward", "a set of the tensors themselves, looked at twice", body={0: '''
if not parents_done:
    if node in visited:
        continue
    visited |= {node}
    stack += [(node, True)]
    for parent in reversed(node._parents):
        if parent.requires_grad and parent not in visited:
            stack += [(parent, False)]
    continue
order += [node]
'''}),
    Right("backward", "waits until all parents are in the order", body={0: '''
waiting = [parent for parent in node._parents if parent.requires_grad and id(parent) not in visited]
if waiting:
    stack.append((node, False))
    for parent in waiting:
        stack.append((parent, False))
elif id(node) not in visited:
    visited.add(id(node))
    order.append(node)
''', 1: '''
arrived = {id(self): [grad]}
for node in order[::-1]:
    total = arrived[id(node)][0].copy()
    for part in arrived[id(node)][1:]:
        total += part
    grads[id(node)] = total
    if node._backward:
        for parent, part in parent_gradients(node, total):
            arrived.setdefault(id(parent), []).append(part)
'''}),

    # multiply
    Wrong("multiply", "each operand times itself", says="times the other operand", body='''
def backward(grad):
    return unbroadcast(grad * self.data, self.shape), unbroadcast(grad * other.data, other.shape)
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "forgets the gradient that arrives", says="times the other operand", body='''
def backward(grad):
    ones = np.ones_like(grad)
    return unbroadcast(ones * other.data, self.shape), unbroadcast(ones * self.data, other.shape)
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "forgets broadcasting", says="use unbroadcast", body='''
def backward(grad):
    return grad * other.data, grad * self.data
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "summed before it is multiplied", says="use unbroadcast last", body='''
def backward(grad):
    return unbroadcast(grad, self.shape) * other.data, unbroadcast(grad, other.shape) * self.data
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "the shapes exchanged", says="each operand's own shape", body='''
def backward(grad):
    return unbroadcast(grad * other.data, other.shape), unbroadcast(grad * self.data, self.shape)
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "the product divided by the operand", says="it may be 0", body='''
product = self.data * other.data
def backward(grad):
    with np.errstate(all="ignore"):
        return unbroadcast(grad * product / self.data, self.shape), unbroadcast(grad * product / other.data, other.shape)
return record(product, backward, self, other)
'''),
    Wrong("multiply", "not recorded", says="does not know its parents", body='''
return Tensor(self.data * other.data, dtype=self.dtype)
'''),
    Wrong("multiply", "only one parent", says="Both operands are parents", body='''
def backward(grad):
    return (unbroadcast(grad * other.data, self.shape),)
return record(self.data * other.data, backward, self)
'''),
    Wrong("multiply", "writes into the gradient", says="writes into the gradient", body='''
def backward(grad):
    second = unbroadcast(grad * self.data, other.shape)
    grad *= other.data
    return unbroadcast(grad, self.shape), second
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "passes the gradient on as a sum does", says="times the other operand", body='''
def backward(grad):
    return unbroadcast(grad, self.shape), unbroadcast(grad, other.shape)
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "float64 on the way back", says="the gradient is float64", body='''
def backward(grad):
    return (unbroadcast(np.ones(self.shape) * grad * other.data, self.shape),
            unbroadcast(np.ones(other.shape) * grad * self.data, other.shape))
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "one product kept in the operand", says="an operand has been changed", body='''
def backward(grad):
    mine = unbroadcast(grad * other.data, self.shape)
    yours = unbroadcast(grad * self.data, other.shape)
    other.data[...] = yours
    return mine, yours
return record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "forgets to return", says="`return` is missing", body='''
def backward(grad):
    return unbroadcast(grad * other.data, self.shape), unbroadcast(grad * self.data, other.shape)
record(self.data * other.data, backward, self, other)
'''),
    Wrong("multiply", "both parents in one tuple", says="with the parents one by one", body='''
def backward(grad):
    return unbroadcast(grad * other.data, self.shape), unbroadcast(grad * self.data, other.shape)
return record(self.data * other.data, backward, (self, other))
'''),
    Wrong("multiply", "records a Tensor", says="record takes the bare array", body='''
def backward(grad):
    return unbroadcast(grad * other.data, self.shape), unbroadcast(grad * self.data, other.shape)
return record(Tensor(self.data * other.data), backward, self, other)
'''),
    Right("multiply", "two small functions and a copy", body='''
left, right = self.data, other.data
def by_left(grad):
    return unbroadcast(np.multiply(grad, right), left.shape)
def by_right(grad):
    return unbroadcast(np.multiply(grad, left), right.shape)
return record(np.multiply(left, right), lambda grad: (by_left(grad), by_right(grad)), self, other)
'''),
    Right("multiply", "None where no gradient is needed", body='''
def backward(grad):
    mine = unbroadcast(other.data * grad, self.shape) if self.requires_grad else None
    yours = unbroadcast(self.data * grad, other.shape) if other.requires_grad else None
    return mine, yours
return record(other.data * self.data, backward, self, other)
'''),

    # reductions: region 0 is the way back of sum, region 1 that of max
    Wrong("reductions", "broadcasts the gradient as it is", says="put it back with length 1", body={0: '''
return (np.broadcast_to(grad, self.shape),)
'''}),
    Wrong("reductions", "ones in place of the gradient", says="not 1", body={0: '''
return (np.ones_like(self.data),)
'''}),
    Wrong("reductions", "shares the gradient as a mean does", says="not a share", body={0: '''
return (np.broadcast_to(grad.reshape(kept_shape(self.shape, axis)), self.shape) * (grad.size / self.size),)
'''}),
    Wrong("reductions", "puts back an axis that is there", says="With keepdims the axis is already there", body={0: '''
if axis is None:
    return (np.full_like(self.data, grad),)
return (np.broadcast_to(np.expand_dims(grad, axis), self.shape),)
'''}),
    Wrong("reductions", "only one axis at a time", says="tuples of axes must work", body={0: '''
if axis is None:
    return (np.ones_like(self.data) * grad,)
if not keepdims:
    grad = np.expand_dims(grad, int(axis))
return (np.ones_like(self.data) * grad,)
'''}),
    Wrong("reductions", "np.repeat along an axis, as if there were always one", says="axis=None", body={0: '''
if not keepdims:
    grad = np.expand_dims(grad, axis)
return (np.repeat(grad, self.shape[axis], axis),)
'''}),
    Wrong("reductions", "a name that only max has", says="name 'kept' is not defined", body={0: '''
return (np.broadcast_to(grad.reshape(kept), self.shape),)
'''}),
    Wrong("reductions", "one maximum for the whole", says="compare with the largest of the row", body={1: '''
winners = self.data == self.data.max()
return (winners * grad / winners.sum(),)
'''}),
    Wrong("reductions", "every tie takes all", says="Ties share equally", body={1: '''
return ((self.data == largest) * grad,)
'''}),
    Wrong("reductions", "the first of the ties takes all", says="Ties share equally", body={1: '''
winners = np.zeros_like(self.data)
if axis is None:
    winners.flat[self.data.argmax()] = 1
else:
    np.put_along_axis(winners, np.expand_dims(self.data.argmax(axis), axis), 1, axis)
return (winners * grad,)
'''}),
    Wrong("reductions", "divides by all winners together", says="count the winners of the row", body={1: '''
winners = (self.data == largest).astype(self.dtype)
return (winners * grad / winners.sum(),)
'''}),
    Wrong("reductions", "repeats the gradient as sum does", says="the others nothing", body={1: '''
return (np.broadcast_to(grad, self.shape),)
'''}),
    Wrong("reductions", "max: counts without keepdims", says="keepdims=True", body={1: '''
winners = self.data == largest
return (winners * (grad / winners.sum(axis=axis, dtype=grad.dtype)),)
'''}),
    Wrong("reductions", "sum: float64 zeros to add to", says="the gradient is float64", body={0: '''
return (np.zeros(self.shape) + grad.reshape(kept_shape(self.shape, axis)),)
'''}),
    Wrong("reductions", "sum: a Tensor in place of an array", says="gave a Tensor", body={0: '''
return Tensor(np.ones_like(self.data)) * grad.reshape(kept_shape(self.shape, axis)),
'''}),
    Wrong("reductions", "max: divides by a count of integers", says="float32 divided by an array of integers", body={1: '''
winners = self.data == largest
return (winners * (grad / winners.sum(axis=axis, keepdims=True)),)
'''}),
    Wrong("reductions", "max: divides the gradient in place", says="writes into the gradient", body={1: '''
winners = self.data == largest
grad /= winners.sum(axis=axis, keepdims=True, dtype=grad.dtype)
return (winners * grad,)
'''}),
    Wrong("reductions", "sum: the array without its tuple", says="must return a tuple", body={0: '''
return np.broadcast_to(grad.reshape(kept_shape(self.shape, axis)), self.shape)
'''}),
    Wrong("reductions", "max: nearly the largest wins, too", says="compare with ==, not nearly", body={1: '''
winners = np.isclose(self.data, largest)
return (winners * (grad / winners.sum(axis=axis, keepdims=True, dtype=grad.dtype)),)
'''}),
    Right("reductions", "expand_dims, and where", body={0: '''
if axis is not None and not keepdims:
    grad = np.expand_dims(grad, axis)
return (np.ones_like(self.data) * grad,)
''', 1: '''
biggest = self.data.max(axis=axis, keepdims=True)
share = np.where(self.data == biggest, self.data.dtype.type(1), self.data.dtype.type(0))
share = share / share.sum(axis=axis, keepdims=True)
return (share * grad.reshape(biggest.shape),)
'''}),
    Right("reductions", "element by element", body={0: '''
kept = kept_shape(self.shape, axis)
part, grad = np.zeros_like(self.data), grad.reshape(kept)
for index in np.ndindex(self.shape):
    part[index] = grad[tuple(0 if n == 1 else i for i, n in zip(index, kept))]
return (part,)
'''}),

    # matmul: region 0 is the gradient by a, region 1 that by b
    Wrong("matmul", "reverses all axes of a stack", says="last two axes",
          body={0: "by_a = unbroadcast(grad @ b.T, a.shape)", 1: "by_b = unbroadcast(a.T @ grad, b.shape)"}),
    Wrong("matmul", "forgets to transpose", says="by_a is grad @ b transposed",
          body={0: "by_a = unbroadcast(grad @ b, a.shape)", 1: "by_b = unbroadcast(a @ grad, b.shape)"}),
    Wrong("matmul", "exchanges the operands", says="by_a is grad @ b transposed",
          body={0: "by_a = a.swapaxes(-1, -2) @ grad", 1: "by_b = grad @ b.swapaxes(-1, -2)"}),
    Wrong("matmul", "the factors the wrong way round", says="by_a is grad @ b transposed",
          body={0: "by_a = b.swapaxes(-1, -2) @ grad", 1: "by_b = grad @ a.swapaxes(-1, -2)"}),
    Wrong("matmul", "gives each item of the batch a gradient of its own", says="the sum over that batch",
          body={0: "by_a = grad @ b.swapaxes(-1, -2)", 1: "by_b = a.swapaxes(-1, -2) @ grad"}),
    Wrong("matmul", "takes the mean over the batch", says="the sum over that batch", body={0: '''
by_a = grad @ b.swapaxes(-1, -2)
if a.ndim == 2 and by_a.ndim > 2:
    by_a = by_a.mean(axis=tuple(range(by_a.ndim - 2)))
by_a = unbroadcast(by_a, a.shape)
'''}),
    Wrong("matmul", "sums for the second operand only", says="the sum over that batch", body={0: "by_a = grad @ b.swapaxes(-1, -2)"}),
    Wrong("matmul", "works with self and other", says="not self and other",
          body={0: "by_a = unbroadcast(grad @ other.data.swapaxes(-1, -2), self.shape)",
                1: "by_b = unbroadcast(self.data.swapaxes(-1, -2) @ grad, other.shape)"}),
    Wrong("matmul", "np.dot", says="not np.dot", body={0: "by_a = unbroadcast(np.dot(grad, b.swapaxes(-1, -2)), a.shape)"}),
    Wrong("matmul", "elementwise, as for multiplication", says="grad @ b transposed",
          body={0: "by_a = grad * b", 1: "by_b = grad * a"}),
    Wrong("matmul", "both in the first region", says="Each must do without the other", body={0: '''
by_a = unbroadcast(grad @ b.swapaxes(-1, -2), a.shape)
by_b = unbroadcast(a.swapaxes(-1, -2) @ grad, b.shape)
''', 1: "pass"}),
    Wrong("matmul", "float64 on the way back", says="the gradient is float64",
          body={1: "by_b = unbroadcast(a.swapaxes(-1, -2) @ grad.astype(np.float64), b.shape)"}),
    Right("matmul", "einsum", body={0: '''
by_a = np.einsum("...mn,...kn->...mk", grad, b)
by_a = unbroadcast(by_a, a.shape)
''', 1: "by_b = unbroadcast(np.einsum('...mk,...mn->...kn', a, grad), b.shape)"}),
    Right("matmul", "matrix by matrix", body={0: '''
batch = grad.shape[:-2]
whole = np.broadcast_to(b, batch + b.shape[-2:])
by_a = np.empty(batch + a.shape[-2:], grad.dtype)
for item in np.ndindex(batch):
    by_a[item] = grad[item] @ whole[item].T
by_a = unbroadcast(by_a, a.shape)
''', 1: '''
by_b = np.zeros_like(b)
whole = np.broadcast_to(a, grad.shape[:-2] + a.shape[-2:])
repeated = np.broadcast_to(np.arange(by_b[..., 0, 0].size).reshape(b.shape[:-2]), grad.shape[:-2])
for item in np.ndindex(grad.shape[:-2]):
    by_b.reshape(-1, *b.shape[-2:])[repeated[item]] += whole[item].T @ grad[item]
'''}),

    # getitem: region 0 is the gradient before anything has arrived, region 1 the adding
    Wrong("getitem", "out[index] += grad", says="keeps only one of them", body={1: "out[index] += grad"}),
    Wrong("getitem", "out[index] = grad", says="keeps only one of them", body={1: "out[index] = grad"}),
    Wrong("getitem", "takes what np.add.at returns", says="returns nothing", body={1: "out = np.add.at(out, index, grad)"}),
    Wrong("getitem", "float64 zeros", says="np.zeros and np.ones make one", body={0: "out = np.zeros(self.shape)"}),
    Wrong("getitem", "assignment when no number comes twice", says="2 and -1 are the same one", body={1: '''
if isinstance(index, np.ndarray) and index.dtype != bool and len(np.unique(index)) == index.size:
    out[index] = grad
else:
    np.add.at(out, index, grad)
'''}),
    Wrong("getitem", "row by row, as if all were whole numbers along the first axis", says="A mask chooses where it is True",
          body={1: '''
for place, part in zip(np.ravel(index), grad):
    out[place] += part
'''}),
    Wrong("getitem", "adds into the values", says="changes the array that it is given", body={1: "np.add.at(self.data, index, grad)"}),
    Wrong("getitem", "counts in place of gradients", says="each gradient where its element came from",
          body={1: "np.add.at(out, index, 1)"}),
    Wrong("getitem", "zeros of the shape of the gradient", says="The result has the shape of the tensor",
          body={0: "out = np.zeros_like(grad)"}),
    Wrong("getitem", "starts from the values", says="zeros, with each gradient", body={0: "out = self.data.copy()"}),
    Wrong("getitem", "starts from ones", says="zeros, with each gradient", body={0: "out = np.ones_like(self.data)"}),
    Wrong("getitem", "starts from whatever was there", says="zeros, with each gradient",
          body={0: "out = np.full_like(self.data, np.nan)"}),
    Right("getitem", "numbered places and bincount", body={0: "out = np.zeros(self.shape, dtype=grad.dtype)", 1: '''
places = np.arange(self.size).reshape(self.shape)[index]
total = np.bincount(places.reshape(-1), weights=grad.reshape(-1), minlength=self.size)
out = total.reshape(self.shape).astype(self.dtype)
'''}),
    Right("getitem", "a loop over the places", body={1: '''
places = np.arange(self.size).reshape(self.shape)[index]
flat = out.reshape(-1)
for place, value in zip(np.ravel(places), np.ravel(grad)):
    flat[place] += value
'''}),
]
