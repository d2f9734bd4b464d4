"""Generation speed: the embedded torch engine against `transformers` generate, useful completion tokens a second.

Both decode the same random Qwen3 model with the same prompts and the same lengths (lognormal, ends forced), in one
process with the same number of threads, in turns; medians are reported. `batch` is one batch of rollouts from first to
last, what a synchronous step waits for; `stream` keeps the engine's rows full, what an asynchronous run sees.

    python -m benchmarks.generation --json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from benchmarks import workload
from headrace.services.rollout.engines.protocol import GenerateRequest
from headrace.services.rollout.engines.torch.architecture import read_architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from headrace.services.rollout.engines.torch.core import EngineCore
from headrace.services.rollout.engines.torch.groups import Installed
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.rope import rotation_table
from headrace.services.rollout.engines.torch.weights import build_weights
from headrace.wire.contracts import PolicyVersion, Sampling

EOS = 0
CONTEXT = 640


@dataclass(frozen=True)
class Work:
    """Prompts int32 [groups][prompt] and completion lengths [groups][rollouts]."""

    prompts: list[np.ndarray]
    lengths: list[tuple[int, ...]]

    @property
    def tokens(self) -> int:
        """Useful completion tokens."""
        return sum(map(sum, self.lengths))


class ForcedLengths(LogitsProcessor):  # type: ignore[misc]
    """Row i ends with EOS as its token number lengths[i], and not before."""

    def __init__(self, lengths: torch.Tensor, prompt: int) -> None:
        self._lengths = lengths
        self._prompt = prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores [rows, vocab] with EOS forbidden or forced."""
        ending = (input_ids.shape[1] - self._prompt + 1) >= self._lengths
        scores[:, EOS] = -torch.inf
        scores[ending] = -torch.inf
        scores[ending, EOS] = 0.0
        return scores


def make_model(vocab: int) -> Any:
    """A random Qwen3 of 3.2 (vocab 64) to 4.2 million (vocab 4096) parameters."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(workload.model_config(vocab, pad=EOS, eos=EOS)).eval()


def make_work(vocab: int, groups: int, group_size: int, prompt: int, seed: int) -> Work:
    """Lengths with a mean of about 65, capped at 512."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(3.75, 0.9, size=(groups, group_size))), 2, 512).astype(int)
    prompts = [rng.integers(1, vocab, size=prompt).astype(np.int32) for _ in range(groups)]
    return Work(prompts=prompts, lengths=[tuple(row) for row in lengths.tolist()])


def make_engine(model: Any, rows: int) -> EngineCore:
    """The engine's core without its thread: the time measured is that of decoding."""
    device = torch.device("cpu")
    arch = read_architecture(model.config)
    weights = build_weights(arch, dict(model.named_parameters()), dtype=torch.float32, device=device)
    cache = KeyValueCache(arch, rows=rows, context_length=CONTEXT, dtype=torch.float32, device=device)
    core = EngineCore(
        Model(arch, weights, rotation_table(model.config, CONTEXT, device), cache),
        vocab=arch.vocab,
        deterministic=False,
        device=device,
    )
    core.install(weights, Installed(PolicyVersion(incarnation=1, version=0), "benchmark"), "retract")  # type: ignore[arg-type]
    return core


def run_ours(core: EngineCore, work: Work) -> None:
    """Generates all groups, as many at a time as the engine has rows for."""
    done = []
    for index, (prompt, lengths) in enumerate(zip(work.prompts, work.lengths, strict=True)):
        sampling = Sampling(max_tokens=512, stop_token_ids=(EOS,), forced_lengths=lengths)
        seeds = tuple(range(index * 1000, index * 1000 + len(lengths)))
        request = GenerateRequest(group_id=f"g/{index}", token_ids=prompt, seeds=seeds, sampling=sampling)
        core.submit(request, done.append)
    while core.has_work:
        core.step()
    made = [tuple(len(each.token_ids) for each in outcome) for outcome in done if isinstance(outcome, tuple)]
    assert sorted(made) == sorted(work.lengths), "the engine did not make the lengths asked for"


def run_theirs(model: Any, work: Work) -> None:
    """One `generate` of all rollouts, as TRL calls it."""
    size = len(work.lengths[0])
    ids = torch.from_numpy(np.stack(work.prompts)).long().repeat_interleave(size, 0)
    lengths = torch.tensor([length for row in work.lengths for length in row])
    processors = LogitsProcessorList([ForcedLengths(lengths, ids.shape[1])])
    with torch.inference_mode():
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=512,
            logits_processor=processors,
        )


def measure(vocab: int, rounds: int) -> dict[str, float]:
    """Medians of `rounds` interleaved runs."""
    model = make_model(vocab)
    core = make_engine(model, rows=64)
    warm = make_work(vocab, 2, 8, 16, seed=99)
    run_ours(core, warm)
    run_theirs(model, warm)
    speeds: dict[str, list[float]] = {"batch": [], "stream": [], "hf_generate": []}
    for round_number in range(rounds):
        batch = make_work(vocab, 8, 8, 16, seed=round_number)
        stream = make_work(vocab, 32, 8, 16, seed=round_number + 100)
        speeds["batch"].append(_speed(batch, lambda work=batch: run_ours(core, work)))
        speeds["hf_generate"].append(_speed(batch, lambda work=batch: run_theirs(model, work)))
        speeds["stream"].append(_speed(stream, lambda work=stream: run_ours(core, work)))
    found = {name: round(statistics.median(values), 1) for name, values in speeds.items()}
    found["ratio_batch"] = round(found["batch"] / found["hf_generate"], 2)
    found["ratio_stream"] = round(found["stream"] / found["hf_generate"], 2)
    return found


def _speed(work: Work, act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return work.tokens / (time.perf_counter() - began)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vocab", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {f"vocab_{vocab}": measure(vocab, options.rounds) for vocab in options.vocab}
    if options.json:
        print(json.dumps({"unit": "useful tokens/s", "threads": options.threads, **found}))
        return
    for name, values in found.items():
        print(name, *(f"{key}={value}" for key, value in values.items()))


if __name__ == "__main__":
    main()
