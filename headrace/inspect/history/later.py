"""Compares what is recorded behind the bytes that a receipt covers with what is recorded within them.

Later events stand for the digests of files as earlier ones do. Those of a later life are of later steps; what it
records anew of an earlier one, such as steps that it has replayed, is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from headrace.inspect.history.lines import LAUNCH, TRAINER, fault_of
from headrace.inspect.history.receipts import FoundChain, place_of
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.evals import VERSION
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.receipts import covered_offsets

_NAMED = 3
Digests = Mapping[str, str]
"""File, or part of a record -> its digest."""


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """What one event records of files that are replaced, not appended to."""

    log: str
    what: str
    """Such as `the checkpoint of step 3`."""
    digests: Digests


@dataclass(slots=True)
class SinceReceipt:
    """What a run's files record within the bytes that a receipt covers, and behind them."""

    step: int
    """That of the receipt."""
    before: dict[str, Digests] = field(default_factory=dict)
    """What -> its digests, as last recorded."""
    again: list[RecordedFiles] = field(default_factory=list)
    """Recorded behind the receipt of what it covers."""
    config: Digests = field(default_factory=dict)
    """As last recorded within the covered bytes; empty if it is unknown."""
    config_at: float = float("-inf")
    stage_began: bool = False
    """A later life of a stage without a journal began."""
    evaluated: set[int] = field(default_factory=set)
    """Versions with a covered evaluation."""
    evaluated_again: list[int] = field(default_factory=list)


def read_since(run_dir: Path, found: FoundChain, value: str) -> SinceReceipt | None:
    """Reads the logs of the trainer and of commands, and the evaluations; None for a receipt that is unknown.

    What cannot be read is left out: the history has named it.
    """
    place = place_of(found, value)
    if place is None:
        return None
    since = SinceReceipt(found.receipts[place].line.step)
    covered = covered_offsets(found.receipts[: place + 1])
    run = RunPaths(run_dir)
    logs = [path for path in run.event_files() if path.name.startswith((TRAINER, LAUNCH))]
    # Whatever is within before what is behind: the name of a log says nothing of its time.
    for is_covered in (True, False):
        for path in logs:
            for within, event in _split(path, covered.get(_name(run_dir, path), 0)):
                if within == is_covered and not fault_of(path, event):
                    _take(since, _name(run_dir, path), event, is_covered=is_covered)
    for within, row in _split(run.evals, covered.get(run.evals.name, 0)):
        version = row.get(VERSION)
        if type(version) is int:
            if within:
                since.evaluated.add(version)
            elif version in since.evaluated:
                since.evaluated_again.append(version)
    return since


def recorded_again(since: SinceReceipt) -> Iterator[str]:
    """Nothing that the receipt covers is recorded otherwise behind it. Pure."""
    other = [(one, names) for one in since.again if (names := _differing(since.before[one.what], one.digests))]
    for one, names in other[:_NAMED]:
        of = f" ({', '.join(names[:_NAMED])})" if any(names) else ""
        yield (
            f"{one.log} records {one.what} again{of}, otherwise than the receipt of step {since.step} covers: it was "
            "replaced"
        )
    if len(other) > _NAMED:
        yield f"{len(other) - _NAMED} more records are otherwise than the receipt of step {since.step} covers"
    for version in since.evaluated_again[:_NAMED]:
        yield f"evals.jsonl has another line of version {version} than the receipt of step {since.step} covers"


def config_since(since: SinceReceipt, config: Digests) -> Iterator[str]:
    """Names the config's files that are others than at the receipt, which a later start has recorded. Pure."""
    names = [name for name in sorted(config.keys() | since.config.keys()) if config.get(name) != since.config.get(name)]
    if since.config and names:
        yield (
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not as at the receipt: a later start of the run "
            "has recorded it"
        )


def _name(run_dir: Path, path: Path) -> str:
    return path.relative_to(run_dir).as_posix()


def _split(path: Path, end: int) -> Iterator[tuple[bool, Record]]:
    """(whether it is within the first `end` bytes, record) of a file's whole lines."""
    at = 0
    try:
        with path.open("rb") as file:
            for line in file:
                at += len(line)
                if line.endswith(b"\n") and (record := jsonl.parse(line)) is not None:
                    yield at <= end, record
    except OSError:
        return


def _take(since: SinceReceipt, log: str, event: Record, *, is_covered: bool) -> None:
    config, at = event.get("config"), number_of(event.get("t")) or 0.0
    if is_covered and isinstance(config, dict) and at >= since.config_at:
        since.config, since.config_at = cast(dict[str, str], config), at
    if event["event"] == "stage_began" and not is_covered:
        since.stage_began = True
    for one in _files_of(log, event):
        if is_covered:
            since.before[one.what] = one.digests
        elif one.what in since.before:
            since.again.append(one)


def _files_of(log: str, event: Record) -> Iterator[RecordedFiles]:
    step = event.get("step")
    if type(step) is not int:
        return
    match event["event"]:
        case "step_recorded" if event["rollouts"]:
            yield RecordedFiles(log, f"the rollouts of step {step}", {"": str(event["rollouts"])})
        case "checkpoint_saved":
            yield RecordedFiles(log, f"the checkpoint of step {step}", {"": str(event["manifest"])})
        case "exported":
            files = cast(dict[str, str], event.get("files") or {})
            weights = {"its weights": str(event["weights_sha256"])}
            yield RecordedFiles(log, f"the export of step {step}", weights | files)


def _differing(before: Digests, after: Digests) -> Sequence[str]:
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
