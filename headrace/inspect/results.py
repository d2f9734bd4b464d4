"""Reads the results in a run directory, at any time: steps, evaluations, the summary."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.inspect.history.lines import TRAINER
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.evals import VERSION, evals_of, headline
from headrace.wire.rundir.events import committer, read_events
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP, steps_of
from headrace.wire.rundir.tail import Tail


@dataclass(frozen=True, slots=True)
class Summary:
    """The last line of `train --json` and `demo --json`."""

    eval_before: float | None
    """Held-out accuracy, or the reward where scores are not just 0 and 1, where RL began; None without evaluations."""
    eval_after: float | None
    steps: int
    rollouts: int
    """Trained rollouts."""
    seconds: float
    logprob_gap_max: float | None
    """Largest difference between a sampled token's logprob in the engine and in the trainer; None if none was compared:
    above staleness 0 few or no tokens are of the version that is trained."""
    versions_committed: dict[str, int]
    """Replica -> number of weight versions that it proved and served, the one before the first step included."""
    groups_dropped: dict[str, int]
    """Reason -> groups that were never trained; those that were open at the end are not counted."""
    run_dir: str
    events_left_out: int = 0
    """Lines of event logs that count for nothing: forged by user code in a service, or incomplete."""
    eval_measure: str = "accuracy"
    """What the evaluations are: `accuracy`, or `reward`; of the first evaluation set."""
    receipt: str | None = None
    """Receipt of the run's files after its last step; None if none was taken."""

    def as_json(self) -> str:
        """The summary in one line."""
        return json.dumps(asdict(self))


def summarize(run_dir: Path, seconds: float) -> Summary:
    """Summarizes everything in the run directory, earlier starts included."""
    steps = steps_of(run_dir)
    evals = evals_of(run_dir)
    totals = totals_of(run_dir)
    held_out = headline(evals)
    gaps = numbers_of((row for row in steps.values() if row.get("logprob_gap_tokens") != 0), "logprob_gap_max")
    return Summary(
        eval_before=held_out.values[0] if held_out.values else None,
        eval_after=held_out.values[-1] if held_out.values else None,
        steps=len(steps),
        rollouts=int(sum(numbers_of(steps.values(), "rollouts"))),
        seconds=round(seconds, 3),
        logprob_gap_max=max(gaps, default=None),
        versions_committed=totals.versions_committed,
        groups_dropped=totals.groups_dropped,
        run_dir=str(run_dir),
        events_left_out=totals.left_out,
        eval_measure=held_out.title,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTotals:
    """What the events of a run come to, over all lives of its processes."""

    versions_committed: dict[str, int]
    """Replica -> number of distinct versions that it committed."""
    groups_dropped: dict[str, int]
    """Drop reason -> number of groups."""
    left_out: int
    """Lines that count for nothing; `headrace check` names each."""


def left_out_in_words(lines: int) -> str:
    """Reports in one line that lines of event logs were left out; empty if none was."""
    counted = f"{lines} lines of event logs count" if lines > 1 else "1 line of an event log counts"
    return f"{counted} for nothing: no service writes such events there (`headrace check`)" if lines else ""


def totals_of(run_dir: Path) -> EventTotals:
    """Reads all events of a run once; what is incomplete is left out and counted. Raises OSError."""
    versions: dict[str, set[int]] = {}
    reasons: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for event in read_events(run_dir, left_out=left_out):
        source = str(event["source"])
        match event:
            case {"event": "weights_committed", "version": int(version)}:
                versions.setdefault(committer(event), set()).add(version)
            case {"event": "dropped", "group_id": str(group), "reason": str(reason)} if source.startswith(TRAINER):
                reasons[group] = reason
            case {"event": "weights_committed" | "dropped"}:
                left_out[source] += 1
    return EventTotals(
        versions_committed={replica: len(versions[replica]) for replica in sorted(versions)},
        groups_dropped=dict(sorted(Counter(reasons.values()).items())),
        left_out=left_out.total(),
    )


def numbers_of(rows: Iterable[Record], key: str) -> list[float]:
    """The numbers that the rows have under a key."""
    return [number for row in rows if (number := number_of(row.get(key))) is not None]


class StepTail:
    """Returns new steps and evaluations of a growing run directory, each line once."""

    def __init__(self, run_dir: Path) -> None:
        files = RunPaths(run_dir)
        self._tails = {STEP: Tail(files.metrics, from_end=True), VERSION: Tail(files.evals, from_end=True)}

    def read(self) -> list[Record]:
        """Records appended since the last call, steps before evaluations; a line without its end waits."""
        return [row for key, tail in self._tails.items() for _, row in jsonl.numbered(_added(tail), key)]


def _added(tail: Tail) -> Iterator[Record]:
    while data := tail.read().data:
        yield from jsonl.records(data)
