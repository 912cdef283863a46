"""Change every solution in every small way, and show which changes a self-check accepts.

Each answer is the solution with one change: another operator, a number plus one, an argument left out, a name for its
neighbour. Some changes mean the same or only cost time, so what is accepted is for a person to read. The others show
what a check does not look at: make it look, and put the answer into the bank. It needs a system that can fork a process.
"""
from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import textwrap

from tests.lessons import grading, is_check, is_exercise, is_measuring, is_run, last_check, lessons, read, regions
from tests.misconceptions import Wrong
from tests.misconceptions.runner import ACCEPTED, new_namespace, run_cell, verdict

SECONDS = 12            # for one change; an endless loop is no answer
OPERATORS = [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.FloorDiv, ast.Mod), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or),
             (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Lt, ast.Gt), (ast.LtE, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
             (ast.In, ast.NotIn)]
NEIGHBOURS = [("key", "value"), ("keys", "values"), ("k", "v"), ("query", "key"), ("start", "stop"), ("B", "T"), ("D", "T"),
              ("H", "Hkv"), ("num_heads", "num_kv_heads"), ("gate", "up"), ("d_in", "d_out"), ("rows", "grad"), ("max", "min"),
              ("sum", "mean"), ("maximum", "minimum"), ("argmax", "argmin"), ("any", "all")]
COPIES = "copy", "astype", "ascontiguousarray"


def others(pairs, one):
    """What stands beside `one` in some of the pairs."""
    return [right for left, right in pairs if left == one] + [left for left, right in pairs if right == one]


def with_field(node, field, value):
    """A copy of a node with another value in one field."""
    node = copy.deepcopy(node)
    setattr(node, field, value)
    return node


def variants(node):
    """Nodes that may stand in the place of a node, each one change away from it."""
    operator = getattr(node, "op", None)
    for other in others(OPERATORS, type(operator)):
        yield with_field(node, "op", other())
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.IfExp)):                  # one operand alone
        for field in "left", "right", "operand", "body", "orelse":
            if hasattr(node, field):
                yield getattr(node, field)
        yield from getattr(node, "values", [])
    elif isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for other in others(OPERATORS, type(operator)):
                yield with_field(node, "ops", [*node.ops[:i], other(), *node.ops[i + 1:]])
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node, (ast.If, ast.While)):
        yield from (with_field(node, "test", ast.Constant(value)) for value in (False, True)[:1 + isinstance(node, ast.If)])
    elif isinstance(node, ast.Slice):
        for field in "lower", "upper":
            if end := getattr(node, field):
                yield from (with_field(node, field, None), with_field(node, field, ast.BinOp(end, ast.Add(), ast.Constant(1))))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from (ast.Name(name, ast.Load()) for name in others(NEIGHBOURS, node.id))
    elif isinstance(node, ast.Attribute):
        yield from (with_field(node, "attr", name) for name in others(NEIGHBOURS, node.attr))
    elif isinstance(node, ast.Call):
        yield from (with_field(node, "keywords", [word for word in node.keywords if word is not left_out]) for left_out in node.keywords)
        if len(node.args) > 1:
            yield from (with_field(node, "args", node.args[:-1]), with_field(node, "args", [node.args[1], node.args[0], *node.args[2:]]))
        if isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
            yield node.args[0] if ast.unparse(node.func.value) == "np" else node.func.value
    if isinstance(node, (ast.AugAssign, ast.Raise, ast.Break, ast.Continue)) or isinstance(node, ast.Expr) and not isinstance(
            node.value, (ast.Yield, ast.Constant)) or isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name):
        yield ast.Pass()                                                                    # the statement is left out


class Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def in_function(code):
    """The syntax tree of some code as the body of a function, where it may return."""
    return ast.parse("def body():\n" + textwrap.indent(code, "    "))


def changes(code):
    """All versions of some code (the body of a function) that are one change away from it, each once."""
    tree = in_function(code)
    seen = {ast.unparse(tree)}
    for place, node in enumerate(ast.walk(tree)):
        for number, _ in enumerate(variants(node)):
            changed = copy.deepcopy(tree)
            old = list(ast.walk(changed))[place]
            text = ast.unparse(ast.fix_missing_locations(Replace(old, list(variants(old))[number]).visit(changed)))
            if text not in seen:
                seen.add(text)
                yield textwrap.dedent(text.partition("\n")[2])


def difference(code, changed):
    """The lines that differ, as text."""
    plain = textwrap.dedent(ast.unparse(in_function(code)).partition("\n")[2])
    lines = difflib.unified_diff(plain.split("\n"), changed.split("\n"), lineterm="", n=0)
    return "\n".join(f"    {line}" for line in lines if not line.startswith(("+++", "---", "@@")))


def try_exercise(cells, namespace):
    """Try all changes of an exercise, whose cells go up to its last check; print those that are accepted. Returns two counts."""
    source, name = cells[0].source, grading(cells[0])["grade_id"]
    tried = accepted = 0
    for number, region in enumerate(regions(source)):
        code = textwrap.dedent("\n".join(source.split("\n")[region.start:region.end]))
        for changed in changes(code):
            answer = Wrong(name, "one change", says="", body={number: changed})
            fault, _ = verdict(answer, cells, namespace, SECONDS)
            tried += 1
            if fault == ACCEPTED:
                accepted += 1
                print(f"{name} accepts\n{difference(code, changed)}")
    return tried, accepted


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.misconceptions.changes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", help="how its name begins, such as 06")
    parser.add_argument("exercise", nargs="?", help="one exercise, such as slots; all if left out")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")              # pictures open no window
    path = next((path for path in lessons() if path.stem.startswith(options.lesson)), None)
    if path is None:
        parser.error(f"there is no lesson {options.lesson}; the lessons are {', '.join(path.stem for path in lessons())}")
    cells, namespace = [cell for cell in read(path).cells if is_run(cell) and not is_measuring(cell)], new_namespace()
    exercises = [grading(cell)["grade_id"] for cell in cells if is_exercise(cell)]
    if options.exercise not in (None, *exercises):
        parser.error(f"{path.stem} has no exercise {options.exercise}; its exercises are {', '.join(exercises)}")
    last = max(index for index, cell in enumerate(cells) if is_check(cell))
    for index, cell in enumerate(cells[:last]):
        name = grading(cell).get("grade_id", "a cell")
        if is_exercise(cell) and options.exercise in (None, name):
            tried, accepted = try_exercise(cells[index:last_check(cells, name) + 1], namespace)
            print(f"{name}: {tried} changes, {accepted} accepted", flush=True)
        run_cell(cell.source, name, namespace)


if __name__ == "__main__":
    main()
