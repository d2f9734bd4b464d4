"""The restart: the newest valid checkpoint, then the journaled batches after it, to the end of the journal."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.wire.contracts import ScoredGroup, decode
from headrace.wire.errors import DataError, HeadraceError
from headrace.wire.journal import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    JournalDamagedError,
    JournalRecord,
    StepDoneRecord,
    read_payload,
)
from headrace.wire.rundir import atomic
from headrace.wire.telemetry.logs import get_logger

MAX_REPLAY_DEATHS = 3
_DEATHS = "replay-deaths.json"
log = get_logger("trainer.replay")


class PoisonBatchError(HeadraceError):
    """A journaled batch has killed the trainer each time it was replayed."""

    final = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledHistory:
    """The content of the journal, checked for contradictions."""

    batches: dict[int, BatchRecord]
    """Batches by step, 1 to the journal's end."""
    digests: dict[int, str]
    """Weights digest after a step, where it was journaled."""
    done: frozenset[int]
    """Steps whose end was journaled as such."""
    fates: tuple[GroupFate, ...]

    @property
    def last_step(self) -> int:
        """The journal's end; 0 for an empty one."""
        return max(self.batches, default=0)


def read_history(records: Sequence[JournalRecord]) -> JournaledHistory:
    """Reads the records.

    Raises JournalDamagedError unless steps are 1 to N with one batch each, and no group ends twice.
    """
    batches: dict[int, BatchRecord] = {}
    digests: dict[int, str] = {}
    done: set[int] = set()
    fates: dict[int, GroupFate] = {}
    for item in records:
        match item.record:
            case BatchRecord() as batch:
                if batch.step != len(batches) + 1:
                    raise JournalDamagedError(f"{item.segment}: step {batch.step} follows step {len(batches)}")
                batches[batch.step] = batch
            case StepDoneRecord(step=step, weights_digest=digest):
                digests[step] = digest
                done.add(step)
            case IncarnationRecord(version=version, weights_digest=digest):
                digests[version] = digest
            case DroppedRecord():
                pass
        for fate in _fates_of(item):
            if fate.group_index in fates:
                raise JournalDamagedError(f"{item.segment} before {item.end}: {fate.group_id} ends a second time")
            fates[fate.group_index] = fate
    return JournaledHistory(batches=batches, digests=digests, done=frozenset(done), fates=tuple(fates.values()))


def _fates_of(item: JournalRecord) -> list[GroupFate]:
    match item.record:
        case BatchRecord() as batch:
            pairs = zip(batch.group_indices, batch.group_ids, strict=True)
            return [GroupFate(group_index=index, group_id=name, step=batch.step) for index, name in pairs]
        case DroppedRecord() as drop:
            return [GroupFate(group_index=drop.group_index, group_id=drop.group_id, reason=drop.reason)]
        case _:
            return []


def replay(
    journal: Path, history: JournaledHistory, *, after_step: int, train: Callable[[int, Sequence[ReadyGroup]], None]
) -> None:
    """Trains the journaled batches of the steps after `after_step` again, in order.

    Raises PoisonBatchError for a batch that has killed the trainer `MAX_REPLAY_DEATHS` times while it was replayed, and
    DataError if a payload is gone that no valid checkpoint covers.
    """
    deaths = _read_deaths(journal)
    for step in range(after_step + 1, history.last_step + 1):
        record = history.batches[step]
        _check_deaths(journal, record, deaths.get(step, 0))
        deaths[step] = deaths.get(step, 0) + 1
        _write_deaths(journal, deaths)
        try:
            train(step, journaled_groups(journal, record))
        except StepInterruptedError:
            (journal / _DEATHS).unlink()  # Asked to stop: not a death.
            raise
        del deaths[step]
    (journal / _DEATHS).unlink(missing_ok=True)


def journaled_groups(journal: Path, record: BatchRecord) -> list[ReadyGroup]:
    """Returns the groups of a journaled batch, in order; raises DataError if its payload is gone."""
    try:
        messages = read_payload(journal, record)
    except FileNotFoundError as error:
        raise DataError(
            f"step {record.step} must be replayed, but {error.filename} was removed when a checkpoint covered it, and "
            "no valid checkpoint that new is left: restore one from a backup, or begin a new run"
        ) from error
    triples = zip(record.group_indices, record.group_ids, messages, strict=True)
    return [_group(index, name, data) for index, name, data in triples]


def _group(index: int, name: str, data: bytes) -> ReadyGroup:
    body = decode(data).body
    assert isinstance(body, ScoredGroup)
    return ReadyGroup(
        group_index=index,
        group_id=name,
        min_version=body.group.min_version,
        sources=frozenset(),
        scored=body,
        data=data,
    )


def _check_deaths(journal: Path, record: BatchRecord, deaths: int) -> None:
    groups = ", ".join(record.group_ids)
    if deaths >= MAX_REPLAY_DEATHS:
        raise PoisonBatchError(
            f"the batch of step {record.step} has killed the trainer {deaths} times while it was replayed; its "
            f"groups are {groups}. Find the cause in the log, then remove {journal / _DEATHS} to try again"
        )
    if deaths:
        log.warning("replaying_again", step=record.step, died_before=deaths, groups=groups)


def _read_deaths(journal: Path) -> dict[int, int]:
    path = journal / _DEATHS
    if not path.exists():
        return {}
    return {int(step): int(count) for step, count in json.loads(path.read_text()).items()}


def _write_deaths(journal: Path, deaths: dict[int, int]) -> None:
    """Counts a replay as a death before it begins, so that the count survives it."""
    path = journal / _DEATHS
    atomic.write_text(path, json.dumps(deaths), durable=True)
