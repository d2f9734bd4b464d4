"""How far trainer and engine are apart by `model.dtype` and `model.fp32_head`: |logprob difference| of sampled tokens.

An engine samples rollouts of a random 5.2 M Qwen3 whose logits are scaled to the size that trained models have, since
what bfloat16 rounds by is a share of that; the trainer's `single` backend scores them with the same weights.

    python -m benchmarks.logprob_gap --json
    python -m benchmarks.logprob_gap --engine sglang --venv VENV --json
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks import workload
from headrace.services.rollout.app import start_engine
from headrace.services.rollout.engines.protocol import Completion, Engine, GenerateRequest
from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.wire.contracts import PolicyVersion, Sampling
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import make_snapshot, save_weights

KINDS = {
    "float32": ("float32", False),
    "bfloat16": ("bfloat16", False),
    "bfloat16, fp32_head": ("bfloat16", True),
}
VERSION = PolicyVersion(incarnation=1, version=0)
TIMEOUT_S = 120.0

LOGIT_STD = 6.0
PROMPT = 16


def make_folder(folder: Path) -> Path:
    """A Hugging Face folder of random weights; the last norm makes the logits as large as was said."""
    torch.manual_seed(0)
    config = workload.model_config(workload.VOCABULARY, pad=0, eos=1)
    # A tied head of random weights would say each token again.
    config.tie_word_embeddings = False
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        ids = torch.randint(2, workload.VOCABULARY, (4, 64))
        model.model.norm.weight.mul_(LOGIT_STD / model(ids).logits.std())
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    return folder


async def rollouts_of(engine: Engine, folder: Path, size: tuple[int, int, int]) -> list[tuple[np.ndarray, Completion]]:
    """`size`: prompts, rollouts of each, tokens of a rollout."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    await _publish(engine, model, folder)
    prompts, group, tokens = size
    draw = np.random.default_rng(0)
    asked = [draw.integers(2, workload.VOCABULARY, PROMPT).astype(np.int32) for _ in range(prompts)]
    requests = [
        GenerateRequest(
            group_id=f"gap/g{index:08d}",
            token_ids=prompt,
            seeds=tuple(range(index * group, (index + 1) * group)),
            sampling=Sampling(max_tokens=tokens),
        )
        for index, prompt in enumerate(asked)
    ]
    groups = await asyncio.gather(*map(engine.generate, requests))
    return [(prompt, each) for prompt, group in zip(asked, groups, strict=True) for each in group]


async def _publish(engine: Engine, model: Any, folder: Path) -> None:
    if isinstance(engine, TorchEngine):
        await engine.adopt(dict(model.named_parameters()), VERSION, TIMEOUT_S)
        return
    target = folder / "published"
    save_weights(target, model.named_parameters(), {})
    (target / "config.json").write_text((folder / "config.json").read_text())
    plan = make_snapshot(model.named_parameters(), dtype=torch.float32, bucket_bytes=1 << 26).plan
    await engine.prepare(VERSION, plan, TIMEOUT_S)
    await engine.receive(
        plan, rollout_pb2.ReceiveWeightsRequest(publication_id="gap", disk_path=str(target)), TIMEOUT_S
    )
    await engine.install(VERSION, plan.weights_digest, TIMEOUT_S)
    await engine.resume(TIMEOUT_S)


def gaps(policy: Policy, rollouts: Sequence[tuple[np.ndarray, Completion]]) -> np.ndarray:
    """Logprob gaps of all sampled tokens, in nats."""
    found = []
    for prompt, rollout in rollouts:
        ids = torch.from_numpy(np.concatenate([prompt, rollout.token_ids])).long()
        places = torch.arange(len(prompt) - 1, len(ids) - 1)
        with torch.no_grad():
            ones = torch.ones(len(places))
            scores = policy(ids[None, :-1], torch.zeros_like(places), places, ids[len(prompt) :], ones, 256)
        found.append(np.abs(scores.logprobs.numpy() - rollout.logprobs))
    return np.concatenate(found)


def settings_of(folder: Path, run_dir: Path, engine: str, venv: Path, dtype: str, fp32_head: bool) -> RolloutSettings:
    """Settings of a replica on the CPU."""
    rollout = {"engine": engine, "max_rows": 64, "context_length": 512, "sglang": {"venv": venv, "device": "cpu"}}
    model = {"path": folder, "dtype": dtype, "fp32_head": fp32_head}
    return RolloutSettings.model_validate({"model": model, "rollout": rollout, "run_dir": run_dir})


async def measure(engine_name: str, venv: Path, size: tuple[int, int, int]) -> dict[str, dict[str, float]]:
    """Mean, 99th percentile and largest gap by kind."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        folder = make_folder(Path(name) / "model")
        for kind, (dtype, fp32_head) in KINDS.items():
            engine = await start_engine(settings_of(folder, Path(name), engine_name, venv, dtype, fp32_head))
            try:
                rollouts = await rollouts_of(engine, folder, size)
            finally:
                await engine.close(30)
            policy = load_policy(
                folder, device="cpu", forward_dtype=getattr(torch, dtype), trainable=False, fp32_head=fp32_head
            )
            gap = gaps(policy, rollouts)
            found[kind] = {
                "nll": -float(np.mean(np.concatenate([each.logprobs for _, each in rollouts]))),
                "mean": float(gap.mean()),
                "p99": float(np.quantile(gap, 0.99)),
                "max": float(gap.max()),
                "tokens": float(len(gap)),
            }
    return found


def main() -> None:
    """Prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("torch", "sglang"), default="torch")
    parser.add_argument("--venv", type=Path, default=Path(), help="the environment with SGLang")
    parser.add_argument("--size", type=int, nargs=3, default=(8, 8, 64), metavar=("PROMPTS", "ROLLOUTS", "TOKENS"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = asyncio.run(measure(arguments.engine, arguments.venv.absolute(), tuple(arguments.size)))
    if arguments.json:
        print(json.dumps(found))
        return
    for kind, numbers in found.items():
        print(f"{kind:22}", *(f"{name} {value:.2g}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
