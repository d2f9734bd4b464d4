"""Compares the memory plan of a config with this machine: use per GPU and host, whether it fits, what to change."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.doctor.findings import Finding, fail, note, ok, warn
from headrace.doctor.machine import memory_of_machine
from headrace.doctor.memory_plan import (
    GB,
    OVERHEAD,
    MemoryPool,
    MemoryUse,
    Training,
    engine_gpu,
    resting_gpu,
    trainer_gpu,
    trainer_host,
)
from headrace.doctor.placement import gpu_rows, placement
from headrace.doctor.sizes import ModelShape, read_shape
from headrace.services.trainer.config.chunks import logprob_chunk
from headrace.services.trainer.config.stage import stage_table

_NAME = "memory plan"
_ESTIMATE = "what lies there for good is exact, what passes in a step an estimate (within 3% in four steps on an H200)"


def memory_plan(resolved: Resolved) -> Finding:
    """Estimates what the run takes on each GPU and on the host of machine 0."""
    shape = read_shape(resolved.config.model.path)
    if shape is None:
        return note(_NAME, "none: there is no model folder with safetensors yet")
    gpus = _gpu_bytes() if resolved.config.run.device.startswith("cuda") else []
    return judge(resolved, shape, gpus=gpus, host=memory_of_machine()[1])


def judge(resolved: Resolved, shape: ModelShape, *, gpus: Sequence[int], host: int) -> Finding:
    """Compares the plan with `gpus` (bytes of each GPU, empty if unknown) and `host` (bytes of host memory)."""
    config = resolved.config
    how = training_of(config, shape)
    cuda = config.run.device.startswith("cuda")
    places = {**(_gpu_places(config, shape, how) if cuda else {}), "host": [trainer_host(shape, how, gpus=cuda)]}
    lines, worst = [], ""
    for name, users in places.items():
        size = host if name == "host" else _size_of(name, gpus)
        lines.append(_line(name, users, size))
        if size and sum(user.total for user in users) > size:
            held = sum(part.bytes for user in users for part in user.held)
            worst = "fail" if held > size or worst == "fail" else "warn"
    said = "\n".join([*lines, _ESTIMATE])
    if not worst:
        return ok(_NAME, said)
    fix = _way_out(config, shape, how, gpus=gpus, host=host, cuda=cuda)
    return (fail if worst == "fail" else warn)(_NAME, said, fix)


def training_of(config: RunFile, shape: ModelShape) -> Training:
    """How the config trains `shape`."""
    table, model, algorithm = config.trainer, config.model, config.algorithm
    rl = config.run.stage == "rl"
    offline = None if rl else stage_table(config, config.run.stage)
    values = []
    if rl and algorithm.needs_critic:
        values.append(_value_shape(config.critic.path, shape))
    if rl and config.discriminator.every:
        values.append(_value_shape(config.discriminator.path, shape))
    backend = table.backend
    turns = rl and config.rollout.gpu_sharing == "turns"
    nccl = rl and config.rollout.engine == "sglang" and table.publish == "broadcast" and config.run.device != "cpu"
    return Training(
        backend=("single" if table.ranks == 1 else "fsdp2") if backend == "auto" else backend,
        ranks=table.ranks,
        nodes=table.nodes,
        zero_stage=table.zero_stage,
        cpu_offload=table.cpu_offload,
        dtype_bytes=4 if model.dtype == "float32" else 2,
        optimizer=table.optimizer,
        micro_batch_tokens=table.micro_batch_tokens if offline is None else offline.micro_batch_tokens,
        row_tokens=_longest_row(config),
        cp=table.cp,
        checkpointing=table.gradient_checkpointing,
        logprob_chunk=_chunk(offline or table, config.run.device),
        adapter_rank=model.lora.rank,
        targets=model.lora.targets,
        quantized=model.lora.quantize != "none",
        reference=rl and algorithm.needs_reference,
        values=tuple(values),
        turns=turns,
        nccl_links=config.rollout.replicas if nccl and not turns else 0,
        bucket=table.bucket_mib << 20,
    )


def _longest_row(config: RunFile) -> int:
    """Tokens of the longest unit of a forward pass, as far as the config bounds it."""
    if config.run.stage != "rl":
        sides = 1 if config.run.stage == "sft" else 2
        return sides * stage_table(config, config.run.stage).max_tokens
    return config.rollout.context_length or config.data.max_prompt_tokens + config.rollout.sampling.max_tokens


def _chunk(table: object, device: str) -> int:
    """Tokens of a chunk of logits; 0 for a stage that makes none."""
    given = getattr(table, "logprob_chunk", None)
    return 0 if given is None else logprob_chunk(given, device.partition(":")[0])


def _value_shape(path: Path, policy: ModelShape) -> ModelShape:
    """Shape of a model with a scalar head in place of the language model's head, where that is not tied."""
    shape = (read_shape(path) if path.parts else None) or policy
    own = 0 if shape.tied else shape.head
    return replace(shape, parameters=shape.parameters - own + shape.hidden, outside=shape.outside - own + shape.hidden)


def _gpu_places(config: RunFile, shape: ModelShape, how: Training) -> dict[str, list[MemoryPool]]:
    """GPU of machine 0 -> the memory pools that share it."""
    first = int(config.run.device.partition(":")[2] or 0)
    found: dict[str, list[MemoryPool]] = {}
    for rank in range(how.here):
        found[f"GPU {first + rank}"] = [trainer_gpu(shape, how, first=rank == 0)]
    if config.run.stage != "rl" or config.rollout.sglang.urls:
        return found
    rollout = config.rollout
    tokens = config.rollout.context_length or shape.context
    if how.turns:
        return _in_turns(config, shape, how, list(found), tokens)
    for replica in range(rollout.replicas):
        if rollout.engine == "torch":
            place = engine_gpu(
                shape, tp=1, dtype_bytes=how.dtype_bytes, tokens=rollout.torch_rows * tokens, kept_whole=True
            )
            found.setdefault(f"GPU {first}", []).append(place)
        elif rollout.sglang.device != "cpu":
            tp = rollout.sglang.tp
            begin = placement(config).first
            # Its cache takes what is left; it must hold at least one sequence.
            place = engine_gpu(shape, tp=tp, dtype_bytes=how.dtype_bytes, tokens=tokens, kept_whole=False)
            for number in range(begin + replica * tp, begin + (replica + 1) * tp):
                found.setdefault(f"GPU {number}", []).append(place)
    return found


def _in_turns(
    config: RunFile, shape: ModelShape, how: Training, gpus: list[str], tokens: int
) -> dict[str, list[MemoryPool]]:
    """Lists each GPU twice: its pools in the trainer's turn, and in the engine's."""
    rows = config.rollout.torch_rows if config.rollout.engine == "torch" else 1
    engine = engine_gpu(shape, tp=1, dtype_bytes=how.dtype_bytes, tokens=rows * tokens, kept_whole=False)
    asleep = MemoryPool("engine asleep", (MemoryUse("CUDA", OVERHEAD),))
    found: dict[str, list[MemoryPool]] = {}
    for rank, name in enumerate(gpus):
        found[f"{name} (trainer's turn)"] = [trainer_gpu(shape, how, first=rank == 0), asleep]
        found[f"{name} (engine's turn)"] = [resting_gpu(shape, how, first=rank == 0), engine]
    return found


def _line(name: str, users: Sequence[MemoryPool], size: int) -> str:
    total = sum(user.total for user in users)
    parts = [
        f"{'' if name == 'host' else user.name + ' '}{part.name} {part.bytes / GB:.1f}"
        for user in users
        for part in (*user.held, *user.passing)
        if part.bytes >= GB // 20
    ]
    of = f" of {size / GB:.1f}" if size else ""
    mark = "" if not size else ", fits" if total <= size else ", DOES NOT FIT"
    return f"{name}: {total / GB:.1f}{of} GB{mark}: {', '.join(parts) or 'next to nothing'}"


def _way_out(config: RunFile, shape: ModelShape, how: Training, *, gpus: Sequence[int], host: int, cuda: bool) -> str:
    """Names changes that make the run fit: each on its own, or several together."""

    def fits(changed: Training, *, alone: bool = False) -> bool:
        if trainer_host(shape, changed, gpus=cuda).total > host:
            return False
        places = _gpu_places(config, shape, changed) if cuda and gpus else {}
        return all(
            sum(user.total for user in users if user.name == "trainer" or not alone)
            <= (_size_of(name, gpus) or min(gpus))
            for name, users in places.items()
        )

    table = "trainer" if config.run.stage == "rl" else config.run.stage
    options = list(remedies(how, table))
    for count in range(1, len(options) + 1):
        found = [
            [text for text, _ in chosen]
            for chosen in combinations(options, count)
            if fits(replace(how, **{name: value for _, changes in chosen for name, value in changes.items()}))
        ]
        if found and count == 1:
            return "one of: " + "; ".join(one for (one,) in found[:4])
        if found:
            return "together: " + "; ".join(found[0])
    if fits(how, alone=True):
        return (
            "give the engine GPUs of its own (rollout.sglang.base_gpu_id), fewer rollout.replicas, or turns "
            '(rollout.gpu_sharing = "turns")'
        )
    return "a smaller model (model.path), or more and larger GPUs (trainer.ranks) and host memory"


def remedies(how: Training, table: str = "trainer") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields keys to change, with the changed fields of the plan. `table`: the one that sizes micro-batches."""
    if not how.checkpointing:
        yield "trainer.gradient_checkpointing = true", {"checkpointing": True}
    if how.micro_batch_tokens > 2048:
        yield f"{table}.micro_batch_tokens = 2048", {"micro_batch_tokens": 2048}
    if how.tokens > how.micro_batch_tokens and how.backend == "fsdp2":
        for cp in (2 * how.cp, 4 * how.cp, 8 * how.cp):
            if how.here % cp == 0:
                yield f"trainer.cp = {cp}", {"cp": cp}
    if how.dtype_bytes == 4:
        yield 'model.dtype = "bfloat16"', {"dtype_bytes": 2}
    if how.backend == "single" and how.optimizer == "adamw":
        yield 'trainer.optimizer = "adamw_8bit"', {"optimizer": "adamw_8bit"}
    if how.nodes == 1:
        ranks = 2 * how.ranks
        backend = "fsdp2" if how.backend == "single" else how.backend
        optimizer = "adamw" if how.optimizer == "adamw_8bit" else how.optimizer
        yield f"trainer.ranks = {ranks} (as many GPUs)", {"ranks": ranks, "backend": backend, "optimizer": optimizer}
    if how.backend != "single" and not how.cpu_offload:
        yield "trainer.cpu_offload = true", {"cpu_offload": True}
    if not how.adapter_rank:
        yield "model.lora.rank = 16", {"adapter_rank": 16}


def _size_of(name: str, gpus: Sequence[int]) -> int:
    number = int(name.split()[1])
    return gpus[number] if number < len(gpus) else 0


def _gpu_bytes() -> list[int]:
    """Bytes of each GPU as reported by the driver; empty if it reports none."""
    try:
        return [int(row.rpartition(",")[2].split()[0]) << 20 for row in gpu_rows()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
