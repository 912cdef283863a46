"""Peak memory of decoding with SmolLM2, in a process of its own; prints JSON."""
import json
import re
import sys
from pathlib import Path

from tinytorch.generation.generate import generate
from tinytorch.generation.kv_cache import KVCache
from tinytorch.models.pretrained import from_pretrained

MB = 2**20


def peak_bytes():
    """The most memory this process has had."""
    status = Path("/proc/self/status")
    if status.exists():                                 # Linux: getrusage would count what the parent had at the fork
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status.read_text(encoding="utf-8"))[1])
    if sys.platform == "win32":
        import psutil
        return psutil.Process().memory_info().peak_wset
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss        # bytes on macOS


def main(new_tokens=256):
    model, tokenizer = from_pretrained("smollm2")
    prompt = tokenizer.encode("Once upon a time")
    cache = KVCache.for_model(model, max_seq_len=len(prompt) + new_tokens - 1)
    generate(model, prompt, new_tokens, cache=cache)
    weights = sum(parameter.data.nbytes for parameter in model.parameters())
    print(json.dumps({"peak": peak_bytes() / MB, "weights": weights / MB, "cache": cache.nbytes / MB}))


if __name__ == "__main__":
    main()
