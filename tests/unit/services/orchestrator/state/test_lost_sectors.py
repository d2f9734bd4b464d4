"""The orchestrator's database after a power failure: a state that was committed, or a named refusal."""

import contextlib
import sqlite3
from pathlib import Path

from headrace.services.orchestrator.state.store import OpenGroup, Store
from tests.crash import leftovers, lost_tails

ROUNDS = 3


def groups(path: Path) -> list[int]:
    store = Store(path)
    try:
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return sorted(group.group_index for group in store.open_groups())
    finally:
        store.close()


def test_of_each_commit_any_lost_sectors_leave_the_state_before_or_after_it(tmp_path: Path) -> None:
    live, crashed = tmp_path / "live.sqlite", tmp_path / "crashed.sqlite"
    store = Store(live)
    wal, seen = live.with_name("live.sqlite-wal"), set()
    before, known = wal.read_bytes(), 0
    for count in range(1, ROUNDS + 1):
        store.issue([OpenGroup(group_index=index, attempt=0) for index in range(known, known + 30 * count)])
        after, issued = wal.read_bytes(), known + 30 * count
        for left in leftovers(before, after):
            crashed.write_bytes(live.read_bytes())
            crashed.with_name("crashed.sqlite-wal").write_bytes(left)
            found = groups(crashed)
            assert found in (list(range(known)), list(range(issued)))
            seen.add(len(found) == issued)
            crashed.with_name("crashed.sqlite-wal").unlink(missing_ok=True)
            crashed.with_name("crashed.sqlite-shm").unlink(missing_ok=True)
        before, known = after, issued
    store.close()
    assert seen == {True, False}


def checkpointed(live: Path) -> tuple[bytes, bytes]:
    """Moves the log into the file, as SQLite does once it is long; returns the file before and behind that."""
    before = live.read_bytes()
    with contextlib.closing(sqlite3.connect(live)) as other:
        assert other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
    return before, live.read_bytes()


def test_as_the_log_moves_into_the_file_any_lost_sectors_leave_the_state(tmp_path: Path) -> None:
    live, crashed = tmp_path / "live.sqlite", tmp_path / "crashed.sqlite"
    store = Store(live)
    store.issue([OpenGroup(group_index=index, attempt=0) for index in range(300)])
    log = live.with_name("live.sqlite-wal").read_bytes()
    before, after = checkpointed(live)
    assert before != after
    tried = 0
    for left in (*leftovers(before, after), *lost_tails(before, after)):
        crashed.write_bytes(left)
        # It is synced before the file is touched, and begins anew only once the file is synced, too.
        crashed.with_name("crashed.sqlite-wal").write_bytes(log)
        assert groups(crashed) == list(range(300))
        tried += left not in (before, after)
        for end in ("-wal", "-shm"):
            crashed.with_name(f"crashed.sqlite{end}").unlink(missing_ok=True)
    store.close()
    assert tried > 10


def test_a_log_that_begins_anew_leaves_the_state_before_or_after_its_first_commit(tmp_path: Path) -> None:
    live, crashed = tmp_path / "live.sqlite", tmp_path / "crashed.sqlite"
    store = Store(live)
    store.issue([OpenGroup(group_index=index, attempt=0) for index in range(300)])
    wal = live.with_name("live.sqlite-wal")
    checkpointed(live)
    file, before = live.read_bytes(), wal.read_bytes()
    store.issue([OpenGroup(group_index=index, attempt=0) for index in range(300, 330)])
    after, seen = wal.read_bytes(), set()
    assert before[:32] != after[:32], "it does not begin anew"
    for left in leftovers(before, after):
        crashed.write_bytes(file)
        crashed.with_name("crashed.sqlite-wal").write_bytes(left)
        found = groups(crashed)
        assert found in (list(range(300)), list(range(330)))
        seen.add(len(found))
        for end in ("-wal", "-shm"):
            crashed.with_name(f"crashed.sqlite{end}").unlink(missing_ok=True)
    store.close()
    assert seen == {300, 330}
