"""Checks that the rollouts of the journaled batches were sampled under proven weights, and are not too old.

They are read from the journal's payloads or, if a checkpoint covers those, from `RUN/rollouts/`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.inspect.history.record import Batch, RunHistory, batches_by_step
from headrace.inspect.history.verdict import Bound
from headrace.wire.contracts import PolicyVersion, ScoredGroup, decode
from headrace.wire.errors import ContractError, DataError
from headrace.wire.journal import JournalDamagedError, stream_payload
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.rollouts import columns, read

_COLUMNS = columns("group_id", "rollout_index", "replica_id", "spans")
_MASKED = columns("group_id", "rollout_index", "spans", "tokens", "trained_tokens", "token_advantages")
_PLAYERS = "environment-"
"""Beginning of the names of workers that play episodes: what they report, replicas have sampled."""
Span = tuple[PolicyVersion, str]
"""Version and weights digest under which some tokens were sampled."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The weights that one trained rollout was sampled under."""

    group_id: str
    rollout_id: str
    replica_id: str
    spans: tuple[Span, ...]


def look_at_rollouts(history: RunHistory, bound: Bound, problems: list[str]) -> int:
    """Adds the problems of all trained rollouts; returns the number of steps that can no longer be checked."""
    gone, reporting = 0, set().union(*history.generated.values())
    for step, batch in batches_by_step(history):
        try:
            sampled = _of_step(history, batch)
        except (JournalDamagedError, ContractError, OSError, ValueError) as error:
            problems.append(f"the rollouts of step {step} cannot be read: {error}")
            continue
        if sampled is None:
            gone += 1
            continue
        if {one.group_id for one in sampled} != set(batch.record.group_ids):
            problems.append(f"the payload of step {step} has other groups than its record")
        problems += _not_generated(history, step, sampled, reporting)
        for one in sampled:
            problems += _about(history, step, one, bound)
        if bound.masks:
            masked = _masked(_file(history, step), step, bound)
            gone += masked is None
            problems += masked or ()
    return gone


def _of_step(history: RunHistory, batch: Batch) -> list[Sampled] | None:
    try:
        messages = stream_payload(RunPaths(history.run_dir).journal, batch.record)
        return [one for data in messages for one in _from_message(data)]
    except FileNotFoundError:
        return _from_parquet(_file(history, batch.record.step))


def _file(history: RunHistory, step: int) -> Path:
    return RunPaths(history.run_dir).rollout_file(step)


def _from_message(data: bytes) -> Iterator[Sampled]:
    message = decode(data)
    name, body = message.header.group_id, message.body
    if not isinstance(body, ScoredGroup):
        raise ContractError("bad_batch", f"{name} is a {type(body).__name__}")
    for rollout in body.group.rollouts:
        spans = tuple((span.version, span.weights_digest) for span in rollout.spans)
        yield Sampled(name, rollout.rollout_id, body.group.replica_id, spans)


def _from_parquet(path: Path) -> list[Sampled] | None:
    """Columns `replica_id` and `spans` (JSON: [[start, end, "incarnation.version", digest], ...]), else None."""
    rows = _rows(path, _COLUMNS)
    if rows is None:
        return None
    return [
        Sampled(
            row["group_id"],
            f"{row['group_id']}/{row['rollout_index']}",
            row["replica_id"],
            tuple((version, digest) for _, _, version, digest in _spans(row["spans"])),
        )
        for row in rows
    ]


def _spans(text: str) -> list[tuple[int, int, PolicyVersion, str]]:
    """Start, end, version and digest of each span. Raises ContractError for other text."""
    try:
        return [
            (int(start), int(end), PolicyVersion.parse(version), str(digest))
            for start, end, version, digest in json.loads(text)
        ]
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ContractError("bad_rollouts", "its spans are none") from None


def _rows(path: Path, names: Sequence[str]) -> list[dict[str, Any]] | None:
    """Reads columns; None if the file or a column is absent. Raises ContractError if it cannot be read."""
    try:
        table = read(path, names)
    except DataError as error:
        if not path.exists():
            return None  # Never written, or the trainer keeps newer ones only.
        raise ContractError("bad_rollouts", str(error)) from error
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows if set(names).issubset(table.column_names) else None


def _not_generated(history: RunHistory, step: int, sampled: Sequence[Sampled], reporting: Set[str]) -> Iterator[str]:
    """Groups whose rollouts name a worker that did not report them; `reporting` excludes those that report none.

    A group may have been generated more than once, as by a worker that died before its ack. One result was trained.
    """
    for group, worker in dict.fromkeys((one.group_id, one.replica_id) for one in sampled):
        if worker in reporting and worker not in history.generated.get(group, ()):
            yield f"group {group} of step {step} was trained as generated by {worker}, which never reported it"


def _about(history: RunHistory, step: int, one: Sampled, bound: Bound) -> Iterator[str]:
    staleness = step - 1 - min((version.version for version, _ in one.spans), default=step - 1)
    if staleness > bound.versions and not (bound.masks or bound.is_late):
        yield f"rollout {one.rollout_id} was {staleness} versions old in step {step}, {bound.versions} are allowed"
    for version, digest in one.spans:
        if version.version > step - 1:
            yield f"rollout {one.rollout_id} of step {step} was sampled under version {version}, which is later"
        if not _was_committed(history, one.replica_id, version, digest):
            yield (
                f"rollout {one.rollout_id} of step {step} was sampled under weights {version} "
                f"({digest[:17] or 'no digest'}) that {_whose(one.replica_id)} never committed"
            )


def _was_committed(history: RunHistory, replica_id: str, version: PolicyVersion, digest: str) -> bool:
    """Whether the replica committed these weights; of an episode, whose turns several may sample, whether any did."""
    numbers = (version.incarnation, version.version, digest)
    if not replica_id.startswith(_PLAYERS):
        return (replica_id, *numbers) in history.committed
    return any(committed[1:] == numbers for committed in history.committed)


def _whose(replica_id: str) -> str:
    return "any replica" if replica_id.startswith(_PLAYERS) else f"replica {replica_id}"


def _masked(path: Path, step: int, bound: Bound) -> list[str] | None:
    """Problems of a step that trained tokens over the bound; None if the trainer's file of it is gone."""
    try:
        rows = _rows(path, _MASKED)
        return None if rows is None else [problem for row in rows for problem in _over(row, step, bound)]
    except ContractError as error:
        return [f"what was masked in step {step} cannot be read: {error}"]


def _over(row: Mapping[str, Any], step: int, bound: Bound) -> Iterator[str]:
    name = f"{row['group_id']}/{row['rollout_index']}"
    over = [
        (start, end) for start, end, version, _ in _spans(row["spans"]) if step - 1 - version.version > bound.versions
    ]
    within = row["tokens"] - sum(end - start for start, end in over)
    if row["trained_tokens"] > within:
        yield (
            f"rollout {name} was trained on {row['trained_tokens']} tokens in step {step}, {within} are within "
            f"run.max_staleness = {bound.versions}"
        )
    advantages = row["token_advantages"]
    if advantages is not None and any(one is not None for start, end in over for one in advantages[start:end]):
        yield f"rollout {name} has advantages on tokens over run.max_staleness = {bound.versions} in step {step}"
