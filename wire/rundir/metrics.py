"""`RUN/metrics.jsonl`: one line a step, `step` and the numbers that it returned; `t` is the time of writing.

The stages without a journal write `evals.jsonl` the same way. A step that is replayed has one line.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from headrace.wire.rundir import atomic, jsonl
from headrace.wire.rundir.jsonl import Record
from headrace.wire.rundir.layout import RunPaths

STEP = "step"
"""Key of a line's number."""
TIME = "t"
"""Key of the time of writing, in unix seconds."""
TRAINED, GENERATED, PER_GPU = "trained_tokens_per_second", "generated_tokens_per_second", "_per_gpu"
MFU, MFU_TRAIN = "mfu", "mfu_train"


class MetricsLog:
    """The writer: appends each step's line once, however often it is replayed. One process at a time."""

    def __init__(self, path: Path) -> None:
        """Removes a line that a crash has cut."""
        self._path = path
        jsonl.repair(path)
        self._written = {step for step, _ in jsonl.numbered(jsonl.read(path), STEP)}

    def append(self, step: int, numbers: Mapping[str, object]) -> None:
        """Writes the step's line, unless an earlier life has. A number that JSON cannot express becomes null."""
        # A resumed run writes the lines of the steps that it replays.
        if step not in self._written:
            jsonl.append(self._path, {STEP: step, **numbers}, durable=False)
            self._written.add(step)

    def sync(self) -> None:
        """Makes all lines durable: they survive a crash of the machine. Raises OSError."""
        # A user may have removed it.
        with contextlib.suppress(FileNotFoundError):
            atomic.sync(self._path)


def steps_of(run_dir: Path) -> dict[int, Record]:
    """Metrics of each step; of several lines for a step the last counts."""
    return dict(jsonl.numbered(jsonl.read(RunPaths(run_dir).metrics), STEP))


def last_steps(run_dir: Path, count: int) -> list[Record]:
    """Metrics of the newest `count` steps, oldest first, without reading a long file whole."""
    found: dict[int, Record] = {}
    for step, row in jsonl.numbered(jsonl.read_backwards(RunPaths(run_dir).metrics), STEP):
        found.setdefault(step, row)
        if len(found) == count:
            break
    return [found[step] for step in sorted(found)]
