"""Columns on disk grow without a change to their views, take no memory, and lose nothing to a disk that was full."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from headrace.services.orchestrator.dashboard.readers.columns import DiskColumns

KINDS = {"step": np.int32, "value": np.float64}


def rows(first: int, count: int) -> dict[str, np.ndarray]:
    steps = np.arange(first, first + count)
    return {"step": steps, "value": steps / 2}


def test_views_stay_as_they_are_while_the_columns_outgrow_their_file() -> None:
    columns = DiskColumns(KINDS)
    views = []
    for first in range(0, 20_000, 1_000):
        columns.append(rows(first, 1_000))
        views.append(columns.view())
    del columns
    for position, view in enumerate(views):
        count = 1_000 * (position + 1)
        assert view["step"].dtype == np.int32 and np.array_equal(view["step"], np.arange(count))
        assert np.array_equal(view["value"], np.arange(count) / 2)
    with pytest.raises(ValueError, match="read-only"):
        views[0]["value"][0] = 1.0


@contextmanager
def full_disk() -> Iterator[None]:
    """A disk that takes no more bytes."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "pwrite", refuse)
        yield


def test_a_full_disk_adds_no_rows() -> None:
    columns = DiskColumns(KINDS)
    columns.append(rows(0, 4_000))
    for count in (1, 5_000):
        with full_disk():
            columns.append(rows(4_000, count))
        assert len(columns) == 4_000
    columns.append(rows(4_000, 5_000))
    assert np.array_equal(columns.view()["step"], np.arange(9_000))
