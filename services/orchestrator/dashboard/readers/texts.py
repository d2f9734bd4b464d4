"""Memory-bounded cache of prompts and completions of the most recently used files. Blocking, thread-safe."""

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import rollout_file

Hits = NDArray[np.bool_]

_MOST_BYTES = 192 * 1024 * 1024
_PATTERNS = 4
_COLUMNS = rollouts.columns("prompt", "completion", "group_id")


class Texts:
    """LRU cache of file texts; the hits of the newest search patterns are cached separately."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._said: OrderedDict[int, pa.Table] = OrderedDict()
        self._bytes = 0
        self._hits: OrderedDict[str, dict[int, Hits]] = OrderedDict()

    def of(self, step: int) -> pa.Table:
        """`prompt`, `completion` and `group_id` of a step's file, a row each; raises DataError if it cannot be read."""
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

    def hits(self, pattern: str, step: int) -> Hits:
        """Which rollouts of a file contain the text in prompt or completion, ignoring case; empty if unreadable."""
        with self._lock:
            known = self._hits.setdefault(pattern, {})
            self._hits.move_to_end(pattern)
            if len(self._hits) > _PATTERNS:
                self._hits.popitem(last=False)
            if step in known:
                return known[step]
        try:
            said = self.of(step)
        except DataError:
            return np.zeros(0, np.bool_)
        texts = (said.column(name) for name in ("prompt", "completion"))
        found = [pc.match_substring(text, pattern, ignore_case=True) for text in texts]
        hits = np.asarray(pc.or_(*(one.fill_null(False) for one in found)).to_numpy(), np.bool_)
        known[step] = hits
        return hits

    def knows(self, pattern: str, step: int) -> bool:
        """Whether the file has been searched for the pattern already."""
        with self._lock:
            return step in self._hits.get(pattern, {})

    def forget(self, step: int) -> None:
        """Drops all that is cached of a replaced file."""
        with self._lock:
            self._drop(step)
            for known in self._hits.values():
                known.pop(step, None)

    def _drop(self, step: int) -> None:
        if (table := self._said.pop(step, None)) is not None:
            self._bytes -= table.nbytes
