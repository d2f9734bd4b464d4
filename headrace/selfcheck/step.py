"""One training step on a GPU by model size: seconds, trained tokens a second, MFU, peak memory. Random weights.

python -P -m headrace.selfcheck.step --size 0.6 --longest 4096 --budget 16384 --on cuda|cpu
"""

import argparse
import sys
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, Qwen3Config

from headrace.doctor.memory_plan import Training, trainer_gpu
from headrace.doctor.sizes import ModelShape, shape_of
from headrace.selfcheck.probe import device_of, end, parser, synchronize
from headrace.services.trainer.algorithms.registry import build_algorithm
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.chunks import logprob_chunk
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


def _qwen3(
    hidden: int, layers: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, vocab: int = 151936
) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
    )


SIZES = {
    "tiny": _qwen3(64, 2, 128, 4, 2, 16, 256),
    "0.6": _qwen3(1024, 28, 3072, 16, 8, 128),
    "1.7": _qwen3(2048, 28, 6144, 16, 8, 128),
    "4": _qwen3(2560, 36, 9728, 32, 8, 128),
}


def planned_shape(config: PreTrainedConfig) -> ModelShape:
    """What the memory plan is computed from, without any weights."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    return shape_of(shapes, config.to_dict(), tied=config.tie_word_embeddings)


def main() -> int:
    """Measures the mean of two steps, after one for warm-up."""
    made = parser(__doc__ or "")
    made.add_argument("--size", choices=tuple(SIZES), default="0.6")
    made.add_argument("--longest", type=int, default=4096)
    made.add_argument("--budget", type=int, default=16384)
    made.add_argument("--tokens", type=int, default=65536)
    made.add_argument("--chunk", type=int, default=0)
    made.add_argument("--compile", action="store_true")
    made.add_argument("--checkpointing", action="store_true")
    options = made.parse_args()
    device, size = device_of(options.on), SIZES[options.size]
    if device.type == "cuda" and (lack := _lack(size, options, torch.cuda.mem_get_info(device)[0])):
        end(ok=False, here=False, said=lack)
        return 0
    backend, parameters = _backend(size, device, options)
    peak = peak_flops(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    table = AlgorithmTable()
    algorithm = build_algorithm(table)
    config = StepConfig(
        algorithm=algorithm, table=table, micro_batch_tokens=options.budget, logprob_chunk=options.chunk, grad_clip=1.0
    )
    count = max(options.tokens // (_GROUP_SIZE * options.longest // 2), 1)
    batch = assemble([_group(index, options.longest, size.vocab_size) for index in range(count)], version=0)
    models, rates = StepModels(policy=backend), Rates(policy=1e-6)
    train_step(models, batch, config, rates)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    synchronize(device)
    began = time.perf_counter()
    found = [train_step(models, batch, config, rates).metrics["loss"] for _ in range(_STEPS)]
    synchronize(device)
    seconds = (time.perf_counter() - began) / _STEPS
    rows = [rollout.row_tokens for rollout in batch.rollouts]
    flops = training_flops(backend.module.compute, [row for one in batch.rollouts for row in one.work])
    numbers = {
        "tokens_per_second": round(sum(rows) / seconds),
        "seconds": round(seconds, 3),
        "mfu": round(flops / seconds / peak, 4) if peak is not None else None,
        "peak_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 1) if device.type == "cuda" else None,
    }
    said = ", ".join(f"{name} {value}" for name, value in numbers.items() if value is not None)
    end(ok=bool(np.isfinite(found).all()), said=said, parameters=parameters, **numbers)
    return 0


def _lack(size: Qwen3Config, options: argparse.Namespace, free: int) -> str:
    """What is missing if the memory plan finds the step too large for a GPU with `free` bytes."""
    how = Training(
        micro_batch_tokens=options.budget,
        logprob_chunk=logprob_chunk(options.chunk, "cuda"),
        checkpointing=options.checkpointing,
    )
    needed = trainer_gpu(planned_shape(size), how, first=False).total
    return f"needs {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free" if needed > free else ""


def _backend(size: Qwen3Config, device: torch.device, options: argparse.Namespace) -> tuple[SingleDevice, int]:
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(size, dtype=torch.float32)
    model.train()
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = Policy(model, forward_dtype=torch.bfloat16)
    backend = SingleDevice(policy, options=BackendOptions(compiled=options.compile))
    return backend, sum(weight.numel() for weight in model.parameters())


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


if __name__ == "__main__":
    sys.exit(main())
