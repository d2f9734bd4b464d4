"""A SQLite file whose refusals by the disk are named, and its transactions; a damaged one is put aside."""

import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.wire.host.disk_fault import writing
from headrace.wire.process import failpoints
from headrace.wire.rundir import atomic

Value = str | bytes | int | float | None
"""What a column holds."""
_WRITES = ("INSERT", "UPDATE", "DELETE")
_COMMIT = "COMMIT"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SIDES = ("-wal", "-shm")
"""What SQLite keeps beside a file."""


class Database:
    """One file in autocommit mode. Its statements raise DiskError with the file's path if the disk refuses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> sqlite3.Cursor:
        """Runs one statement; outside of a transaction it is committed."""
        with writing(self._path):
            if not self._commits(sql):
                return self._db.execute(sql, parameters)
            failpoints.reach("database.before_commit")
            cursor = self._db.execute(sql, parameters)
            failpoints.reach("database.committed")
            return cursor

    def executemany(self, sql: str, rows: Iterable[Sequence[Value]]) -> sqlite3.Cursor:
        """Runs one statement for each row."""
        with writing(self._path):
            return self._db.executemany(sql, rows)

    def executescript(self, script: str) -> None:
        """Runs several statements."""
        with writing(self._path):
            self._db.executescript(script)

    def check(self) -> None:
        """Raises DatabaseError if a page of the file is damaged: 0.4 s for a million groups, on a slow core."""
        (found,) = self.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            damage = sqlite3.DatabaseError(" ".join(str(found).split()))
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damage

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _commits(self, sql: str) -> bool:
        return sql == _COMMIT or (sql.startswith(_WRITES) and not self._db.in_transaction)


class Transaction:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK on an error."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute(_COMMIT)
        finally:
            # SQLite itself rolls back when the disk is full; a second ROLLBACK would hide that error by its own.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is not a database or has damaged pages; false if it is locked or the disk fails."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def put_aside(path: Path) -> Path:
    """Renames a database and what SQLite keeps beside it to the first free `NAME.damaged-N`, and returns that."""
    places = (path.with_name(f"{path.stem}.damaged-{number}") for number in itertools.count(1))
    target = next(place for place in places if not place.exists())
    # The file comes last: one that is killed before finds it damaged again.
    for side in (*_SIDES, ""):
        source = path.with_name(f"{path.name}{side}")
        if source.exists():
            atomic.move(source, target.with_name(f"{target.name}{side}"), durable=False)
    return target
