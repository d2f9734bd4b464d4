"""A SQLite file whose refusals by the disk are named, and its transactions."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.wire import failpoints
from headrace.wire.host.disk_fault import writing

Value = str | bytes | int | float | None
"""What a column holds."""
_WRITES = ("INSERT", "UPDATE", "DELETE")
_COMMIT = "COMMIT"


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
