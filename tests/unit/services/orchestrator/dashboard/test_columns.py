"""Columns on disk grow without a change to their views, take no memory, and lose nothing to a disk that was full."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from headrace.services.orchestrator.dashboard.readers.columns import DiskColumns
from headrace.services.orchestrator.dashboard.readers.curves import Curves
from headrace.services.orchestrator.dashboard.readers.rollout_index import RolloutIndex
from tests.dashboard_run import write_rollout_file

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


def test_no_rows_are_no_change() -> None:
    columns = DiskColumns(KINDS)
    columns.append(rows(0, 0))
    assert len(columns) == 0 and [len(column) for column in columns.view().values()] == [0, 0]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_what_readers_have_touched_leaves_memory_with_the_next_rows() -> None:
    columns = DiskColumns({"value": np.float64})
    for _ in range(20):
        columns.append({"value": np.ones(500_000)})
    before = resident()
    assert columns.view()["value"].sum() == 10_000_000
    columns.append({"value": np.ones(1)})
    assert resident() - before < 20 * 1024 * 1024  # 80 MB were touched.


def test_descriptors_end_with_the_columns() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        columns = DiskColumns(KINDS)
        columns.append(rows(0, 5_000))
    del columns
    assert len(os.listdir("/proc/self/fd")) == before


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


async def test_curves_are_read_anew_behind_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "a": step / 2}) + "\n" for step in (1, 2)))
    curves = Curves(path)
    with full_disk():
        await curves.look()
    fresh = await curves.look()
    assert fresh is not None and curves.rows.steps.tolist() == [1, 2] and curves.rows.columns["a"].tolist() == [0.5, 1]


async def test_rollouts_are_indexed_behind_a_full_disk(tmp_path: Path) -> None:
    os.utime(write_rollout_file(tmp_path, 1, 10, 1).parent, (1, 1))  # Not changed of late: looked at once.
    index = RolloutIndex(tmp_path)
    with full_disk():
        await index.look()
    await index.look()
    assert set(index.facts.step.tolist()) == {1}
