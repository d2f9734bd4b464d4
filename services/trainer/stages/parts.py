"""Builds the parts of a stage from settings."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.frozen import Frozen, make_frozen
from headrace.services.trainer.backends.load_order import shards_over, whole_models
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.config.stage import StageSettings, StageTable
from headrace.services.trainer.discriminator.discriminator import DiscriminatorTrainer
from headrace.services.trainer.discriminator.examples import read_references
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability.staleness import most_lag
from headrace.services.trainer.learner.learner import Learner
from headrace.services.trainer.model.loading import load_policy, load_value_model
from headrace.services.trainer.model.lora import adapter_config
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.model.optimizers import OptimizerOptions
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.index_check import check_published
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.records.step_record import StepRecord
from headrace.services.trainer.settings import TrainerSettings, TrainerTable
from headrace.services.trainer.stages.own_functions import load_algorithm
from headrace.services.trainer.stages.ptx import read_ptx
from headrace.services.trainer.step.inputs import StepConfig
from headrace.wire.errors import ConfigError
from headrace.wire.host.compiler import compiler_lacks
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import check_same_model
from headrace.wire.v1 import common_pb2

_CANARY_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
_CONFIG_TABLES = {"model", "batch", "algorithm", "critic", "trainer", "run"}
_NOT_IN_WEIGHTS = (
    "resume",
    "memory_fraction",
    "peak_tflops",
    "publish",
    "cpu_offload",
    "checkpoint_every",
    "checkpoint_deadline_s",
    "keep_checkpoints",
    "keep_rollouts_mib",
    "disk_reserve_mib",
    "nodes",
    "rendezvous",
)


def prepare_torch(settings: TrainerSettings | StageSettings, device: torch.device) -> None:
    """Sets threads, seed and share of the GPU."""
    torch.set_num_threads(settings.run.threads)
    torch.manual_seed(settings.run.seed)
    if device.type == "cuda" and settings.trainer.memory_fraction < 1:
        torch.cuda.set_per_process_memory_fraction(settings.trainer.memory_fraction, device.index or 0)


def load_learner(settings: TrainerSettings, ranks: Ranks, device: torch.device) -> Learner:
    """Loads all models in their initial state, the same on every rank.

    Raises ConfigError for a model that cannot be trained or published, or has changed since the run's first start.
    """
    prepare_torch(settings, device)
    algorithm, table = settings.algorithm, settings.trainer
    # First: another model, and a function of the user's own, are refused before a model is loaded.
    again = bool(settings.model.lora.rank) or _wants_copy(settings)
    check_same_model(settings.model.path, settings.run_dir, weights=again)
    config = step_config(settings)
    shards = shards_over(settings, ranks)
    with whole_models(ranks, settings.model.path, sharded=shards is not None):
        policy = load_trained_policy(settings, device, shards)
    check_published(policy, settings.model.path)
    return Learner(
        settings,
        config,
        make_backend(policy, ranks, device, backend_options(settings, table, weight_decay=table.weight_decay)),
        critic=_load_critic(settings, ranks, device) if algorithm.needs_critic else None,
        reference=_load_reference(settings, ranks, device) if _wants_copy(settings) else None,
        discriminator=_load_discriminator(settings, ranks, device) if settings.discriminator.every else None,
    )


def load_trained_policy(
    settings: TrainerSettings | StageSettings, device: torch.device, shards: Ranks | None
) -> Policy:
    """The policy that is trained, whole or, with `shards`, this rank's part."""
    return load_policy(
        settings.model.path,
        device=str(device),
        forward_dtype=getattr(torch, settings.model.dtype),
        gradient_checkpointing=settings.trainer.gradient_checkpointing,
        trained=settings.model.trainable,
        lora=settings.model.lora,
        fp32_head=settings.model.fp32_head,
        ranks=shards,
    )


def backend_options(
    settings: TrainerSettings | StageSettings, own: TrainerTable | StageTable, *, weight_decay: float
) -> BackendOptions:
    """Options of the backend from `[trainer]`, with AdamW's own values from the table of the stage."""
    table = settings.trainer
    # Another machine than this one may have settled `auto`.
    if table.compile is True and settings.run.device.startswith("cuda") and (lacking := compiler_lacks(inherited())):
        raise ConfigError(
            f"trainer.compile needs what this machine lacks: {', '.join(lacking)}. Install it, or continue with "
            "--resume --trainer.compile false"
        )
    optimizer = OptimizerOptions(name=table.optimizer, betas=own.betas, eps=own.eps, weight_decay=weight_decay)
    return BackendOptions(
        name=table.backend,
        zero_stage=table.zero_stage,
        cpu_offload=table.cpu_offload,
        compiled=table.compile is True,
        optimizer=optimizer,
    )


def _load_critic(settings: TrainerSettings, ranks: Ranks, device: torch.device) -> Backend:
    critic = settings.critic
    return _value_backend(
        settings, ranks, device, critic.path, outputs=critic.quantiles, weight_decay=critic.weight_decay
    )


def _load_discriminator(settings: TrainerSettings, ranks: Ranks, device: torch.device) -> DiscriminatorTrainer:
    table = settings.discriminator
    references = read_references(table.reference, settings.model.path)
    backend = _value_backend(settings, ranks, device, table.path, outputs=1, weight_decay=table.weight_decay)
    return DiscriminatorTrainer(table, backend, references, micro_batch_tokens=settings.trainer.micro_batch_tokens)


def _value_backend(
    settings: TrainerSettings, ranks: Ranks, device: torch.device, path: Path, *, outputs: int, weight_decay: float
) -> Backend:
    """A value model with its own optimizer, beside the policy; an empty `path` means the policy's."""
    path = path if path.parts else settings.model.path
    shards = shards_over(settings, ranks)
    with whole_models(ranks, path, sharded=shards is not None):
        model = load_value_model(
            path,
            device=str(device),
            forward_dtype=getattr(torch, settings.model.dtype),
            outputs=outputs,
            gradient_checkpointing=settings.trainer.gradient_checkpointing,
            ranks=shards,
        )
    return make_backend(model, ranks, device, backend_options(settings, settings.trainer, weight_decay=weight_decay))


def _wants_copy(settings: TrainerSettings) -> bool:
    """Whether the reference needs a model of its own; with adapters it is the model without them."""
    return settings.algorithm.needs_reference and not settings.model.lora.rank


def _load_reference(settings: TrainerSettings, ranks: Ranks, device: torch.device) -> Frozen:
    dtype = getattr(torch, settings.model.dtype)
    model = load_policy(
        settings.model.path,
        device=str(device),
        forward_dtype=dtype,
        trainable=False,
        fp32_head=settings.model.fp32_head,
        # A frozen model is sharded regardless of the backend that trains.
        ranks=ranks if ranks.size > 1 else None,
    )
    return make_frozen(model, ranks, device, cpu_offload=settings.trainer.cpu_offload)


def step_config(settings: TrainerSettings) -> StepConfig:
    """Builds the values that do not change from step to step."""
    algorithm, table = settings.algorithm, settings.trainer
    return StepConfig(
        algorithm=load_algorithm(settings),
        table=algorithm,
        critic=settings.critic,
        most_lag=most_lag(settings.run.stale, settings.run.max_staleness),
        micro_batch_tokens=table.micro_batch_tokens,
        logprob_chunk=table.logprob_chunk,
        grad_clip=table.grad_clip,
        ptx=tuple(read_ptx(algorithm.ptx_data)) if algorithm.ptx_coef else (),
    )


def canary_maker(settings: TrainerSettings) -> Callable[[Backend], common_pb2.Canary]:
    """Returns the forward pass that proves a publication; every rank must run it."""
    table = settings.trainer
    return partial(
        make_canary,
        seed=settings.run.seed,
        length=table.canary_tokens,
        tolerance=table.canary_tolerance or _CANARY_TOLERANCE[settings.model.dtype],
        chunk=table.logprob_chunk,
    )


def make_publisher(settings: TrainerSettings) -> Publisher:
    """Builds the publisher, which holds the snapshots."""
    table = settings.trainer
    return Publisher(
        host=settings.reach,
        dtype=getattr(torch, settings.model.dtype),
        bucket_bytes=table.bucket_mib * 1024 * 1024,
        weights_folder=RunPaths(settings.run_dir).weights,
        model_path=settings.model.path,
        disk_only=table.publish == "disk",
        adapter_config=adapter_config(settings.model.lora, settings.model.path.name),
        canary=canary_maker(settings),
    )


def make_record(settings: TrainerSettings) -> StepRecord:
    """Builds the writer of the records of steps."""
    return StepRecord(
        settings.run_dir,
        keep_rollouts_mib=settings.trainer.keep_rollouts_mib,
        most_lag=most_lag(settings.run.stale, settings.run.max_staleness),
        source_column=settings.task_column,
    )


def config_digest(settings: TrainerSettings) -> str:
    """Hex sha256 of all settings that the weights depend on; paths, ports and deadlines are left out."""
    tables = _CONFIG_TABLES | ({"discriminator"} if settings.discriminator.every else set())
    values = settings.model_dump(mode="json", include=tables)
    if not settings.algorithm.needs:
        # Digests stay as they were before the key existed.
        del values["algorithm"]["needs"]
    paths = (("model", "path"), ("algorithm", "path"), ("algorithm", "ptx_data"))
    for table, key in (*paths, ("critic", "path"), ("discriminator", "path")):
        values.get(table, {}).pop(key, None)
    return digest_of(values, _NOT_IN_WEIGHTS)


def digest_of(values: dict[str, Any], left_out: Sequence[str]) -> str:
    """Hex sha256 of the tables, without deadlines and those keys of `[trainer]` that are `left_out`."""
    for key in [key for key in values["trainer"] if key.endswith("_timeout_s") or key in left_out]:
        del values["trainer"][key]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
