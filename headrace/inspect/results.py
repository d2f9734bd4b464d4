"""Reads the results in a run directory, at any time: steps, evaluations, the summary."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.inspect.history.record import committer
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.evals import VERSION, evals_of
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP, steps_of
from headrace.wire.rundir.tail import Tail


@dataclass(frozen=True, slots=True)
class Summary:
    """The last line of `train --json` and `demo --json`."""

    eval_before: float | None
    """Held-out accuracy where RL began; None without held-out prompts, or if none of them came back."""
    eval_after: float | None
    steps: int
    rollouts: int
    """Trained rollouts."""
    seconds: float
    logprob_gap_max: float | None
    """Largest difference between a sampled token's logprob in the engine and in the trainer."""
    versions_committed: dict[str, int]
    """Replica -> number of weight versions that it proved and served, the one before the first step included."""
    groups_dropped: dict[str, int]
    """Reason -> groups that were never trained; those that were open at the end are not counted."""
    run_dir: str
    receipt: str | None = None
    """Receipt of the run's files after its last step; None if none was taken."""

    def as_json(self) -> str:
        """The summary in one line."""
        return json.dumps(asdict(self))


def summarize(run_dir: Path, seconds: float) -> Summary:
    """Summarizes everything in the run directory, earlier starts included."""
    steps = steps_of(run_dir)
    evals = evals_of(run_dir)
    gaps = numbers_of(steps.values(), "logprob_gap_max")
    return Summary(
        eval_before=number_of(evals[0].get("accuracy")) if evals else None,
        eval_after=number_of(evals[-1].get("accuracy")) if evals else None,
        steps=len(steps),
        rollouts=int(sum(numbers_of(steps.values(), "rollouts"))),
        seconds=round(seconds, 3),
        logprob_gap_max=max(gaps) if gaps else None,
        versions_committed=versions_committed(run_dir),
        groups_dropped=groups_dropped(run_dir),
        run_dir=str(run_dir),
    )


def versions_committed(run_dir: Path) -> dict[str, int]:
    """Replica -> number of distinct versions that it committed, over all its lives."""
    found: dict[str, set[int]] = {}
    for event in read_events(run_dir):
        if event.get("event") == "weights_committed":
            found.setdefault(committer(event), set()).add(jsonl.integer(event, "version"))
    return {replica: len(found[replica]) for replica in sorted(found)}


def groups_dropped(run_dir: Path) -> dict[str, int]:
    """Drop reason -> number of groups, over all lives of the trainer."""
    reasons = {
        str(event["group_id"]): str(event["reason"])
        for event in read_events(run_dir)
        if event.get("event") == "dropped" and str(event["source"]).startswith("trainer")
    }
    return dict(sorted(Counter(reasons.values()).items()))


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
