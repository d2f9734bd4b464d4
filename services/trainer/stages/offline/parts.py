"""Builds the parts of each stage on given examples from settings: data, model, objective."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.load_order import shards_over, whole_models
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.loading import load_value_model
from headrace.services.trainer.model.model import Policy, TrainedModule, ValueModel
from headrace.services.trainer.stages.offline.dpo import Preference, ReferencedPair
from headrace.services.trainer.stages.offline.examples import (
    Example,
    PreferencePair,
    data_digest,
    read_examples,
    read_pairs,
)
from headrace.services.trainer.stages.offline.packing_check import must_join
from headrace.services.trainer.stages.offline.reference import folder_digest, with_reference
from headrace.services.trainer.stages.offline.reward_model import RankedScores
from headrace.services.trainer.stages.offline.sft import Supervised
from headrace.services.trainer.stages.offline.step import Objective
from headrace.services.trainer.stages.parts import backend_options, digest_of, load_trained_policy, prepare_torch
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import check_same_model
from headrace.wire.telemetry.logs import get_logger

_NOT_IN_WEIGHTS = (
    *("resume", "memory_fraction", "checkpoint_every"),
    *("peak_tflops", "checkpoint_deadline_s", "keep_checkpoints", "nodes", "rendezvous"),
)
E = TypeVar("E")
log = get_logger("trainer.stage")


@dataclass(frozen=True, slots=True)
class Job(Generic[E]):
    """An objective with its training and held-out examples."""

    objective: Objective[E]
    train: Sequence[E]
    held_out: Sequence[E]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: how its examples are read, its model loaded, and both put together."""

    read: Callable[[Path], Sequence[object]]
    load: Callable[[StageSettings, torch.device, Ranks | None], Policy | ValueModel]
    job: Callable[[StageSettings, Backend, Sequence[Any], Sequence[Any]], Job[Any]]


def read_sets(settings: StageSettings) -> tuple[Sequence[object], Sequence[object]]:
    """Training and held-out examples of the run directory; the latter may be absent. Raises DataError."""
    read = STAGES[settings.run.stage].read
    held_out = RunPaths(settings.run_dir).eval_examples
    return read(RunPaths(settings.run_dir).examples), read(held_out) if held_out.is_file() else []


def load_stage_backend(settings: StageSettings, ranks: Ranks, device: torch.device) -> Backend:
    """Loads model and optimizer in their initial state. Raises ConfigError for another model than at the start."""
    again = bool(settings.model.lora.rank) or settings.run.stage == "dpo"
    check_same_model(settings.model.path, settings.run_dir, weights=again)
    prepare_torch(settings, device)
    shards = shards_over(settings, ranks)
    with whole_models(ranks, settings.model.path, sharded=shards is not None):
        module = STAGES[settings.run.stage].load(settings, device, shards)
    table = settings.table
    return make_backend(module, ranks, device, backend_options(settings, table, weight_decay=table.weight_decay))


def stage_digest(settings: StageSettings) -> str:
    """Hex sha256 of all settings that the weights depend on."""
    values = settings.model_dump(mode="json", include={"model", "trainer", settings.run.stage})
    values["model"].pop("path")
    return digest_of(values | {"stage": settings.run.stage, "seed": settings.run.seed}, _NOT_IN_WEIGHTS)


def _value_model(settings: StageSettings, device: torch.device, shards: Ranks | None) -> ValueModel:
    if settings.model.lora.rank:
        raise ConfigError("model.lora.rank: a reward model is trained whole, without adapters; set it to 0")
    return load_value_model(
        settings.model.path,
        device=str(device),
        forward_dtype=getattr(torch, settings.model.dtype),
        gradient_checkpointing=settings.trainer.gradient_checkpointing,
        ranks=shards,
    )


def _supervised(
    settings: StageSettings, backend: Backend, train: Sequence[Example], held_out: Sequence[Example]
) -> Job[Example]:
    table = settings.sft
    joined = bool(table.pack_tokens) and must_join(backend, chunk=table.logprob_chunk)
    objective = Supervised(pack_tokens=table.pack_tokens, logprob_chunk=table.logprob_chunk, joined=joined)
    return Job(objective, train, held_out)


def _ranked(
    settings: StageSettings, backend: Backend, train: Sequence[PreferencePair], held_out: Sequence[PreferencePair]
) -> Job[PreferencePair]:
    _pad_apart(backend.module, train)
    return Job(RankedScores(centering=settings.reward_model.centering), train, held_out)


def _pad_apart(module: TrainedModule, pairs: Sequence[PreferencePair]) -> None:
    """Removes the pad token from the config if answers end with it.

    A loaded classifier scores the last token that is not padding. Without a pad token it scores single sequences
    correctly, and refuses several at a time.
    """
    ends = {int(side.token_ids[-1]) for pair in pairs for side in (pair.chosen, pair.rejected)}
    config = module.model.config.get_text_config()
    if config.pad_token_id in ends:
        config.pad_token_id = None
        log.warning("pad_token_dropped", reason="answers end with it", effect="the exported config has none")


def _preference(
    settings: StageSettings, backend: Backend, train: Sequence[PreferencePair], held_out: Sequence[PreferencePair]
) -> Job[ReferencedPair]:
    table = settings.dpo
    dtype = settings.model.dtype + (" fp32_head" if settings.model.widens_head else "")
    digests = [folder_digest(settings.model.path), dtype, data_digest(train), data_digest(held_out)]
    sets = with_reference(
        backend,
        {"train": train, "held_out": held_out},
        path=RunPaths(settings.run_dir).reference_logprobs,
        digest=hashlib.sha256("|".join(digests).encode()).hexdigest(),
        chunk=table.logprob_chunk,
        micro_batch_tokens=table.micro_batch_tokens,
    )
    objective = Preference(
        kind=table.loss, beta=table.beta, label_smoothing=table.label_smoothing, logprob_chunk=table.logprob_chunk
    )
    return Job(objective, sets["train"], sets["held_out"])


STAGES: Mapping[str, Stage] = MappingProxyType(
    {
        "sft": Stage(read_examples, load_trained_policy, _supervised),
        "reward_model": Stage(read_pairs, _value_model, _ranked),
        "dpo": Stage(read_pairs, load_trained_policy, _preference),
    }
)
