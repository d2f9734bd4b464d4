"""SQLite on a full disk: the file is named, and a transaction leaves nothing behind."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.state.database import Database, Transaction
from headrace.wire.errors import DiskError


@pytest.fixture
def db(tmp_path: Path) -> Database:
    made = Database(tmp_path / "state.sqlite")
    made.execute("CREATE TABLE t (x BLOB)")
    made.execute("PRAGMA max_page_count = 4")  # What SQLite says then is what it says of a full disk.
    return made


def test_a_transaction_on_a_full_disk_rolls_back_and_the_next_one_works(db: Database) -> None:
    with pytest.raises(DiskError), Transaction(db):
        db.execute("INSERT INTO t VALUES (1)")
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    assert not db.in_transaction
    with Transaction(db):
        db.execute("INSERT INTO t VALUES (2)")
    assert db.execute("SELECT x FROM t").fetchall() == [(2,)]
