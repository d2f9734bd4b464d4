"""Free room as gauges: what the file system says, NaN before and where nothing can be said, and never a wait."""

import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from headrace.wire.host import disk
from headrace.wire.host.disk import DiskWatch
from tests.waiting import until


class Told:
    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.free, self.size = (Gauge(name, "For a test.", registry=registry) for name in ("free", "size"))

    def values(self) -> tuple[float, float]:
        return self.free._value.get(), self.size._value.get()


@pytest.fixture
def watch() -> Iterator[Callable[[Path, Told], DiskWatch]]:
    begun: list[DiskWatch] = []

    def begin(folder: Path, told: Told) -> DiskWatch:
        one = DiskWatch(folder, told.free.set, told.size.set, every_s=0.02)
        one.start()
        begun.append(one)
        return one

    yield begin
    for one in begun:
        one.stop()


def test_the_disk_watch_reports_free_and_total_bytes(tmp_path: Path, watch: Callable[[Path, Told], DiskWatch]) -> None:
    told = Told()
    watch(tmp_path, told)
    until(lambda: told.values()[1] > 0)
    found = os.statvfs(tmp_path)
    assert told.values()[1] == found.f_blocks * found.f_frsize
    # Others may write meanwhile.
    assert abs(told.values()[0] - found.f_bavail * found.f_frsize) < 0.05 * told.values()[1]


def test_a_frozen_mount_does_not_block_the_caller(
    tmp_path: Path, watch: Callable[[Path, Told], DiskWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def frozen(folder: Path) -> None:
        asked.set()
        threading.Event().wait()

    monkeypatch.setattr(disk.shutil, "disk_usage", frozen)
    told = Told()
    one = watch(tmp_path, told)
    assert asked.wait(60)
    assert all(map(math.isnan, told.values()))
    one.stop()
