"""Training speed against PyTorch eager: the same model, the same batch, the same number of threads, in turns.

    python -m tests.benchmarks.training [--threads 1] [--steps 30]

A step is forward, backward, clipping and AdamW. Needs PyTorch.
"""
import argparse
import json
import os
import statistics
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"threads": 1, "steps": 30, "batch": 16, "length": 64, "embed_dim": 128, "layers": 4}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    options = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)                 # has to come before NumPy and PyTorch are imported

    import numpy as np
    import torch
    from tests.benchmarks.machine import describe_machine, other_load
    from tests.test_training import torch_forward
    from tinytorch.models.transformer import Transformer, TransformerConfig
    from tinytorch.training.trainer import AdamW, is_decayed, train_step

    torch.set_num_threads(options.threads)
    load = other_load()
    d = options.embed_dim
    config = TransformerConfig(vocab_size=257, embed_dim=d, num_layers=options.layers, num_heads=4, num_kv_heads=2,
                               intermediate_dim=11 * d // 4, max_seq_len=options.length)
    model = Transformer(config, seed=0)
    weights = {name: torch.nn.Parameter(torch.tensor(array.copy())) for name, array in model.state_dict().items()}
    decayed = {name: is_decayed(name, parameter) for name, parameter in model.named_parameters()}
    ours = AdamW(model)
    theirs = torch.optim.AdamW([{"params": [p for n, p in weights.items() if decayed[n] == flag], "weight_decay": decay}
                                for flag, decay in ((True, 0.1), (False, 0.0))], lr=1e-3, betas=(0.9, 0.95), foreach=True)
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(257, size=(2, options.batch, options.length))
    torch_inputs, torch_targets = torch.tensor(inputs), torch.tensor(targets).reshape(-1)

    def our_step():
        return train_step(model, ours, [(inputs, targets)], 1e-3)[0]

    def torch_step():
        theirs.zero_grad()
        logits = torch_forward(torch, weights, torch_inputs, config)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 257), torch_targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        theirs.step()
        return loss.item()

    times, losses = {our_step: [], torch_step: []}, {our_step: [], torch_step: []}
    for step in range(options.steps + 3):
        for run in times:
            start = time.perf_counter()
            losses[run].append(run())
            if step >= 3:
                times[run].append(time.perf_counter() - start)
    apart = max(abs(a - b) for a, b in zip(losses[our_step], losses[torch_step]))
    ratios = sorted(b / a for a, b in zip(times[our_step], times[torch_step]))
    tokens = options.batch * options.length
    print(f"{describe_machine()}; PyTorch {torch.__version__}; used by others before the run: {load:.0%}")
    print(f"{model.num_parameters():,} weights, {options.batch} x {options.length} tokens, {options.threads} threads, "
          f"losses apart by at most {apart:.1e}")
    for name, run in (("tinytorch", our_step), ("PyTorch", torch_step)):
        middle = statistics.median(times[run])
        print(f"{name:10} {1000 * middle:7.1f} ms a step, {tokens / middle:8,.0f} tokens per second, fastest {1000 * min(times[run]):.1f} ms")
    quarter = len(ratios) // 4
    print(f"tinytorch / PyTorch: {statistics.median(ratios):.2f} (middle half {ratios[quarter]:.2f} to {ratios[-quarter - 1]:.2f})")
    print(json.dumps({"ratio": statistics.median(ratios), "fastest_ratio": min(times[torch_step]) / min(times[our_step]),
                      "apart": apart, "other_load": load}))


if __name__ == "__main__":
    main()
