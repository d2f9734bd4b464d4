"""Forks a run: another run directory with all that a run had, had it been killed right after a step.

A resume of it then does the rest: groups that were open are issued again, and what lies between checkpoint and step is
replayed from the journal.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from headrace.inspect.history.fork import Fork, weights_after
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.journal import (
    BatchRecord,
    JournalRecord,
    StepDoneRecord,
    has_payload,
    payload_path,
    read_journal,
)
from headrace.wire.rundir import atomic, jsonl, rollouts
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths, entries, rollout_file
from headrace.wire.rundir.receipts import read_receipts
from headrace.wire.streams.columns import link_kept

_OF_PROCESSES = {RunPaths.logs.top, RunPaths.processes.top, RunPaths.staging.top}
_LINKED_BYTES = 1 << 20
"""Larger files are hard links where the file system has them: a run replaces its files, and never writes into them."""


def fork_run(source: Path, target: Path, step: int | None) -> Fork:
    """Makes `target` from the run in `source`, which is only read; `step` None: its last one.

    Raises ConfigError if `target` exists, or the step cannot be reached from a checkpoint, and DataError.
    """
    if target.exists():
        raise ConfigError(f"{target} exists: give another folder for the fork with --run-dir")
    run = RunPaths(source)
    records = list(read_journal(run.journal))
    done = {one.record.step for one in records if isinstance(one.record, StepDoneRecord)}
    if not done:
        raise ConfigError(f"{source} has no step in its journal to fork from")
    wanted = max(done) if step is None else step
    count, digest = weights_after(records, wanted)
    if not count:
        raise ConfigError(f"{source} has no step {wanted}: --from-step is 1 to {max(done)}")
    kept = records[:count]
    checkpoint = _checkpoint(run, wanted)
    batches = _batches(run, kept, after=checkpoint, step=wanted)
    found = Fork(source=str(source.resolve()), step=wanted, weights_digest=digest)
    with _still_there(source), atomic.replaced_folder(target, durable=False) as folder:
        # As of any run: prompts and logs are its owner's.
        folder.chmod(0o700)
        made = RunPaths(folder)
        _copy_prepared(source, folder)
        _copy_journal(run, made, kept, batches)
        if checkpoint:
            shutil.copytree(run.checkpoint(checkpoint), made.checkpoint(checkpoint), copy_function=_link)
        _copy_records(run, made, kept[-1], wanted)
        _copy_receipts(source, folder)
        atomic.write_text(made.fork, json.dumps(asdict(found)) + "\n", durable=False)
    return found


@contextmanager
def _still_there(source: Path) -> Iterator[None]:
    """A run that lives removes checkpoints and batches that it needs no more. Raises DataError."""
    try:
        yield
    except (FileNotFoundError, shutil.Error) as error:
        raise DataError(f"{source} went on while it was read, and removed a file: try again ({error})") from error


def _checkpoint(run: RunPaths, step: int) -> int:
    """The newest checkpoint at or before `step`; 0 for none."""
    found = (int(path.parent.name.removeprefix("step-")) for path in run.checkpoints.glob("step-*/manifest.json"))
    return max((of for of in found if of <= step), default=0)


def _batches(run: RunPaths, records: list[JournalRecord], *, after: int, step: int) -> list[BatchRecord]:
    """The batches to replay. Raises ConfigError if one is gone."""
    found = [one.record for one in records if isinstance(one.record, BatchRecord) and one.record.step > after]
    gone = [batch.step for batch in found if not has_payload(run.journal, batch)]
    if gone:
        raise ConfigError(
            f"step {step} of {run.path} cannot be reached: the batch of step {gone[0]} was removed when a checkpoint "
            f"covered it, and the newest checkpoint before it that is kept is {after or 'none'}. Fork from the step of "
            "a checkpoint or from a later one (trainer.keep_checkpoints keeps more of them)"
        )
    return found


def _copy_prepared(source: Path, folder: Path) -> None:
    """What was there before the run began."""
    for name in {entry.top for entry in entries() if entry.before} - _OF_PROCESSES:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, copy_function=_link)
        elif (source / name).exists():
            _link(source / name, folder / name)


def _link(source: str | Path, target: str | Path) -> None:
    if Path(source).stat().st_size > _LINKED_BYTES:
        try:
            return os.link(source, target)
        except OSError:
            pass
    shutil.copy2(source, target)


def _copy_journal(run: RunPaths, made: RunPaths, records: list[JournalRecord], batches: list[BatchRecord]) -> None:
    """The segments up to the last record, whose head has the seals of the older ones."""
    last = records[-1]
    made.journal.mkdir()
    link_kept(run.path, made.path, {index for batch in batches for index in batch.group_indices}, _link)
    for name in dict.fromkeys(one.segment for one in records):
        data = (run.journal / name).read_bytes()
        (made.journal / name).write_bytes(data[: last.end] if name == last.segment else data)
    for batch in batches:
        payload_path(made.journal, batch).parent.mkdir(exist_ok=True)
        _link(payload_path(run.journal, batch), payload_path(made.journal, batch))


def _copy_records(run: RunPaths, made: RunPaths, cut: JournalRecord, step: int) -> None:
    """Metrics, evaluations, rollouts and events up to the step."""
    _copy_lines(run.metrics, made.metrics, lambda row: (number_of(row.get("step")) or 0) <= step)
    _copy_lines(run.evals, made.evals, lambda row: (number_of(row.get("version")) or 0) <= step)
    for old, new in ((run.rollouts, made.rollouts), (run.evaluations, made.evaluations)):
        for of in rollouts.files(old):
            # The oldest ones may be removed meanwhile.
            if of <= step and rollout_file(old, of).exists():
                new.mkdir(exist_ok=True)
                _link(rollout_file(old, of), rollout_file(new, of))
    until = _time_of(run, cut, step)
    _refuse_requeued(run, until, step)
    for path in run.event_files():
        target = made.path / path.relative_to(run.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_lines(path, target, lambda event: _is_before(event, until, step))


def _refuse_requeued(run: RunPaths, until: float, step: int) -> None:
    """Which prompts were issued again is in the state alone, which a fork begins anew. Raises ConfigError."""
    for path in run.event_files("orchestrator"):
        for event in jsonl.read(path):
            if event.get("event") == "requeued_as" and (number_of(event.get("t")) or 0.0) <= until:
                raise ConfigError(
                    f"before step {step} of {run.path} a prompt was issued again by hand (group "
                    f"{event.get('group_index')}), which a fork would not know: fork from a step before that"
                )


def _is_before(event: Record, until: float, step: int) -> bool:
    """Times are in milliseconds, in which the next batch may have come, too."""
    is_next = event.get("event") == "batch" and (number_of(event.get("step")) or 0) > step
    return (number_of(event.get("t")) or 0.0) <= until and not is_next


def _time_of(run: RunPaths, cut: JournalRecord, step: int) -> float:
    """When the weights of the step were journaled, in the trainer's words. Raises DataError."""
    for event in jsonl.read(run.events / f"trainer-{cut.incarnation}.jsonl"):
        is_end = event.get("event") == "step_done" and event.get("step") == step
        is_start = event.get("event") == "incarnation_opened" and event.get("version") == step
        if (is_end or is_start) and (found := number_of(event.get("t"))) is not None:
            return found
    raise DataError(f"the events of {run.path} do not say when step {step} was done: fork from another step")


def _copy_lines(source: Path, target: Path, is_kept: Callable[[Record], bool]) -> None:
    """The lines before the first that is not kept; no file if there is none."""

    def kept() -> Iterator[bytes]:
        for line in source.read_bytes().splitlines(keepends=True):
            row = jsonl.parse(line)
            if row is None or not is_kept(row):
                return
            yield line

    if source.is_file() and (data := b"".join(kept())):
        target.write_bytes(data)


def _copy_receipts(source: Path, folder: Path) -> None:
    """The chain as far as it covers nothing but what was copied."""
    count = 0
    for receipt in read_receipts(source):
        files = receipt.line.files.items()
        if any(not (folder / name).is_file() or (folder / name).stat().st_size < part.end for name, part in files):
            break
        count += 1
    lines = RunPaths(source).receipts.read_bytes().splitlines(keepends=True)[:count] if count else []
    if lines:
        RunPaths(folder).receipts.write_bytes(b"".join(lines))
