"""Assigns rollouts to rows of the cache: pure arithmetic on the host.

Rows are grouped in classes of similar length, longest first, so that each class attends over its own length and short
rollouts do not pay for a long neighbour. As few rows as possible are moved, since a move copies keys and values.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headrace.services.rollout.engines.torch.model import RowBlock

EDGES = np.array([64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
"""Positions: a row's class is the number of edges it has passed."""

_ROUND = 32
"""Attended lengths are multiples of this."""

_WORTHWHILE = 400
"""Rows times positions that a separate segment must save to be worth its extra calls."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Simultaneous moves of row sources[i] to row targets[i]; afterwards the first `count` rows are the live ones."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    count: int


def arrange(lengths: NDArray[np.int64], alive: NDArray[np.bool_]) -> Moves:
    """Moves live rows to the front, ordered by class; rows already in a suitable place stay.

    `lengths` and `alive` are those of the rows in use [rows].
    """
    classes = np.where(alive, np.searchsorted(EDGES, lengths), -1)
    count = int(alive.sum())
    wanted = np.sort(classes[alive])[::-1]
    places = np.arange(len(classes))
    inside = places < count
    well = np.zeros(len(classes), dtype=bool)
    well[:count] = classes[:count] == wanted
    targets = places[inside & ~well]
    sources = places[alive & ~well]
    # Both sides contain each class equally often, so they pair up when sorted by class.
    targets = targets[np.argsort(-wanted[targets], kind="stable")]
    sources = sources[np.argsort(-classes[sources], kind="stable")]
    return Moves(sources=sources, targets=targets, count=count)


def row_blocks(lengths: NDArray[np.int64]) -> list[RowBlock]:
    """Splits rows with `lengths` [rows] positions into blocks where a common length would waste too much."""
    classes = np.searchsorted(EDGES, lengths)
    starts = [0, *(np.flatnonzero(np.diff(classes)) + 1).tolist(), len(lengths)]
    found: list[RowBlock] = []
    for start, end in pairwise(starts):
        length = _rounded(int(lengths[start:end].max()))
        if found and (end - start) * (found[-1].length - length) < _WORTHWHILE:
            last = found.pop()
            start, length = last.start, max(last.length, length)
        found.append(RowBlock(start=start, end=end, length=length))
    return found


def fixed_block(rows: int, length: int) -> list[RowBlock]:
    """One segment for all rows, whose length depends only on `length`; used in deterministic mode."""
    return [RowBlock(start=0, end=rows, length=_rounded(length))]


def _rounded(length: int) -> int:
    return -(-length // _ROUND) * _ROUND
