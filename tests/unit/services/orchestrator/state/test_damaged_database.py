"""A damaged database is put aside with what lies beside it, and the state begins empty; other errors pass."""

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.services.orchestrator.state.database import Database, is_damage
from headrace.services.orchestrator.state.store import OpenGroup, Store

PAGE = 4096


def filled(path: Path) -> None:
    """A database of several pages, closed, so that all of it is in the file."""
    store = Store(path)
    store.issue([OpenGroup(group_index=index, attempt=0) for index in range(3000)])
    store.end([(index, 1 + index // 16, "") for index in range(2900)])
    store.close()


def garbage(data: bytes) -> bytes:
    return random.Random(1).randbytes(len(data))


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def within_a_page(data: bytes) -> bytes:
    return data[: 2 * PAGE + 100]


def flipped(data: bytes) -> bytes:
    """Each bit of a page within the table is the other one."""
    begin = 4 * PAGE
    return data[:begin] + bytes(one ^ 0xFF for one in data[begin : begin + PAGE]) + data[begin + PAGE :]


def exchanged(data: bytes) -> bytes:
    """The last two pages have changed places."""
    return data[: -2 * PAGE] + data[-PAGE:] + data[-2 * PAGE : -PAGE]


DAMAGES = (garbage, truncated, within_a_page, flipped, exchanged)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_put_aside_and_the_state_begins_empty(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "state.sqlite"
    for number in (1, 2):
        filled(path)
        bad = damage(path.read_bytes())
        path.write_bytes(bad)
        store = Store(path)
        try:
            assert store.damaged is not None and store.damaged.reason and "\n" not in store.damaged.reason
            assert store.damaged.moved_to == tmp_path / f"state.damaged-{number}"
            assert store.damaged.moved_to.read_bytes() == bad
            assert store.counts() == {} and store.next_index() == 0
            store.issue([OpenGroup(group_index=0, attempt=0)])
        finally:
            store.close()
        again = Store(path)
        assert again.damaged is None and again.num_open == 1
        again.close()
        path.unlink()


def test_a_log_of_the_damaged_file_is_not_read_into_the_new_one(tmp_path: Path) -> None:
    path, live = tmp_path / "state.sqlite", tmp_path / "live.sqlite"
    filled(live)
    store = Store(live)
    store.issue([OpenGroup(group_index=5000, attempt=0)])
    log = live.with_name("live.sqlite-wal").read_bytes()
    store.close()
    path.write_bytes(flipped(live.read_bytes()))
    path.with_name("state.sqlite-wal").write_bytes(log)
    # One that reads, such as `headrace status`: SQLite then keeps the log at a close.
    with contextlib.closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] > 3
        reborn = Store(path)
        assert reborn.damaged is not None and reborn.counts() == {}
        assert reborn.damaged.moved_to.with_name("state.damaged-1-wal").read_bytes() == log
        reborn.issue([OpenGroup(group_index=7, attempt=0)])
    reborn.close()
    again = Store(path)
    assert again.damaged is None and again.open_groups() == [OpenGroup(group_index=7, attempt=0)]
    again.close()


def test_a_database_that_is_locked_or_of_another_schema_is_not_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE groups (name TEXT)")
        other.commit()
    with pytest.raises(sqlite3.OperationalError, match="no such column") as error:
        Store(path)
    assert not is_damage(error.value) and path.exists()
    locked = tmp_path / "locked.sqlite"
    with contextlib.closing(sqlite3.connect(locked)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("CREATE TABLE t (x)")
        database = Database(locked)
        database.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(sqlite3.OperationalError, match="locked") as error:
            database.execute("CREATE TABLE u (x)")
        database.close()
    assert not is_damage(error.value)
