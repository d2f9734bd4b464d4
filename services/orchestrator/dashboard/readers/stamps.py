"""Stamps distinguish a file of rollouts from one that has replaced it: 24 bytes a step."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.wire.rundir import rollouts

_KIND = np.dtype([("step", np.int64), ("file", np.int64), ("mtime_ns", np.int64)])
_MOST = 2**63 - 1

Stamps = NDArray[np.void]
"""One record a file (step; inode and size; time of its last change in ns), by increasing step."""
NO_STAMPS: Stamps = np.empty(0, _KIND)


def stamps_now(folder: Path) -> Stamps:
    """Those of the files that are there."""
    found = np.fromiter(
        (
            (step, (status.st_ino ^ status.st_size) & _MOST, status.st_mtime_ns)
            for step, status in rollouts.each_file(folder)
        ),
        _KIND,
    )
    return found[np.argsort(found["step"])]


def changed(there: Stamps, known: Stamps) -> Stamps:
    """Those of `there` that are not known, or known otherwise."""
    if not len(known):
        return there
    position = np.minimum(np.searchsorted(known["step"], there["step"]), len(known) - 1)
    others: Stamps = there[known[position] != there]
    return others


def gone(there: Stamps, known: Stamps) -> list[int]:
    """Steps that are known and not there."""
    steps: list[int] = known["step"][~np.isin(known["step"], there["step"])].tolist()
    return steps


def merged(known: Stamps, added: Stamps, without: list[int]) -> Stamps:
    """Both; `added` replaces the known stamp of a step, and the steps `without` are left out."""
    kept = known[~np.isin(known["step"], [*added["step"].tolist(), *without])]
    both = np.concatenate((kept, added))
    return both[np.argsort(both["step"])]
