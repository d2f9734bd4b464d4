"""Collects the records of one group from a run's events, journal and rollouts, without judging them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace.inspect.history.lines import missing_field
from headrace.wire.contracts import ScoredGroup, decode
from headrace.wire.errors import ContractError, DataError
from headrace.wire.journal import BatchRecord, DroppedRecord, JournalDamagedError, read_journal, read_payload
from headrace.wire.rundir import prompts, rollouts
from headrace.wire.rundir.episode_column import episode_view
from headrace.wire.rundir.events import name_of, read_events
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths

_OF_ALL = frozenset({"step_done", "publication_committed", "run_ended", "run_stopped", "issued"})
"""Names of the events that matter to every group."""


@dataclass(slots=True)
class Gathered:
    """All records of one group."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """Events that name the group, with `source`, by time."""
    done: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Step -> its first `step_done`."""
    commits: list[dict[str, Any]] = field(default_factory=list)
    """`publication_committed`, by time."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """`run_ended` and `run_stopped`, by time."""
    newest_issued: int = -1
    """Highest group index that was issued."""
    batch: BatchRecord | None = None
    """The journaled batch with the group."""
    dropped: DroppedRecord | None = None
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    """Rows as in `RUN/rollouts/`; an advantage only where the step is done."""
    notes: list[str] = field(default_factory=list)
    """What could not be read."""


def gather(run_dir: Path, group_id: str) -> Gathered:
    """Collects all records of the group; what cannot be read becomes a note."""
    found = Gathered()
    left_out: Counter[str] = Counter()
    for event in _events(run_dir, group_id, left_out):
        if _is_whole(event):
            _take(found, event, group_id)
        else:
            left_out[str(event["source"])] += 1
    found.notes += [
        f"lines of events/ by {source} that are none of its events, or are incomplete, were left out: {lines}"
        for source, lines in sorted(left_out.items())
    ]
    for rows in (found.events, found.commits, found.ends):
        rows.sort(key=lambda event: float(event.get("t", 0.0)))
    try:
        for item in read_journal(RunPaths(run_dir).journal):
            if isinstance(item.record, BatchRecord) and group_id in item.record.group_ids:
                found.batch = found.batch or item.record
            elif isinstance(item.record, DroppedRecord) and item.record.group_id == group_id:
                found.dropped = found.dropped or item.record
    except JournalDamagedError as error:
        found.notes.append(f"the journal is damaged: {error}")
    if found.batch is not None:
        found.rollouts = _rollouts(run_dir, found.batch, group_id, found.notes)
    return found


def prompt_of(run_dir: Path, sample_id: str, *, held_out: int | None = None) -> str:
    """The text of a prompt by its sample id, or of a held-out prompt by its number; empty if it is not there."""
    import pyarrow.compute as pc

    path = RunPaths(run_dir).prompts if held_out is None else RunPaths(run_dir).eval_prompts
    try:
        table = prompts.read(path, "sample_id", "text")
    except DataError:
        return ""
    if table.num_columns < 2:
        return ""
    if held_out is not None:
        return str(table.column("text")[held_out].as_py()) if held_out < table.num_rows else ""
    index = pc.index(table.column("sample_id"), sample_id).as_py()
    return str(table.column("text")[index].as_py()) if index >= 0 else ""


def _events(run_dir: Path, group_id: str, left_out: Counter[str]) -> Iterator[Record]:
    """Yields the relevant events; other lines are not parsed, as a long run has millions."""
    named = json.dumps(group_id).encode()
    return read_events(run_dir, wanted=lambda line: named in line or name_of(line) in _OF_ALL, left_out=left_out)


def _is_whole(event: Record) -> bool:
    """Whether an event has what a story reads of it."""
    if missing_field(event) or number_of(event.get("t")) is None or type(event.get("attempt") or 0) is not int:
        return False
    match event["event"]:
        case "batch":
            return isinstance(event.get("group_ids"), list)
        case "run_ended" | "run_stopped":
            return isinstance(event.get("open_groups", []), list)
        case "publication_committed":
            return isinstance(event.get("replica_id"), str)
    return True


def _take(found: Gathered, event: dict[str, Any], group_id: str) -> None:
    match event.get("event"):
        case "step_done":
            found.done.setdefault(int(event["step"]), event)
        case "publication_committed":
            found.commits.append(event)
        case "run_ended" | "run_stopped":
            found.ends.append(event)
        case "issued":
            found.newest_issued = max(found.newest_issued, int(event["group_index"]))
            if event["group_id"] == group_id:
                found.events.append(event)
        case "batch" if group_id in event.get("group_ids", ()):
            found.events.append(event)
        case _ if event.get("group_id") == group_id:
            found.events.append(event)


def _rollouts(run_dir: Path, batch: BatchRecord, group_id: str, notes: list[str]) -> list[dict[str, Any]]:
    path = RunPaths(run_dir).rollout_file(batch.step)
    try:
        rows: list[dict[str, Any]] = rollouts.read_group(path, group_id).to_pylist() if path.is_file() else []
        found = [_decoded(row) for row in rows]
        if found:
            return sorted(found, key=lambda row: int(row["rollout_index"]))
    except DataError as error:
        notes.append(str(error))
    except (ValueError, TypeError, KeyError, RecursionError):
        notes.append(f"{path} has a row of {group_id} that is none")
    try:
        messages = read_payload(RunPaths(run_dir).journal, batch)
        return [_decoded(row) for data in messages for row in _from_message(data, group_id)]
    except FileNotFoundError:
        notes.append(f"the texts of step {batch.step} are gone: there is no rollouts/step-{batch.step:06d}.parquet")
    except (JournalDamagedError, ContractError) as error:
        notes.append(f"the journaled rollouts of step {batch.step} cannot be read: {error}")
    return []


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its columns of JSON as values. Raises ValueError, TypeError, KeyError or RecursionError."""
    trained = [one is not None for one in row.get("logprobs") or ()]
    played = episode_view(row.get(rollouts.EPISODE), trained, _ids)
    return row | {
        "components": json.loads(row["components"]),
        "columns": rollouts.columns_of(row.get("columns")),
        "spans": json.loads(row.get("spans") or "[]"),
        rollouts.EPISODE: None if played is None else played.model_dump(),
    }


def _from_message(data: bytes, group_id: str) -> Iterator[dict[str, Any]]:
    """Rows from a journaled message, for a batch whose step is not done yet: without advantages."""
    message = decode(data)
    if message.header.group_id != group_id or not isinstance(message.body, ScoredGroup):
        return
    group = message.body.group
    for number, (rollout, score) in enumerate(zip(group.rollouts, message.body.scores, strict=True)):
        row = rollouts.row_of(rollout, score)
        yield {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()} | {
            "rollout_index": number,
            "prompt": group.prompt.text,
            "columns": rollouts.bounded(group.prompt.columns),
            "advantage": None,
            "trained_tokens": rollout.trained_tokens,
            "replica_id": group.replica_id,
        }


def _ids(_: Sequence[int]) -> None:
    """No texts of tokens: the messages have those of the conversation."""
