"""A step is not begun before its journal record has room; the wait has a name and an end."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.services.trainer.stages import room_wait
from headrace.services.trainer.stages.room_wait import MIB, wait_for_room
from headrace.wire.errors import DiskError
from tests.unit.services.trainer.durability.test_ledger import ready

DATA = b"m" * 1000


@pytest.fixture
def wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bool, list[str]]]:
    """Waits with a disk that has `free` bytes at each look in turn; returns the answer and what was said."""
    monkeypatch.setattr(room_wait, "_LOOK_S", 0.0)

    def begin(free: list[int | None], *, reserve: int = 10 * MIB, limit_s: float = 600.0) -> tuple[bool, list[str]]:
        looks, said = iter(free), list[str]()
        monkeypatch.setattr(room_wait, "free_bytes", lambda _folder: next(looks))
        there = wait_for_room(
            tmp_path,
            [replace(ready(0), data=DATA)],
            reserve_bytes=reserve,
            limit_s=limit_s,
            given_up=lambda: len(said) >= 3,
            check=lambda: None,
            doing=lambda what, left_s=None: said.append(what),
        )
        return there, said

    return begin


def test_with_enough_room_the_need_is_only_a_gauge(wait: Callable[..., tuple[bool, list[str]]]) -> None:
    assert wait([11 * MIB]) == (True, [])
    assert REGISTRY.get_sample_value("headrace_trainer_step_room_bytes") == 10 * MIB + len(DATA)


def test_the_wait_for_room_names_the_disk_and_the_bytes(
    wait: Callable[..., tuple[bool, list[str]]], tmp_path: Path
) -> None:
    there, said = wait([MIB, 11 * MIB])
    assert there and said == [f"room on the disk of {tmp_path}: 1.0 MiB free, 10.0 MiB needed", ""]


def test_a_stop_ends_the_wait(wait: Callable[..., tuple[bool, list[str]]]) -> None:
    assert wait([MIB] * 4)[0] is False


def test_the_deadline_ends_the_trainer_with_the_reason(wait: Callable[..., tuple[bool, list[str]]]) -> None:
    with pytest.raises(DiskError, match=r"1\.0 MiB free, 10\.0 MiB needed\); make room .*disk_reserve_mib"):
        wait([MIB], limit_s=0.0)
