"""The run's state in SQLite (WAL): issued groups, their fates, the registered trainer. One writer, one process.

If the database is lost, groups and fates are rebuilt from the trainer's journal, so it needs no backup, and a damaged
one is put aside as it is opened; a group is recorded as issued before the XADD. Lost with it are operator requests
(`operator_requests.py`) and re-issued prompts (`requeued`); the event log has both.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.services.orchestrator.state.database import Database, Transaction, is_damage, put_aside

_SCHEMA = """
CREATE TABLE IF NOT EXISTS groups (
    group_index INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    step INTEGER,
    reason TEXT
);
CREATE INDEX IF NOT EXISTS open_groups ON groups (group_index) WHERE step IS NULL;
CREATE TABLE IF NOT EXISTS requeued (
    place INTEGER PRIMARY KEY,
    entry TEXT NOT NULL,
    dead_index INTEGER NOT NULL UNIQUE,
    row INTEGER NOT NULL,
    group_index INTEGER UNIQUE
);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS evaluated (
    version INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    entry BLOB NOT NULL,
    PRIMARY KEY (version, prompt)
);
"""


@dataclass(frozen=True, slots=True)
class DamagedState:
    """A database that was put aside."""

    moved_to: Path
    reason: str
    """In SQLite's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """A group that was issued and has no fate yet."""

    group_index: int
    attempt: int


class Store:
    """Access to the database. All calls are short and synchronous."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.damaged: DamagedState | None = None
        """What was found instead of a whole database: this one then began empty."""
        self._counts: Counter[str] = Counter()
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._db.close()
            self.damaged = DamagedState(put_aside(path), str(error))
            self._open(path)

    def _open(self, path: Path) -> None:
        """Raises DatabaseError for a file that is damaged or no database."""
        self._db = Database(path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.check()
        self._db.executescript(_SCHEMA)
        self._count_anew()

    def issue(self, groups: Iterable[OpenGroup]) -> None:
        """Records groups as issued (or re-issued), durably, before they are put on the stream."""
        with self._transaction():
            self._issue(groups)
        self._count_open()

    def issue_new(self, gaps: Iterable[int], fresh: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Records new groups as issued; prompts that wait to be issued again get the first of the `fresh` indices.

        In one transaction: an index assigned but not issued would be assigned twice. Returns new group -> (dead group,
        row) for these prompts.
        """
        indices = [*fresh]
        with self._transaction():
            given = self._give(indices)
            self._issue(OpenGroup(group_index=index, attempt=0) for index in (*gaps, *indices))
        self._count_open()
        return given

    def _issue(self, groups: Iterable[OpenGroup]) -> None:
        self._db.executemany(
            "INSERT INTO groups (group_index, attempt) VALUES (?, ?) "
            "ON CONFLICT (group_index) DO UPDATE SET attempt = excluded.attempt WHERE step IS NULL",
            [(group.group_index, group.attempt) for group in groups],
        )

    def _give(self, indices: Iterable[int]) -> dict[int, tuple[int, int]]:
        query = "SELECT place, dead_index, row FROM requeued WHERE group_index IS NULL ORDER BY place"
        waiting = self._db.execute(query).fetchall()
        # Runs from before `issue_new` may have crashed in between: such an index is already assigned.
        taken = {index for (index,) in self._db.execute("SELECT group_index FROM requeued")} if waiting else set()
        free = (index for index in indices if index not in taken)
        given = {index: one for one, index in zip(waiting, free, strict=False)}
        pairs = [(index, place) for index, (place, _, _) in given.items()]
        self._db.executemany("UPDATE requeued SET group_index = ? WHERE place = ?", pairs)
        return {index: (dead_index, row) for index, (_, dead_index, row) in given.items()}

    def requeue(self, entry: str, dead_index: int, row: int) -> bool:
        """Queues the prompt of a dead group to be issued again; False if it was queued before."""
        cursor = self._db.execute(
            "INSERT OR IGNORE INTO requeued (entry, dead_index, row) VALUES (?, ?, ?)", (entry, dead_index, row)
        )
        return cursor.rowcount > 0

    def requeued(self) -> dict[int, int | None]:
        """Dead group -> the group as which its prompt was issued again; None while it waits."""
        return dict(self._db.execute("SELECT dead_index, group_index FROM requeued"))

    def requeued_row(self, group_index: int) -> int | None:
        """The prompt row of a group that re-issues a dead group's prompt; None for any other group."""
        found = self._db.execute("SELECT row FROM requeued WHERE group_index = ?", (group_index,)).fetchone()
        return None if found is None else int(found[0])

    def requeued_before(self, group_index: int) -> int:
        """Number of groups with a lower index that re-issue a dead group's prompt."""
        (count,) = self._db.execute("SELECT COUNT(*) FROM requeued WHERE group_index < ?", (group_index,)).fetchone()
        return int(count)

    def step_of(self, group_index: int) -> int | None:
        """The step that trained a group; 0 if it was dropped, None without a fate."""
        found = self._db.execute("SELECT step FROM groups WHERE group_index = ?", (group_index,)).fetchone()
        return None if found is None or found[0] is None else int(found[0])

    def ended(self, indices: Iterable[int]) -> list[int]:
        """Those of the given groups that have a fate."""
        return [index for index in indices if self.step_of(index) is not None]

    def end(self, fates: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Records fates (group index, step or 0, reason); the first one per group counts. Returns the new ones."""
        new = []
        with self._transaction():
            for group_index, step, reason in fates:
                cursor = self._db.execute(
                    "INSERT INTO groups (group_index, attempt, step, reason) VALUES (?, 0, ?, ?) "
                    "ON CONFLICT (group_index) DO UPDATE SET step = excluded.step, reason = excluded.reason "
                    "WHERE step IS NULL",
                    (group_index, step, reason),
                )
                if cursor.rowcount:
                    new.append((group_index, step, reason))
        self._counts.update("trained" if step > 0 else reason for _, step, reason in new)
        self._count_open()
        return new

    def keep_only(self, ended: Iterable[int]) -> int:
        """Reopens every ended group that is not in `ended`: the journal wins. Returns their number."""
        with self._transaction():
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS journaled (group_index INTEGER PRIMARY KEY)")
            self._db.execute("DELETE FROM journaled")
            self._db.executemany("INSERT OR IGNORE INTO journaled VALUES (?)", ((index,) for index in ended))
            cursor = self._db.execute(
                "UPDATE groups SET step = NULL, reason = NULL "
                "WHERE step IS NOT NULL AND group_index NOT IN (SELECT group_index FROM journaled)"
            )
        if cursor.rowcount:
            self._count_anew()
        return cursor.rowcount

    def open_groups(self) -> list[OpenGroup]:
        """All groups without a fate, by index."""
        rows = self._db.execute("SELECT group_index, attempt FROM groups WHERE step IS NULL ORDER BY group_index")
        return [OpenGroup(group_index=index, attempt=attempt) for index, attempt in rows]

    def next_index(self) -> int:
        """The lowest index never issued."""
        (highest,) = self._db.execute("SELECT MAX(group_index) FROM groups").fetchone()
        return 0 if highest is None else int(highest) + 1

    def last_step(self) -> int:
        """The highest step that trained a group; 0 for none."""
        (highest,) = self._db.execute("SELECT MAX(step) FROM groups").fetchone()
        return int(highest or 0)

    def gaps(self) -> list[int]:
        """Indices below `next_index` that are missing because the table was lost and rebuilt from fates."""
        top = self.next_index()
        if self._counts.total() == top:
            return []
        there = {index for (index,) in self._db.execute("SELECT group_index FROM groups")}
        return [index for index in range(top) if index not in there]

    def counts(self) -> dict[str, int]:
        """Number of groups by fate: `trained`, `open`, or the drop reason. Served from memory: it is called often."""
        return dict(self._counts)

    @property
    def num_open(self) -> int:
        """Number of groups without a fate."""
        return self._counts["open"]

    def _count_anew(self) -> None:
        rows = self._db.execute(
            "SELECT CASE WHEN step IS NULL THEN 'open' WHEN step > 0 THEN 'trained' ELSE reason END, COUNT(*) "
            "FROM groups GROUP BY 1"
        )
        self._counts = Counter({str(fate): int(count) for fate, count in rows})

    def _count_open(self) -> None:
        """Recounts the open groups: there are few, and they have an index of their own."""
        (count,) = self._db.execute("SELECT COUNT(*) FROM groups WHERE step IS NULL").fetchone()
        self._counts["open"] = int(count)
        if not count:
            del self._counts["open"]

    def keep_evaluated(self, version: int, prompt: int, entry: bytes) -> None:
        """Keeps what came back of a held-out prompt until its evaluation is closed; the first one counts."""
        self._db.execute("INSERT OR IGNORE INTO evaluated VALUES (?, ?, ?)", (version, prompt, entry))

    def evaluated_prompts(self, version: int) -> set[int]:
        """Prompts of an evaluation that something came back of."""
        return {prompt for (prompt,) in self._db.execute("SELECT prompt FROM evaluated WHERE version = ?", (version,))}

    def evaluated(self, version: int, prompt: int) -> bytes:
        """What came back of a prompt."""
        found = self._db.execute("SELECT entry FROM evaluated WHERE version = ? AND prompt = ?", (version, prompt))
        return bytes(found.fetchone()[0])

    def forget_evaluated(self, *, but: int = -1) -> bool:
        """Deletes some of what is kept of all evaluations but this one; returns whether there was any."""
        some = "SELECT rowid FROM evaluated WHERE version <> ? LIMIT 8"
        return self._db.execute(f"DELETE FROM evaluated WHERE rowid IN ({some})", (but,)).rowcount > 0

    def get(self, key: str) -> bytes | None:
        """A value of the meta table."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def set(self, key: str, value: bytes) -> None:
        """Writes a value of the meta table."""
        self.set_all({key: value})

    def set_all(self, values: Mapping[str, bytes | int]) -> None:
        """Writes values of the meta table, all or none."""
        rows = [(key, value if isinstance(value, bytes) else str(int(value)).encode()) for key, value in values.items()]
        with self._transaction():
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", rows
            )

    def get_int(self, key: str) -> int:
        """A number of the meta table; 0 if it was never written."""
        return int(self.get(key) or b"0")

    def set_int(self, key: str, value: int) -> None:
        """Writes a number of the meta table."""
        self.set_all({key: value})

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def _transaction(self) -> Transaction:
        return Transaction(self._db)
