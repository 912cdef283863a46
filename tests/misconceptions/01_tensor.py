"""Answers to the exercises of lesson 01."""
from tests.misconceptions import Right, Wrong


def walk(add="order.append(node)", only=" if parent.requires_grad", end="return order\n"):
    """A walk like the solution's, in which one place is another."""
    return f'''
order, visited, stack = [], set(), [(root, False)]
while stack:
    node, parents_done = stack.pop()
    if parents_done:
        {add}
    elif id(node) not in visited:
        visited.add(id(node))
        stack.append((node, True))
        stack.extend((parent, False) for parent in node._parents{only})
{end}'''


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
if grad.shape == shape:
    return grad
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

    # backward: region 0 is the order, region 1 the loop
    Wrong("backward", "recursion", says="Recursion cannot go so deep", body={0: '''
order, visited = [], set()
def visit(node):
    if id(node) not in visited:
        visited.add(id(node))
        for parent in node._parents:
            if parent.requires_grad:
                visit(parent)
        order.append(node)
visit(root)
return order
'''}),
    Wrong("backward", "does not remember what it visited", says="Each tensor belongs into the order once", body={0: '''
order, stack = [], [(root, False)]
while stack:
    node, parents_done = stack.pop()
    if parents_done:
        order.append(node)
    else:
        stack.append((node, True))
        stack.extend((parent, False) for parent in node._parents if parent.requires_grad)
return order
'''}),
    Wrong("backward", "looks for repeats only when it adds", says="must not grow with the number of paths", body={0: '''
order, done, stack = [], set(), [(root, False)]
while stack:
    node, parents_done = stack.pop()
    if parents_done:
        if id(node) not in done:
            done.add(id(node))
            order.append(node)
    else:
        stack.append((node, True))
        stack.extend((parent, False) for parent in node._parents if parent.requires_grad)
return order
'''}),
    Wrong("backward", "forgets to return the order", says="`return` is missing", body={0: walk(end="")}),
    Wrong("backward", "an iterator in place of a list", says="must return a list",
          body={0: walk(add="order.insert(0, node)", end="return reversed(order)\n")}),
    Wrong("backward", "puts the ids into the order", says="x, a, b, c and the result must be there",
          body={0: walk(add="order.append(id(node))")}),
    Wrong("backward", "breadth first, reversed", says="parents before children", body={0: '''
order, visited = [root], {id(root)}
for node in order:
    for parent in node._parents:
        if parent.requires_grad and id(parent) not in visited:
            visited.add(id(parent))
            order.append(parent)
return order[::-1]
'''}),
    Wrong("backward", "visited as soon as it is on the stack", says="parents before children", body={0: '''
order, visited, stack = [], {id(root)}, [(root, False)]
while stack:
    node, parents_done = stack.pop()
    if parents_done:
        order.append(node)
    else:
        stack.append((node, True))
        for parent in node._parents:
            if parent.requires_grad and id(parent) not in visited:
                visited.add(id(parent))
                stack.append((parent, False))
return order
'''}),
    Wrong("backward", "walks into constants", says="requires_grad=False is not part", body={0: walk(only="")}),
    Wrong("backward", "children before parents", says="parents before children", body={0: walk(add="order.insert(0, node)")}),
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
    Right("backward", "a set of the tensors themselves", body={0: '''
order, done, stack = [], set(), [root]
while stack:
    waiting = [parent for parent in stack[-1]._parents if parent.requires_grad and parent not in done]
    if waiting:
        stack.extend(waiting)
    else:
        node = stack.pop()
        if node not in done:
            done.add(node)
            order.append(node)
return order
'''}),
    Right("backward", "counts how often each tensor is still waited for", body={0: '''
uses, found, stack = {}, [], [root]
while stack:
    node = stack.pop()
    found.append(node)
    for parent in node._parents:
        if parent.requires_grad:
            if id(parent) not in uses:
                uses[id(parent)] = 0
                stack.append(parent)
            uses[id(parent)] += 1
ready, order = [root], []
while ready:
    node = ready.pop()
    order.append(node)
    for parent in node._parents:
        if parent.requires_grad:
            uses[id(parent)] -= 1
            if uses[id(parent)] == 0:
                ready.append(parent)
order.reverse()
return order
'''}),
    Right("backward", "a stack of iterators, and lists of what arrived", body={0: '''
order, visited = [], {id(root)}
stack = [(root, iter(root._parents))]
while stack:
    node, parents = stack[-1]
    for parent in parents:
        if parent.requires_grad and id(parent) not in visited:
            visited.add(id(parent))
            stack.append((parent, iter(parent._parents)))
            break
    else:
        order.append(node)
        stack.pop()
return order
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
    Wrong("reductions", "one maximum for the whole", says="take the maximum of the row", body={1: '''
winners = self.data == self.data.max()
return (winners * grad.reshape(kept_shape(self.shape, axis)) / winners.sum(),)
'''}),
    Wrong("reductions", "every tie takes all", says="Ties share equally", body={1: '''
kept = kept_shape(self.shape, axis)
return ((self.data == out.reshape(kept)) * grad.reshape(kept),)
'''}),
    Wrong("reductions", "the first of the ties takes all", says="Ties share equally", body={1: '''
winners = np.zeros_like(self.data)
if axis is None:
    winners.flat[self.data.argmax()] = 1
else:
    np.put_along_axis(winners, np.expand_dims(self.data.argmax(axis), axis), 1, axis)
return (winners * grad.reshape(kept_shape(self.shape, axis)),)
'''}),
    Wrong("reductions", "divides by all winners together", says="count the winners of the row", body={1: '''
kept = kept_shape(self.shape, axis)
winners = (self.data == out.reshape(kept)).astype(self.dtype)
return (winners * grad.reshape(kept) / winners.sum(),)
'''}),
    Wrong("reductions", "repeats the gradient as sum does", says="the others nothing", body={1: '''
return (np.broadcast_to(grad.reshape(kept_shape(self.shape, axis)), self.shape),)
'''}),
    Wrong("reductions", "sum: float64 zeros to add to", says="the gradient is float64", body={0: '''
return (np.zeros(self.shape) + grad.reshape(kept_shape(self.shape, axis)),)
'''}),
    Wrong("reductions", "sum: a Tensor in place of an array", says="gave a Tensor", body={0: '''
return Tensor(np.ones_like(self.data)) * grad.reshape(kept_shape(self.shape, axis)),
'''}),
    Wrong("reductions", "max: divides by a count of integers", says="float32 divided by an array of integers", body={1: '''
kept = kept_shape(self.shape, axis)
winners = self.data == out.reshape(kept)
return (winners * (grad.reshape(kept) / winners.sum(axis=axis, keepdims=True)),)
'''}),
    Wrong("reductions", "max: divides the gradient in place", says="writes into the gradient", body={1: '''
kept = kept_shape(self.shape, axis)
winners = self.data == out.reshape(kept)
grad = grad.reshape(kept)
grad /= winners.sum(axis=axis, keepdims=True, dtype=grad.dtype)
return (winners * grad,)
'''}),
    Wrong("reductions", "sum: the array without its tuple", says="must return a tuple", body={0: '''
return np.broadcast_to(grad.reshape(kept_shape(self.shape, axis)), self.shape)
'''}),
    Wrong("reductions", "max: nearly the largest wins, too", says="compare with ==, not nearly", body={1: '''
kept = kept_shape(self.shape, axis)
winners = np.isclose(self.data, out.reshape(kept))
return (winners * (grad.reshape(kept) / winners.sum(axis=axis, keepdims=True, dtype=grad.dtype)),)
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

    # matmul
    Wrong("matmul", "reverses all axes of a stack", says="last two axes", body='''
return (unbroadcast(grad @ b.T, a.shape).reshape(self.shape), unbroadcast(a.T @ grad, b.shape).reshape(other.shape))
'''),
    Wrong("matmul", "forgets to transpose", says="b transposed for the first", body='''
return unbroadcast(grad @ b, a.shape).reshape(self.shape), unbroadcast(a @ grad, b.shape).reshape(other.shape)
'''),
    Wrong("matmul", "exchanges the operands", says="b transposed for the first", body='''
return (a.swapaxes(-1, -2) @ grad).reshape(self.shape), (grad @ b.swapaxes(-1, -2)).reshape(other.shape)
'''),
    Wrong("matmul", "gives each item of the batch a gradient of its own", says="the sum over that batch", body='''
return grad @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ grad
'''),
    Wrong("matmul", "takes the mean over the batch", says="the sum over that batch", body='''
grad_b = a.swapaxes(-1, -2) @ grad
if b.ndim == 2 and grad_b.ndim > 2:
    grad_b = grad_b.mean(axis=tuple(range(grad_b.ndim - 2)))
return (unbroadcast(grad @ b.swapaxes(-1, -2), a.shape).reshape(self.shape),
        unbroadcast(grad_b, b.shape).reshape(other.shape))
'''),
    Wrong("matmul", "sums for the second operand only", says="the sum over that batch", body='''
return ((grad @ b.swapaxes(-1, -2)).reshape(self.shape),
        unbroadcast(a.swapaxes(-1, -2) @ grad, b.shape).reshape(other.shape))
'''),
    Wrong("matmul", "leaves a vector as a matrix", says="A vector's gradient is a vector", body='''
return unbroadcast(grad @ b.swapaxes(-1, -2), a.shape), unbroadcast(a.swapaxes(-1, -2) @ grad, b.shape)
'''),
    Wrong("matmul", "elementwise, as for multiplication", says="grad @ b transposed", body='''
return grad * b, grad * a
'''),
    Wrong("matmul", "float64 on the way back", says="the gradient is float64", body='''
grad = grad.astype(np.float64)
return (unbroadcast(grad @ b.swapaxes(-1, -2), a.shape).reshape(self.shape),
        unbroadcast(a.swapaxes(-1, -2) @ grad, b.shape).reshape(other.shape))
'''),
    Right("matmul", "einsum", body='''
grad_a = np.einsum("...mn,...kn->...mk", grad, b)
grad_b = np.einsum("...mk,...mn->...kn", a, grad)
return unbroadcast(grad_a, a.shape).reshape(self.shape), unbroadcast(grad_b, b.shape).reshape(other.shape)
'''),
    Right("matmul", "matrix by matrix", body='''
batch = grad.shape[:-2]
whole_a, whole_b = np.broadcast_to(a, batch + a.shape[-2:]), np.broadcast_to(b, batch + b.shape[-2:])
grad_a, grad_b = np.empty_like(whole_a, subok=False), np.empty_like(whole_b, subok=False)
for item in np.ndindex(batch):
    grad_a[item] = grad[item] @ whole_b[item].T
    grad_b[item] = whole_a[item].T @ grad[item]
return unbroadcast(grad_a, a.shape).reshape(self.shape), unbroadcast(grad_b, b.shape).reshape(other.shape)
'''),

    # getitem
    Wrong("getitem", "out[index] += grad", says="keeps only one of them", body='''
out = np.zeros_like(self.data)
out[index] += grad
return (out,)
'''),
    Wrong("getitem", "out[index] = grad", says="keeps only one of them", body='''
out = np.zeros(self.shape, dtype=self.dtype)
out[index] = grad
return (out,)
'''),
    Wrong("getitem", "the gradient as it came", says="The result has the shape of the tensor", body='''
return (grad,)
'''),
    Wrong("getitem", "float64 zeros", says="np.zeros and np.ones make one", body='''
out = np.zeros(self.shape)
np.add.at(out, index, grad)
return (out,)
'''),
    Wrong("getitem", "add only for arrays and bare lists", says="A list inside a tuple chooses as an array does", body='''
out = np.zeros_like(self.data)
parts = index if isinstance(index, tuple) else (index,)
if isinstance(index, list) or any(isinstance(part, np.ndarray) for part in parts):
    np.add.at(out, index, grad)
else:
    out[index] = grad
return (out,)
'''),
    Wrong("getitem", "assignment when no number comes twice", says="2 and -1 are the same one", body='''
out = np.zeros_like(self.data)
if isinstance(index, np.ndarray) and index.dtype != bool and len(np.unique(index)) == index.size:
    out[index] = grad
else:
    np.add.at(out, index, grad)
return (out,)
'''),
    Wrong("getitem", "add only for arrays and lists", says="A tuple inside a tuple chooses as an array does", body='''
out = np.zeros_like(self.data)
if any(isinstance(part, (np.ndarray, list)) for part in parts):
    np.add.at(out, index, grad)
else:
    out[index] = grad
return (out,)
'''),
    Wrong("getitem", "counts in place of gradients", says="each gradient where its element came from", body='''
out = np.zeros_like(self.data)
np.add.at(out, index, 1)
return (out,)
'''),
    Wrong("getitem", "the gradient of the choice, chosen again", says="The result has the shape of the tensor", body='''
return (np.ones_like(self.data)[index] * grad,)
'''),
    Wrong("getitem", "starts from the values", says="zeros, with each gradient", body='''
out = self.data.copy()
np.add.at(out, index, grad)
return (out,)
'''),
    Right("getitem", "always np.add.at", body='''
out = np.zeros_like(self.data)
np.add.at(out, index, grad)
return (out,)
'''),
    Right("getitem", "numbered places and bincount", body='''
places = np.arange(self.size).reshape(self.shape)[index]
total = np.bincount(places.reshape(-1), weights=grad.reshape(-1), minlength=self.size)
return (total.reshape(self.shape).astype(self.dtype),)
'''),
    Right("getitem", "a loop over the places", body='''
places = np.arange(self.size).reshape(self.shape)[index]
out = np.zeros(self.size, dtype=self.dtype)
for place, value in zip(np.ravel(places), np.ravel(grad)):
    out[place] += value
return (out.reshape(self.shape),)
'''),
]
