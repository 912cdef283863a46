"""The results as a table, as JSON and as a plot."""
import json
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.table import Table

from tests.benchmarks.measure import DISTURBED

NOTE = "PyTorch's MKL favours Intel processors: on AMD it reads one-row products slowly. No ratio holds without its processor."


def number(value):
    """Three digits, with separators between thousands."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_part(console, name, rows, others, threads):
    """The table of a part. Where others disturbed it, nothing is said about goals."""
    quiet = others <= DISTURBED
    table = Table(title=f"{name} ({threads} threads; others used {others:.2f} processors)", title_justify="left", box=box.MARKDOWN)
    for heading in ("work", "size", "against"):
        table.add_column(heading)
    for heading in ("ours", "theirs", "result", "quartiles", "goal", ""):
        table.add_column(heading, justify="right")
    for row in rows:
        goal = "" if row.goal is None else f"{'<=' if row.at_most else '>='} {row.goal:g}"
        verdict = "" if row.goal is None else "?" if not quiet else "reached" if row.reached else "missed"
        table.add_row(row.work, row.size, row.against, f"{number(row.ours)} {row.unit}",
                      "" if row.theirs is None else number(row.theirs), f"{number(row.result.median)} {row.meaning}",
                      f"{number(row.result.low)} to {number(row.result.high)}", goal, verdict)
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
    """Ratios with their quartiles as bars, one panel for each kind of work; time against context as a curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for part_rows, _ in parts.values() for row in part_rows]
    bars = {}
    for row in rows:
        if row.meaning == "times as fast":
            bars.setdefault(row.work, []).append(row)
    curves = [row for row in rows if row.part == "context"]
    panels = len(bars) + bool(curves)
    if not panels:
        return
    figure = Figure(figsize=(8, 0.6 + 0.28 * sum(len(b) + 3 for b in bars.values()) + 4 * bool(curves)), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [len(b) + 3 for b in bars.values()] + [12] * bool(curves)
    axes = figure.subplots(panels, 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, (work, group) in zip(axes, bars.items()):
        medians = [row.result.median for row in group]
        errors = [[row.result.median - row.result.low for row in group], [row.result.high - row.result.median for row in group]]
        axis.barh(range(len(group)), medians, xerr=errors, color=["tab:green" if m >= 1 else "tab:orange" for m in medians])
        axis.set_yticks(range(len(group)), [f"{row.size} against {row.against}" for row in group], fontsize=7)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"{work}: times as fast", fontsize=9)
    if curves:
        axis = axes[-1]
        for label in dict.fromkeys((row.size, row.against) for row in curves):
            points = [row for row in curves if (row.size, row.against) == label]
            axis.plot([int(row.work.split()[-1]) for row in points], [row.theirs for row in points], "--", label=" ".join(label))
        for size in dict.fromkeys(row.size for row in curves):
            points = {int(row.work.split()[-1]): row.ours for row in curves if row.size == size}
            axis.plot(list(points), list(points.values()), "o-", label=f"{size} tinytorch")
        axis.set(xscale="log", yscale="log", xlabel="tokens of context", ylabel="ms per token")
        axis.legend(fontsize=7)
    figure.suptitle(f"{machine['processor']}; {machine['blas']}\n{machine['versions']}", fontsize=7)
    figure.savefig(path, dpi=120)
