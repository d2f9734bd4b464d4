"""Holds the files of a replay: a live run removes its older checkpoints and batches meanwhile."""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.services.trainer.config.replay import ReplayTable
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.stages.replay.plan import ReplayPlan, plan_replay
from headrace.services.trainer.stages.restore import JournaledHistory, read_history
from headrace.wire.errors import ConfigError
from headrace.wire.journal import BatchRecord, has_payload, payload_path, read_journal
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams.columns import link_kept
from headrace.wire.telemetry.logs import get_logger

_TRIES = 5
log = get_logger("trainer.replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """What is replayed, and where its files are."""

    plan: ReplayPlan
    history: JournaledHistory
    journal: Path
    checkpoint: Path | None
    """None: the model that the run began with."""


def hold_source(table: ReplayTable, folder: Path) -> ReplaySource:
    """Links (or, from another file system, copies) what the replay needs into `folder`, which the caller removes.

    Raises ConfigError for steps that cannot be replayed.
    """
    journal = RunPaths(table.source).journal
    if not journal.is_dir():
        raise ConfigError(f"{table.source} has no journal: only runs of the stage rl keep one")
    store = CheckpointStore(RunPaths(table.source).checkpoints, keep=1)
    for _ in range(_TRIES):
        checkpoints = dict(store.published())
        try:
            return _hold_now(table, journal, checkpoints, folder)
        except (FileNotFoundError, ConfigError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, ConfigError) and dict(store.published()) == checkpoints:
                raise
            log.info("source_moved_on", reason=str(error))
    raise ConfigError(f"{table.source} is alive and removes batches faster than they can be held: try again later")


def _hold_now(table: ReplayTable, journal: Path, checkpoints: Mapping[int, Path], folder: Path) -> ReplaySource:
    history = read_history(list(read_journal(journal)))
    payloads = {step for step, record in history.batches.items() if has_payload(journal, record)}
    plan = plan_replay({0, *checkpoints}, payloads, after=table.after, last=table.last)
    records = [history.batches[step] for step in range(plan.after + 1, plan.last + 1)]
    link_kept(table.source, folder, {index for record in records for index in record.group_indices}, _link)
    return ReplaySource(
        plan=plan,
        history=history,
        journal=_hold_batches(journal, records, RunPaths(folder).journal),
        checkpoint=_hold(checkpoints[plan.after], folder / "checkpoint") if plan.after else None,
    )


def _hold_batches(journal: Path, records: Iterable[BatchRecord], target: Path) -> Path:
    for record in records:
        _link(payload_path(journal, record), payload_path(target, record))
    return target


def _hold(folder: Path, target: Path) -> Path:
    for path in folder.iterdir():
        _link(path, target / path.name)
    return target


def _link(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, target)
