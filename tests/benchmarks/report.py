"""The results as a table, as JSON and as a plot."""
import json
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.table import Table

from tests.benchmarks.measure import DISTURBED
from tests.benchmarks.parts import RATIO

NOTE = "PyTorch's MKL favours Intel processors: on AMD it reads one-row products slowly. No ratio holds without its processor."


def number(value):
    """Three digits, with separators between thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_part(console, name, rows, others, threads, machine):
    """The table of a part. Where others disturbed it, nothing is said about goals."""
    quiet = others <= DISTURBED
    console.print(f"{name}: {threads} threads; others used {others:.2f} processors", style="bold")
    for text in machine.values():
        console.print(text)
    table = Table(box=box.MARKDOWN)
    for heading in ("work", "size", "against"):
        table.add_column(heading)
    for heading in ("ours", "theirs", "times as fast (quartiles)", "goal"):
        table.add_column(heading, justify="right")
    for row in rows:
        result = f"{number(row.result.median)} ({number(row.result.low)} to {number(row.result.high)})"
        goal = "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g} "
        verdict = "" if row.goal is None else "?" if not quiet else "reached" if row.reached else "missed"
        table.add_row(row.work, row.size, row.against, f"{number(row.ours)} {row.unit}",
                      "" if row.theirs is None else number(row.theirs),
                      result if row.meaning == RATIO else f"{result} {row.meaning}", goal + verdict)
    console.print(table)
    if not quiet:
        console.print(f"NO CONCLUSION: other processes kept {others:.2f} processors busy during this part.", style="bold red")


def write_json(path, machine, threads, parts):
    """parts: {name: (rows, processors used by others)}."""
    content = {"machine": machine, "threads": threads, "disturbed_above": DISTURBED,
               "parts": {name: {"others": others, "disturbed": others > DISTURBED,
                                "rows": [asdict(row) | {"result": row.result._asdict(), "reached": row.reached} for row in rows]}
                         for name, (rows, others) in parts.items()}}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_plot(path, machine, parts):
    """Ratios with their quartiles, a panel for each part; time against context as a curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    rows = [row for part_rows, _ in parts.values() for row in part_rows]
    curves = [row for row in rows if row.part == "context"]
    panels = {name: group for name in parts
              if (group := [row for row in rows if row.part == name != "context" and row.meaning == "times as fast"])}
    heights = [len(group) + 4 for group in panels.values()] + [24] * bool(curves)
    if not heights:
        return
    figure = Figure(figsize=(8, 1 + 0.17 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)                             # draws into memory, whatever screen there is
    axes = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    plain_number = FuncFormatter(lambda value, position: f"{value:g}")
    for axis, (name, group) in zip(axes, panels.items()):
        for y, row in enumerate(group):
            colour = "tab:green" if row.result.median >= 1 else "tab:red"
            axis.plot([row.result.low, row.result.high], [y, y], color=colour)
            axis.plot(row.result.median, y, "o", color=colour, markersize=4)
        axis.set_yticks(range(len(group)), [f"{row.work}, {row.size}, against {row.against}" for row in group], fontsize=6)
        axis.set_ylim(len(group), -1)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"{name}: times as fast", fontsize=9)
        axis.set(xscale="log", xlim=(0.2, 50))
        axis.set_xticks([0.2, 0.5, 1, 2, 5, 10, 20, 50])
        axis.xaxis.set_major_formatter(plain_number)
        axis.grid(alpha=0.3)
    if curves:
        axis, lines = axes[-1], {}
        for row in curves:
            tokens = int(row.work.split()[-1])
            lines.setdefault((row.size, "tinytorch"), {})[tokens] = row.ours
            lines.setdefault((row.size, row.against), {})[tokens] = row.theirs
        for (size, name), points in lines.items():
            axis.plot(list(points), list(points.values()), "o-" if name == "tinytorch" else "--", label=f"{size} {name}")
        axis.set(xscale="log", yscale="log", xlabel="tokens of context", ylabel="ms per token")
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(plain_number)
        axis.set_xticks(list(lines[curves[0].size, "tinytorch"]))
        axis.minorticks_off()
        axis.legend(fontsize=6)
        axis.grid(alpha=0.3)
    figure.suptitle(f"{machine['processor']}; {machine['blas']}\n{machine['versions']}", fontsize=7)
    figure.savefig(path, dpi=120)
