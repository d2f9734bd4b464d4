"""One fixed batch for both sides: random tokens, behaviour logprobs that differ from the policy's, fixed rewards."""

from pathlib import Path

import numpy as np
import torch

from benchmarks import workload
from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import StepBatch, TrainRollout
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import train_step

ROLLOUTS = 16
NOISE = 0.3
"""Standard deviation, nats: some ratios are clipped."""


def headrace_loss(model: Path, out: Path) -> float:
    """Our loss of the batch; writes the batch for the other side to `out`."""
    torch.set_num_threads(1)
    policy = load_policy(model, device="cpu", forward_dtype=torch.float32)
    backend = SingleDevice(policy, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    rng = np.random.default_rng(0)
    prompts = rng.integers(2, workload.VOCABULARY, (ROLLOUTS, workload.PROMPT_WORDS)).astype(np.int32)
    lengths = rng.integers(3, 60, ROLLOUTS)
    completions = [rng.integers(2, workload.VOCABULARY, length).astype(np.int32) for length in lengths]
    behaviour = [
        _logprobs(policy, p, c) + rng.normal(0, NOISE, len(c)) for p, c in zip(prompts, completions, strict=True)
    ]
    behaviour = [np.minimum(values, 0).astype(np.float32) for values in behaviour]
    rollouts = tuple(
        TrainRollout(
            prompt_ids=p, completion_ids=c, behaviour_logprobs=b, current=np.ones(len(c), bool), temperature=1.0
        )
        for p, c, b in zip(prompts, completions, behaviour, strict=True)
    )
    rewards = torch.tensor(rng.normal(size=(ROLLOUTS // workload.GROUP_SIZE, workload.GROUP_SIZE)))
    batch = StepBatch(rollouts=rollouts, rewards=tuple(rewards), max_tokens=workload.MAX_TOKENS)
    outcome = train_step(StepModels(policy=backend), batch, _config(), Rates(policy=0.0))
    _write(out, prompts, completions, behaviour, outcome.advantages)
    return outcome.metrics["loss"]


def _config() -> StepConfig:
    table = AlgorithmTable(clip_low=0.2, clip_high=0.2, aggregation="seq-mean-token-mean")
    return StepConfig(
        algorithm=build_algorithm(table),
        table=table,
        micro_batch_tokens=512,
        logprob_chunk=64,
        grad_clip=1.0,
    )


def _logprobs(policy: Policy, prompt: np.ndarray, completion: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(np.concatenate([prompt, completion]).astype(np.int64))
    with torch.no_grad():
        logits = policy.hidden(ids[None, :-1])[0] @ policy.head.T
    scores = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
    return scores[len(prompt) - 1 :].numpy()


def _write(
    out: Path,
    prompts: np.ndarray,
    completions: list[np.ndarray],
    behaviour: list[np.ndarray],
    advantages: tuple[float, ...],
) -> None:
    longest = max(map(len, completions))

    def padded(rows: list[np.ndarray], dtype: type) -> np.ndarray:
        return np.stack([np.pad(row, (0, longest - len(row))) for row in rows]).astype(dtype)

    np.savez(
        out,
        prompt_ids=prompts.astype(np.int64),
        prompt_mask=np.ones_like(prompts, dtype=np.int64),
        completion_ids=padded(completions, np.int64),
        completion_mask=padded([np.ones(len(c)) for c in completions], np.int64),
        old_per_token_logps=padded(behaviour, np.float32),
        advantages=np.array(advantages, np.float32),
    )
