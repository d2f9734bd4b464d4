"""Measures training steps of a model with random weights on random rollouts."""

import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import assemble
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import train_step
from headrace.services.trainer.throughput.flops import training_flops
from headrace.services.trainer.throughput.peak import peak_flops
from headrace.wire.contracts import (
    FinishReason,
    PolicyVersion,
    PromptGroup,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    VersionSpan,
    group_id,
    rollout_id,
)

_GROUP_SIZE, _PROMPT, _STEPS = 8, 16, 2


def measure_step(
    config: PretrainedConfig,
    device: torch.device,
    *,
    longest: int,
    tokens: int,
    micro_batch_tokens: int,
    chunk: int,
    compiled: bool,
    checkpointing: bool,
) -> tuple[bool, dict[str, float | None]]:
    """The mean of two steps of about `tokens` tokens, after one for warm-up; rollouts have `longest` at most.

    Returns whether the losses are finite, and `parameters`, `tokens_per_second`, `seconds`, `mfu`, `peak_gib`: None
    where it cannot be known on this device.
    """
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = SingleDevice(Policy(model, forward_dtype=torch.bfloat16), options=BackendOptions(compiled=compiled))
    on_gpu = device.type == "cuda"
    peak = peak_flops(torch.cuda.get_device_name(device)) if on_gpu else None
    table = AlgorithmTable()
    how = StepConfig(
        algorithm=build_algorithm(table),
        table=table,
        micro_batch_tokens=micro_batch_tokens,
        logprob_chunk=chunk,
        grad_clip=1.0,
    )
    count = max(tokens // (_GROUP_SIZE * longest // 2), 1)
    batch = assemble([_group(index, longest, config.vocab_size) for index in range(count)], version=0)
    models, rates = StepModels(policy=policy), Rates(policy=1e-6)
    train_step(models, batch, how, rates)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    found = [train_step(models, batch, how, rates).metrics["loss"] for _ in range(_STEPS)]
    if on_gpu:
        torch.cuda.synchronize(device)
    seconds = (time.perf_counter() - began) / _STEPS
    rows = [rollout.row_tokens for rollout in batch.rollouts]
    flops = training_flops(policy.module.compute, [row for one in batch.rollouts for row in one.work])
    return bool(np.isfinite(found).all()), {
        "parameters": sum(weight.numel() for weight in policy.module.parameters()),
        "tokens_per_second": round(sum(rows) / seconds),
        "seconds": round(seconds, 3),
        "mfu": round(flops / seconds / peak, 4) if peak is not None else None,
        "peak_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 1) if on_gpu else None,
    }


def _group(index: int, longest: int, vocab: int) -> ScoredGroup:
    """A group of rollouts with random tokens, `longest` / 2 to `longest` long, scored 0 and 1 alternately."""
    draw = np.random.default_rng(index)
    group = group_id("selfcheck", index)
    span = PolicyVersion(incarnation=1, version=0)
    rollouts = []
    for number in range(_GROUP_SIZE):
        length = int(draw.integers(longest // 2, longest + 1))
        rollouts.append(
            Rollout(
                rollout_id=rollout_id(group, number),
                token_ids=draw.integers(2, vocab, length).astype(np.int32),
                logprobs=np.full(length, -np.log(vocab), np.float32),
                finish_reason=FinishReason.STOP,
                spans=(VersionSpan(start=0, end=length, version=span, weights_digest=""),),
                text="",
            )
        )
    prompt = PromptGroup(
        sample_id=f"sample-{index}",
        token_ids=draw.integers(2, vocab, _PROMPT).astype(np.int32),
        group_size=_GROUP_SIZE,
        sampling=Sampling(max_tokens=longest, temperature=1.0),
        min_version=0,
        text="",
    )
    scores = tuple(Score(rollout_id=one.rollout_id, value=float(n % 2)) for n, one in enumerate(rollouts))
    return ScoredGroup(group=RolloutGroup(prompt=prompt, rollouts=tuple(rollouts)), scores=scores)
