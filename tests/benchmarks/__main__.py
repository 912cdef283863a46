"""How fast tinytorch is against what people would use instead, and against the limit that memory sets.

    python -m tests.benchmarks                          everything, about 8 minutes
    python -m tests.benchmarks decode --sizes 0.8M 7M   a part of it
    python -m tests.benchmarks smollm2                  the real model: share of the limit, what the cache saves

All peers get the same weights and threads, compute the same logits (checked first), and take turns in one process.
Peers that are not installed are left out. Exit code 3: other processes used the processors, so nothing was concluded.
"""
import argparse
import os
import shutil
import sys

from tests import THREADS

PARTS = "decode", "prefill", "context", "train", "import", "memory", "cached", "smollm2"
SIZES = "0.8M", "7M", "30M", "124M"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count()), help="of every peer (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--plot", metavar="FILE", help="write a picture of them")
    parser.add_argument("--force", action="store_true", help="go on although others use the processors; it is still said")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in THREADS:
        os.environ[name] = str(options.threads)         # has to come before NumPy and PyTorch are imported

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from tests.benchmarks import measure, parts, report

    console = Console(width=max(130, shutil.get_terminal_size().columns))       # a narrower table would lose figures
    busy = measure.least_busy(seconds=5)
    if busy > measure.DISTURBED and not options.force:
        console.print(f"NO CONCLUSION: other processes keep {busy:.2f} processors busy. Try again when the machine is quiet, or "
                      "look at the figures with --force.", style="bold red")
        return 3
    done, machine = {}, measure.machine()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    # It is drawn between the measurements only: a thread that draws meanwhile would be one of the others.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        bench = parts.Bench(options.threads, options.sizes, progress)
        chosen = [name for name in PARTS if name in options.parts or not options.parts]
        whole = progress.add_task("parts", total=len(chosen))
        for name in chosen:
            others = measure.Others()
            rows = list(parts.PARTS[name](bench))
            done[name] = rows, others.processors()
            if rows:
                report.print_part(console, name, *done[name], options.threads, machine)
            else:
                console.print(f"{name}: nothing to measure with what is installed and chosen.")
            progress.advance(whole)
    console.print(report.NOTE)
    if options.json:
        report.write_json(options.json, machine, options.threads, done)
    if options.plot:
        report.write_plot(options.plot, machine, done)
    disturbed = [name for name, (_, others) in done.items() if others > measure.DISTURBED]
    if disturbed:
        console.print(f"NO CONCLUSION about {', '.join(disturbed)}: other processes used the processors.", style="bold red")
    return 3 if disturbed else 0


if __name__ == "__main__":
    sys.exit(main())
