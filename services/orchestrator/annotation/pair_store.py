"""The pairs of a run, newest steps first, read from `RUN/rollouts` on demand."""

import json
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.services.orchestrator.annotation.pairs import CompletionPair, Message, pairs_of_step
from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import RunPaths, rollout_file
from headrace.wire.telemetry.logs import get_logger

log = get_logger("annotation")

_COLUMNS = rollouts.columns(
    "step", "group_id", "rollout_index", "sample_id", "prompt", "completion", "finish_reason", rollouts.EPISODE
)
_STEPS_KEPT = 4
_LOOK_S = 2.0
_LOOK_AT_MOST_S = 0.5


class PairStore:
    """Holds the ids of all scanned pairs, and the texts of the last few steps used. Not thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        self._rollouts, self._prompts = RunPaths(run_dir).rollouts, RunPaths(run_dir).prompts
        self._ids: dict[int, tuple[tuple[int, int], tuple[str, ...]]] = {}
        """Step -> ((mtime in ns, size) of its file, ids)."""
        self._next_look = 0.0
        self._texts: OrderedDict[int, dict[str, CompletionPair]] = OrderedDict()

    def look(self) -> None:
        """Scans new step files, newest first, and drops removed ones.

        Rate-limited and bounded in time; the next call continues with the remaining files.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        marks = self._marks()
        self._ids = {step: known for step, known in self._ids.items() if step in marks}
        for step in sorted(marks, reverse=True):
            if step in self._ids and self._ids[step][0] == marks[step]:
                continue
            self._texts.pop(step, None)
            # Without the messages: ids do not depend on them, and finding them means reading all prompts.
            self._ids[step] = (marks[step], tuple(self._read(step, is_shown=False)))
            if time.monotonic() - now >= _LOOK_AT_MOST_S:
                return
        self._next_look = now + _LOOK_S

    def newest(self) -> Iterator[str]:
        """Ids of all pairs, newest steps first."""
        known = dict(self._ids)
        for step in sorted(known, reverse=True):
            yield from known[step][1]

    def pair(self, pair_id: str) -> CompletionPair | None:
        """The pair with its texts; None if the rollouts do not contain it (any more)."""
        found = re.fullmatch(r"(\d{1,9})-[0-9a-f]{16}", pair_id, re.ASCII)
        if not found:
            return None
        step = int(found[1])
        if pair_id not in self._texts.get(step, {}):
            mark, ids = self._ids.get(step, (None, ()))
            if mark is not None and pair_id not in ids:
                return None
            self._texts[step] = self._read(step, is_shown=True)
            self._texts.move_to_end(step)
            while len(self._texts) > _STEPS_KEPT:
                self._texts.popitem(last=False)
            if mark is not None:  # The file may have been replaced or removed since the last scan.
                self._ids[step] = (mark, tuple(self._texts[step]))
        return self._texts[step].get(pair_id)

    def _marks(self) -> dict[int, tuple[int, int]]:
        """Step -> (mtime in ns, size) of its file."""
        found = rollouts.files(self._rollouts)
        return {step: (status.st_mtime_ns, status.st_size) for step, status in found.items()}

    def _read(self, step: int, *, is_shown: bool) -> dict[str, CompletionPair]:
        """The pairs of a step, with the prompts' messages if `is_shown`; logs a file that is unreadable as empty."""
        path = rollout_file(self._rollouts, step)
        try:
            rows = rollouts.read(path, _COLUMNS).to_pylist()
            messages = self._messages({row["sample_id"] for row in rows}) if is_shown else {}
            return {pair.pair_id: pair for pair in pairs_of_step(rows, messages)}
        except (DataError, OSError, pa.ArrowException, ValueError, KeyError) as error:
            if not path.exists():
                return {}
            log.warning("rollouts_unreadable", path=str(path), error=str(error))
            return {}

    def _messages(self, sample_ids: set[str]) -> dict[str, list[Message]]:
        """Messages by sample id, for prompts rendered with a chat template; older runs did not store them."""
        if not self._prompts.is_file() or "messages" not in pq.read_schema(self._prompts).names:
            return {}
        table = pq.read_table(
            self._prompts,
            columns=["sample_id", "messages"],
            filters=[("sample_id", "in", sample_ids)],
            use_threads=False,
        )
        return {row["sample_id"]: json.loads(row["messages"]) for row in table.to_pylist() if row["messages"]}
