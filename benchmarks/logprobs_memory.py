"""Peak memory and time of the logprobs of a long row over a large vocabulary: ours against the plain way.

`python -m benchmarks.logprobs_memory [--tokens 4096] [--vocabulary 151936] [--hidden 64] [--chunk 256] [--repeats 5]
[--kept 512]`

Plain: `log_softmax(hidden @ head.T / temperature)` at the targets, as one autograd graph. Cut: ours among `--kept` ids
of each token, as after cut-off sampling; its logprobs are others. Each way runs in a process of
its own on one thread: forward and backward of the sum of logprobs; seconds are the processor's. Peak is what the
process's resident memory grew by beyond inputs and their gradients, which both ways must hold (and after a small pass
of the same kind, so that libraries are loaded). The last line is a JSON object.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headrace.services.trainer.algorithms.logprobs import KeptIds, token_logprobs

WAYS = ("plain", "ours", "cut")


def scores(way: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor], chunk: int, kept: int) -> Tensor:
    """Logprobs of the targets, float32."""
    hidden, head, targets, temperature = inputs
    if way != "plain":
        ids = (targets[:, None] + torch.arange(kept)) % len(head)
        among = KeptIds(torch.full_like(targets, kept), ids.flatten(), kept) if way == "cut" else None
        return token_logprobs(hidden, head, targets, temperature=temperature, chunk=chunk, kept=among).logprobs
    logits = hidden @ head.T / temperature[:, None]
    return torch.log_softmax(logits, dim=1).gather(1, targets[:, None]).squeeze(1)


def make_inputs(tokens: int, vocabulary: int, hidden: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states and head with room for their gradients, targets, and the temperature."""
    torch.manual_seed(0)
    states = torch.randn(tokens, hidden, requires_grad=True)
    head = (torch.randn(vocabulary, hidden) / hidden**0.5).requires_grad_()
    states.grad, head.grad = torch.zeros_like(states), torch.zeros_like(head)
    return states, head, torch.randint(vocabulary, (tokens,)), torch.full((tokens,), 0.9)


def resident() -> int:
    """Bytes in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(way: str, options: argparse.Namespace) -> None:
    """One process: the first pass for memory, the others for time. Prints both, writes the gradients."""
    torch.set_num_threads(1)
    small = make_inputs(64, 4096, options.hidden)
    scores(way, small, options.chunk, options.kept).sum().backward()
    inputs = make_inputs(options.tokens, options.vocabulary, options.hidden)
    before = resident()
    logprobs = scores(way, inputs, options.chunk, options.kept)
    logprobs.sum().backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    states, head = inputs[0].grad, inputs[1].grad
    assert states is not None and head is not None
    save_file({"states": states.clone(), "head": head.clone(), "logprobs": logprobs.detach()}, options.out)
    seconds = []
    del logprobs
    for _ in range(options.repeats):
        begin = time.process_time()
        scores(way, inputs, options.chunk, options.kept).sum().backward()
        seconds.append(time.process_time() - begin)
    print(json.dumps({"peak_bytes": peak - before, "seconds": seconds}))


def compare(options: argparse.Namespace) -> dict[str, float]:
    """Both ways, each in a process of its own."""
    found, tensors = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            out = Path(folder) / f"{way}.safetensors"
            numbers = [
                f"--{key}={getattr(options, key)}"
                for key in ("tokens", "vocabulary", "hidden", "chunk", "repeats", "kept")
            ]
            command = [sys.executable, "-m", "benchmarks.logprobs_memory", f"--way={way}", f"--out={out}", *numbers]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3600)
            found[way] = json.loads(done.stdout.splitlines()[-1])
            tensors[way] = load_file(out)
    gaps = {
        f"{name}_gap": float((ours - tensors["plain"][name]).abs().max() / tensors["plain"][name].abs().max())
        for name, ours in tensors["ours"].items()
    }
    peaks = {way: found[way]["peak_bytes"] / 2**20 for way in WAYS}
    seconds = {way: statistics.median(found[way]["seconds"]) for way in WAYS}
    return {
        **{f"{way}_peak_mib": round(peaks[way], 1) for way in WAYS},
        "memory_ratio": round(peaks["plain"] / peaks["ours"], 1),
        **{f"{way}_seconds": round(seconds[way], 3) for way in WAYS},
        "time_ratio": round(seconds["ours"] / seconds["plain"], 3),
        "kept_ids_share": round(1 - seconds["ours"] / seconds["cut"], 3),
        **gaps,
    }


def main() -> None:
    """Reads the arguments; without `--way` compares both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kept", type=int, default=512)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.way:
        measure(options.way, options)
    else:
        print(json.dumps(compare(options), indent=1))


if __name__ == "__main__":
    main()
