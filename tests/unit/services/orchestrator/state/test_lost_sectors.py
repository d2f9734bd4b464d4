"""The orchestrator's database after a power failure: a state that was committed, or a named refusal."""

from pathlib import Path

from headrace.services.orchestrator.state.store import OpenGroup, Store
from tests.crash import leftovers

ROUNDS = 3


def groups(path: Path) -> list[int]:
    store = Store(path)
    try:
        assert store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return sorted(group.group_index for group in store.open_groups())
    finally:
        store.close()


def test_lost_sectors_leave_the_state_before_or_after_each_commit(tmp_path: Path) -> None:
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
