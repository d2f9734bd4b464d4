"""Memory-bounded cache of the texts of the most recently used files of rollouts. Blocking, thread-safe."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.services.orchestrator.dashboard.readers.query import Query
from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.rundir.layout import rollout_file

Hits = NDArray[np.bool_]

_MOST_BYTES = 192 * 1024 * 1024
_PATTERNS = 4
_SHARED = 40
"""Characters that prompts may share and still differ in sight."""
_COLUMNS = rollouts.columns("prompt", "completion", "group_id", "columns", "components")


class Texts:
    """LRU cache of file texts; the hits of the newest search patterns are cached separately."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._said: OrderedDict[int, pa.Table] = OrderedDict()
        self._bytes = 0
        self._shared: dict[int, int] = {}
        self._hits: OrderedDict[Query, dict[int, Hits]] = OrderedDict()

    def of(self, step: int) -> pa.Table:
        """The texts of a step's file, a row each; raises DataError if it cannot be read."""
        with self._lock:
            if step in self._said:
                self._said.move_to_end(step)
                return self._said[step]
        table = rollouts.read(rollout_file(self._folder, step), _COLUMNS)
        for name in _COLUMNS:
            if name not in table.column_names:
                table = table.append_column(name, pa.array([""] * table.num_rows, pa.string()))
        with self._lock:
            self._drop(step)
            self._said[step] = table
            self._bytes += table.nbytes
            while self._bytes > _MOST_BYTES and len(self._said) > 1:
                self._drop(next(iter(self._said)))
        return table

    def hits(self, wanted: Query, step: int) -> Hits:
        """Which rollouts of a file meet the conditions of `Query.said`; empty if it cannot be read."""
        with self._lock:
            known = self._hits.setdefault(wanted, {})
            self._hits.move_to_end(wanted)
            if len(self._hits) > _PATTERNS:
                self._hits.popitem(last=False)
            if step in known:
                return known[step]
        try:
            said = self.of(step)
        except DataError:
            return np.zeros(0, np.bool_)
        found = np.ones(said.num_rows, np.bool_)
        if wanted.text:
            texts = (said.column(name) for name in ("prompt", "completion"))
            matches = [pc.match_substring(text, wanted.text, ignore_case=True).fill_null(False) for text in texts]
            found &= np.asarray(pc.or_(*matches).to_numpy(), np.bool_)
        if wanted.component:
            low, high = wanted.component_min, wanted.component_max
            scores = [component_of(one, wanted.component) for one in said.column("components").to_pylist()]
            found &= [
                one is not None and (low is None or one >= low) and (high is None or one <= high) for one in scores
            ]
        known[step] = found
        return found

    def knows(self, wanted: Query, step: int) -> bool:
        """Whether the file has been searched for this already."""
        with self._lock:
            return step in self._hits.get(wanted, {})

    def shared(self, step: int) -> int:
        """Characters with which all prompts of a step begin (`shared_beginning`). Raises DataError."""
        if step not in self._shared:
            self._shared[step] = shared_beginning(one or "" for one in self.of(step).column("prompt").to_pylist())
        return self._shared[step]

    def names(self, step: int) -> tuple[str, ...]:
        """The components of a step's rewards, sorted; none if its file cannot be read."""
        try:
            found = self.of(step).column("components").unique().to_pylist()
        except DataError:
            return ()
        return tuple(sorted({name for text in found for name in rollouts.columns_of(text)}))

    def forget(self, step: int) -> None:
        """Drops all that is cached of a replaced file."""
        with self._lock:
            self._drop(step)
            self._shared.pop(step, None)
            for known in self._hits.values():
                known.pop(step, None)

    def _drop(self, step: int) -> None:
        if (table := self._said.pop(step, None)) is not None:
            self._bytes -= table.nbytes


def component_of(components: str | None, name: str) -> float | None:
    """The finite score of a component in a rollout's column `components`; None if it has none."""
    return number_of(rollouts.columns_of(components).get(name))


def shared_beginning(prompts: Iterable[str]) -> int:
    """Characters that all prompts of a file begin with, where those are long: up to the last space or line of them."""
    known = sorted(set(prompts)) or [""]
    ends = zip(known[0], known[-1], strict=False)
    shared = known[0][: next((at for at, (low, high) in enumerate(ends) if low != high), 0)]
    cut = max(shared.rfind(" "), shared.rfind("\n")) + 1
    return cut if cut > _SHARED else 0
