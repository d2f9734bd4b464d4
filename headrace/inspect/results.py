"""Reads the results in a run directory, at any time: steps, evaluations, the summary."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from headrace.inspect.history.record import committer
from headrace.wire.events import read_events
from headrace.wire.rundir.layout import RunPaths

Row = dict[str, JsonValue]
"""One line of `metrics.jsonl` or `evals.jsonl`."""
_KEYS = {RunPaths.metrics.name: "step", RunPaths.evals.name: "version"}
"""File -> the key that numbers its rows."""


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
            found.setdefault(committer(event), set()).add(int(event["version"]))
    return {replica: len(found[replica]) for replica in sorted(found)}


def groups_dropped(run_dir: Path) -> dict[str, int]:
    """Drop reason -> number of groups, over all lives of the trainer."""
    reasons = {
        str(event["group_id"]): str(event["reason"])
        for event in read_events(run_dir)
        if event.get("event") == "dropped" and str(event["source"]).startswith("trainer")
    }
    return dict(sorted(Counter(reasons.values()).items()))


def steps_of(run_dir: Path) -> dict[int, Row]:
    """Metrics of each step; a step that was replayed after a crash counts once."""
    return _numbered(read_jsonl(RunPaths(run_dir).metrics), "step")


def last_steps(run_dir: Path, count: int) -> list[Row]:
    """The metrics of the newest `count` steps, oldest first, without reading a long file whole."""
    by_step: dict[int, Row] = {}
    for row in _read_backwards(RunPaths(run_dir).metrics):
        step = _number(row, "step")
        if step is not None:
            by_step.setdefault(step, row)
        if len(by_step) == count:
            break
    return [by_step[step] for step in sorted(by_step)]


def evals_of(run_dir: Path) -> list[Row]:
    """Evaluations by version; one that was repeated counts once."""
    by_version = _numbered(read_jsonl(RunPaths(run_dir).evals), "version")
    return [by_version[version] for version in sorted(by_version)]


def _numbered(rows: Iterable[Row], key: str) -> dict[int, Row]:
    """Sound rows by their number; the last one of a number counts."""
    return {number: row for row in rows if (number := _number(row, key)) is not None}


def _number(row: Row, key: str) -> int | None:
    """The row's number; None unless that is an integer, and the accuracy, if any, a double: the file may be damaged."""
    number, accuracy = row.get(key), row.get("accuracy")
    if type(number) is not int or (accuracy is not None and number_of(accuracy) is None):
        return None
    return number


def numbers_of(rows: Iterable[Row], key: str) -> list[float]:
    """The numbers that the rows have under a key."""
    return [number for row in rows if (number := number_of(row.get(key))) is not None]


def number_of(value: object) -> float | None:
    """A number that a double can hold; None for anything else. Python reads integers of any length from JSON."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def read_jsonl(path: Path) -> Iterator[Row]:
    """Objects of a file that may be absent, and whose last line may be torn."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines():
        row = _object(line)
        if row is not None:
            yield row


def _read_backwards(path: Path, block: int = 1 << 16) -> Iterator[Row]:
    """Objects of a file from its last line to its first; torn lines are skipped."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end, rest = file.seek(0, 2), b""
        while end > 0:
            begin = max(0, end - block)
            file.seek(begin)
            first, *lines = (file.read(end - begin) + rest).split(b"\n")
            end, rest = begin, first
            for line in reversed(lines if begin else [first, *lines]):
                row = _object(line)
                if row is not None:
                    yield row


def _object(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: a line nested too deeply.
        return None
    return row if isinstance(row, dict) else None


class StepTail:
    """Returns new steps and evaluations of a growing run directory, each line once."""

    def __init__(self, run_dir: Path) -> None:
        self._files = {name: run_dir / name for name in _KEYS}
        self._offsets = {name: path.stat().st_size if path.exists() else 0 for name, path in self._files.items()}

    def read(self) -> list[Row]:
        """Rows appended since the last call, steps before evaluations; a line without its end waits."""
        return [row for name in self._files for row in self._new(name)]

    def _new(self, name: str) -> Iterator[Row]:
        key = _KEYS[name]
        try:
            with self._files[name].open("rb") as file:
                file.seek(self._offsets[name])
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[name] += len(whole)
        for line in whole.splitlines():
            row = _object(line)
            if row is not None and _number(row, key) is not None:
                yield row
