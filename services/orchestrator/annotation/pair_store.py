"""The pairs of a run, newest steps first, read from `RUN/rollouts` on demand."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

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


class PairStore:
    """Holds the ids of the pairs of steps it has read, and the texts of the last few. Not thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        self._rollouts, self._prompts = RunPaths(run_dir).rollouts, RunPaths(run_dir).prompts
        self._ids: dict[tuple[int, int], tuple[str, ...]] = {}
        """(Step, mtime in ns of its file) -> ids: a resumed run may write a step anew."""
        self._texts = lru_cache(_STEPS_KEPT)(self._read)

    def newest(self) -> Iterator[str]:
        """Ids of all pairs, newest steps first; a file is read when its turn comes."""
        for step, status in sorted(rollouts.files(self._rollouts).items(), reverse=True):
            key = (step, status.st_mtime_ns)
            if key not in self._ids:
                self._ids[key] = tuple(self._texts(*key))
            yield from self._ids[key]

    def pair(self, pair_id: str) -> CompletionPair | None:
        """The pair with its texts; None if the rollouts do not contain it (any more)."""
        step = pair_id.partition("-")[0]
        if not (step.isascii() and step.isdigit()):
            return None
        try:
            mtime_ns = rollout_file(self._rollouts, int(step)).stat().st_mtime_ns
        except OSError:
            return None
        return self._texts(int(step), mtime_ns).get(pair_id)

    def _read(self, step: int, _mtime_ns: int) -> dict[str, CompletionPair]:
        """The pairs of a step; logs a file that is unreadable as empty."""
        try:
            rows = rollouts.read(rollout_file(self._rollouts, step), _COLUMNS).to_pylist()
        except DataError as error:
            log.warning("rollouts_unreadable", step=step, error=str(error))
            return {}
        messages = self._messages({row["sample_id"] for row in rows})
        return {pair.pair_id: pair for pair in pairs_of_step(rows, messages)}

    def _messages(self, sample_ids: set[str]) -> dict[str, list[Message]]:
        """Messages by sample id, for prompts rendered with a chat template."""
        if not self._prompts.is_file():
            return {}
        table = pq.read_table(
            self._prompts,
            columns=["sample_id", "messages"],
            filters=[("sample_id", "in", sample_ids)],
            use_threads=False,
        )
        return {row["sample_id"]: json.loads(row["messages"]) for row in table.to_pylist() if row["messages"]}
