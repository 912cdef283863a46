"""How near the cached loop comes to the limit that memory sets, on SmolLM2-135M, and what the cache saves.

    python -m tests.benchmarks.smollm2

Every decoded token has to read all weights once. The limit is the time that plain matrix-vector products with the same
weights take; they run between the tokens, so that both see the same machine. Needs the extras `pretrained` and `bench`.
"""
import argparse
import json
import statistics
import time

import numpy as np
import psutil
from rich.console import Console
from rich.progress import Progress

from tests.benchmarks.machine import describe_machine, other_load
from tinytorch.core.tensor import no_grad
from tinytorch.generation.generate import stream
from tinytorch.models.pretrained import from_pretrained

PROMPT = "Once upon a time, in a small village by the sea, there lived"


def weight_products(model):
    """The products of one decode step and nothing else: [(vector, matrix)], every weight matrix once."""
    rng = np.random.default_rng(0)
    matrices = [p.data for name, p in model.named_parameters() if p.data.ndim == 2 and name != "embedding.weight"]
    if model.config.tie_embeddings:
        matrices.append(model.embedding.weight.data.T)
    return [(rng.standard_normal(m.shape[0], dtype=np.float32), m) for m in matrices]


def timed(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def decode_against_limit(model, prompt, tokens, tick):
    """Seconds of each decode step and of each pass over the weights, taken in turns."""
    products = weight_products(model)
    steps = stream(model, prompt, tokens + 1)
    next(steps)                                                      # the prefill
    decode, limit = [], []
    for _ in range(tokens):
        decode.append(timed(lambda: next(steps))[0])
        limit.append(timed(lambda: [np.dot(x, w) for x, w in products])[0])
        tick()
    return decode, limit, sum(w.nbytes for _, w in products)


def total_time(model, prompt, tokens, use_cache, tick):
    """Seconds for `tokens` new tokens, the prompt included, and the tokens themselves."""
    ids, start = [], time.perf_counter()
    for step in stream(model, prompt, tokens, use_cache=use_cache):
        ids += step
        tick()
    return time.perf_counter() - start, ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decode", type=int, default=100, help="decode steps compared with the limit")
    parser.add_argument("--new-tokens", type=int, default=256, help="tokens of the cached and the uncached run")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()

    console = Console(stderr=arguments.json)
    busy = [other_load()]
    model, tokenizer = from_pretrained("smollm2")
    prompt = tokenizer.encode(PROMPT)
    with no_grad(), Progress(console=console, transient=True) as bar:
        task = bar.add_task("Decoding", total=arguments.decode)
        decode, limit, nbytes = decode_against_limit(model, prompt, arguments.decode, lambda: bar.advance(task))
        seconds, ids = {}, {}
        for use_cache in (True, False):
            task = bar.add_task("With cache" if use_cache else "Without cache", total=arguments.new_tokens)
            seconds[use_cache], ids[use_cache] = total_time(model, prompt, arguments.new_tokens, use_cache, lambda: bar.advance(task))
    busy.append(other_load())

    ratios = [b / a for a, b in zip(decode, limit)]
    figures = {
        "machine": describe_machine(), "busy_elsewhere": max(busy),
        "decode_ms": 1000 * statistics.median(decode), "limit_ms": 1000 * statistics.median(limit),
        "share_of_limit": statistics.median(ratios),
        "share_spread": [float(q) for q in np.percentile(ratios, [10, 90])],
        "limit_gb_per_s": nbytes / statistics.median(limit) / 1e9,
        "new_tokens": arguments.new_tokens, "cached_s": seconds[True], "uncached_s": seconds[False],
        "speed_up": seconds[False] / seconds[True], "same_tokens": ids[True] == ids[False],
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    console.print(figures["machine"])
    console.print(f"decode step           {figures['decode_ms']:8.1f} ms (median of {arguments.decode})")
    console.print(f"weights read once     {figures['limit_ms']:8.1f} ms, {figures['limit_gb_per_s']:.1f} GB/s")
    console.print(f"share of the limit    {figures['share_of_limit']:8.0%} (10% to 90% of steps: "
                  f"{figures['share_spread'][0]:.0%} to {figures['share_spread'][1]:.0%})")
    console.print(f"{arguments.new_tokens} tokens, cached    {figures['cached_s']:8.1f} s")
    console.print(f"{arguments.new_tokens} tokens, uncached  {figures['uncached_s']:8.1f} s")
    console.print(f"speed-up              {figures['speed_up']:8.1f} times, same tokens: {figures['same_tokens']}")
    if max(busy) > 0.1:
        console.print(f"Other processes used {max(busy):.0%} of the processor: draw no conclusion from this run.")


if __name__ == "__main__":
    main()
