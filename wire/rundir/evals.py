"""`RUN/evals.jsonl`: one line an evaluation, numbered by `version`. Its keys are those of `EvaluationRow`.

The numbers of an evaluation set with a name are `NAME/accuracy` and so on, those of one without just `accuracy`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from headrace.wire.rundir import jsonl
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import TIME

VERSION = "version"
"""Key of a line's number: the steps done when the policy was evaluated."""
_MEASURES = {"accuracy": "accuracy", "reward_mean": "reward"}
"""Key -> what a headline calls it; the first that is there counts."""
_OF_SET = re.compile(r"(?!rewards/)([^/]+)/(.+)")
"""A key of a set with a name; `rewards/NAME/mean` is a component of one without."""


class EvalLog:
    """The orchestrator's writer. One process at a time; the trainer of an offline stage writes with `MetricsLog`."""

    def __init__(self, run_dir: Path) -> None:
        """Removes a line that a crash has cut; `known` are the evaluations of earlier lives, in their order."""
        self._path = RunPaths(run_dir).evals
        jsonl.repair(self._path)
        self.known = [row for _, row in jsonl.numbered(jsonl.read(self._path), VERSION)]

    def append(self, row: Mapping[str, object]) -> None:
        """Writes an evaluation; durable, because it decides which versions are still to be evaluated."""
        jsonl.append(self._path, row, durable=True)


def named(name: str, numbers: Mapping[str, JsonValue]) -> Record:
    """The numbers of an evaluation set as keys of a line."""
    return {f"{name}/{key}" if name else key: value for key, value in numbers.items()}


def sets_of(row: Mapping[str, JsonValue]) -> dict[str, Record]:
    """Evaluation set -> its numbers, in the order of the line; a set without a name is ""."""
    found: dict[str, Record] = {}
    for key, value in row.items():
        if key not in (VERSION, TIME):
            match = _OF_SET.fullmatch(key)
            found.setdefault(match[1] if match else "", {})[match[2] if match else key] = value
    return found


@dataclass(frozen=True, slots=True)
class Headline:
    """The one measure by which evaluations of a run are shown in few words, and its value in each of them."""

    title: str
    """Such as `accuracy` or `reward`."""
    values: Sequence[float | None]
    """One for each evaluation of the set; None where nothing came back."""

    @property
    def known(self) -> list[float]:
        """Those that came back."""
        return [one for one in self.values if one is not None]


def eval_in_words(title: str, value: float) -> str:
    """A value of a measure as people read it."""
    return f"{value:.3f}" if title == "reward" else f"{value:.1%}"


def headline(rows: Sequence[Mapping[str, JsonValue]], name: str | None = None) -> Headline:
    """Accuracy of a set, or its mean reward if it has no accuracy; `name` None: the first set of the last line."""
    if name is None:
        name = next(iter(sets_of(rows[-1])), "") if rows else ""
    own = [numbers for row in rows if (numbers := sets_of(row).get(name)) is not None]
    there = (key for numbers in reversed(own) for key in _MEASURES if number_of(numbers.get(key)) is not None)
    key = next(there, "accuracy")
    return Headline(_MEASURES[key], [number_of(numbers.get(key)) for numbers in own])


def progress_in_words(rows: Sequence[Mapping[str, JsonValue]]) -> str:
    """The first and the last value of each set of the last line; empty if nothing came back yet."""
    said = []
    for name in sets_of(rows[-1]) if rows else ():
        shown = headline(rows, name)
        ends = [eval_in_words(shown.title, one) for one in (*shown.known[:1], *shown.known[1:][-1:])]
        if ends:
            said.append(" ".join(filter(None, (name, shown.title, " -> ".join(ends)))))
    return ", ".join(said)


def evals_of(run_dir: Path) -> list[Record]:
    """Evaluations by version; of several lines for a version the last counts."""
    found = dict(jsonl.numbered(jsonl.read(RunPaths(run_dir).evals), VERSION))
    return [found[version] for version in sorted(found)]
