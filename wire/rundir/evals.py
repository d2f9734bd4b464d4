"""`RUN/evals.jsonl`: one line an evaluation, numbered by `version`. Its keys are those of `EvaluationRow`."""

from collections.abc import Mapping
from pathlib import Path

from headrace.wire.rundir import jsonl
from headrace.wire.rundir.jsonl import Record
from headrace.wire.rundir.layout import RunPaths

VERSION = "version"
"""Key of a line's number: the steps done when the policy was evaluated."""


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


def evals_of(run_dir: Path) -> list[Record]:
    """Evaluations by version; of several lines for a version the last counts."""
    found = dict(jsonl.numbered(jsonl.read(RunPaths(run_dir).evals), VERSION))
    return [found[version] for version in sorted(found)]
