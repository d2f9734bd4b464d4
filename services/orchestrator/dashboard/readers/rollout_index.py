"""Index of the rollouts in a folder such as `RUN/rollouts/`; grows with it, searched and read on threads."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.services.orchestrator.dashboard.readers.query import Query, arrange, select
from headrace.services.orchestrator.dashboard.readers.texts import Texts, component_of
from headrace.wire.api.rollouts import RolloutRow
from headrace.wire.errors import DataError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import rollout_file
from headrace.wire.telemetry.logs import get_logger

log = get_logger("dashboard")

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""Inode, size and time of the last change (ns) of a file: a file that has replaced it has another."""
Looked = tuple[int, int]
"""Inode and mtime (ns) of the folder at a scan that left nothing unread."""

SHORT = 160
"""Maximum characters of prompt and completion in the list."""
_INDEXED = rollouts.columns(
    *("group_index", "rollout_index", "reward", "advantage", "min_version", "max_version"),
    *("tokens", "finish_reason", "replica_id", rollouts.SET),
)
_WORDS = pa.dictionary(pa.int32(), pa.string())
_PLACED = {"step": "int32", "place": "int32", **{name: rollouts.COLUMNS[name] for name in _INDEXED}}
NO_FACTS = pa.schema(
    [(name, _WORDS if kind == "string" else pa.type_for_alias(kind)) for name, kind in _PLACED.items()]
).empty_table()
"""One row for each rollout, by step, then by its place in the file: what rollouts are filtered and sorted by."""
_AT_ONCE = 256
_READ_S = 120.0
_SEARCH_S = 2.0
_ORDERS = 8
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Ordered positions in the searched snapshot `facts`; `partial` = not all files have been searched yet."""

    facts: pa.Table
    positions: pa.ChunkedArray
    partial: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    facts: pa.Table
    stamps: dict[int, Stamp]
    """Step -> stamp of the file that was read."""
    damaged: dict[int, str]
    gone: list[int]
    more: bool
    looked: Looked


class RolloutIndex:
    """Modified on the event loop only; its snapshots are searched on threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = NO_FACTS
        self.damaged: dict[int, str] = {}
        """Step -> why its file is skipped."""
        self.reading = True
        """Some files are not in the index yet."""
        self._texts = Texts(folder)
        self._stamps: dict[int, Stamp] = {}
        self._looked: Looked = (-1, -1)
        self._orders: OrderedDict[Query, Found] = OrderedDict()
        self._slots = asyncio.Semaphore(_THREADS)

    def words(self, name: str) -> tuple[str, ...]:
        """The words in a column that holds words, sorted."""
        return tuple(sorted(self.facts.column(name).unique().to_pylist()))

    async def look(self) -> bool:
        """Indexes up to `_AT_ONCE` new or replaced files; returns whether more are waiting."""
        read = await self._on_thread(self._read, "the rollouts to be read")
        self.reading = read.more
        if read.stamps or read.gone:
            replaced = [step for step in (*read.stamps, *read.gone) if step in self._stamps]
            for step in replaced:
                self._texts.forget(step)
                self.damaged.pop(step, None)
            self.damaged.update(read.damaged)
            for step, reason in read.damaged.items():
                log.warning("rollouts_passed_over", step=step, error=reason)
            grow = self._on_thread(lambda: _with(self.facts, replaced, read.facts), "the index to grow")
            self.facts = await grow
            for step in read.gone:
                del self._stamps[step]
            self._stamps.update(read.stamps)
        self._looked = read.looked
        return read.more

    async def find(self, query: Query) -> Found:
        """All rollouts that match the query, in its order."""
        facts = self.facts
        known = self._orders.get(query)
        if known is not None and known.facts is facts and not known.partial:
            self._orders.move_to_end(query)
            return known
        found = await self._on_thread(lambda: self._find(facts, query), "the rollouts to be searched")
        self._orders[query] = found
        if len(self._orders) > _ORDERS:
            self._orders.popitem(last=False)
        return found

    async def listed(
        self, found: Found, offset: int = 0, limit: int | None = None, *, component: str = "", short: int = SHORT
    ) -> list[RolloutRow]:
        """A page of the list, with the score of a component; texts have at most `short` characters."""

        def read() -> list[RolloutRow]:
            rows = found.facts.take(found.positions.slice(offset, limit)).to_pylist()
            return [self._row(row, component, short) for row in rows]

        return await self._on_thread(read, "the rollouts to be read")

    async def components(self) -> tuple[str, ...]:
        """The components of the newest step's rewards."""
        if not len(self.facts):
            return ()
        newest = self.facts["step"][-1].as_py()
        return await self._on_thread(lambda: self._texts.names(newest), "the newest rollouts to be read")

    async def table(self, step: int, group_index: int, columns: tuple[str, ...]) -> pa.Table | None:
        """The rows of one group; None if there is no such group. Raises DataError if the file is damaged."""
        facts = self.facts

        def read() -> pa.Table | None:
            rows = select(facts, Query(step_from=step, step_to=step, group_index=group_index))
            if not rows.num_rows:
                return None
            span = (rows["place"][0].as_py(), rows["place"][-1].as_py() + 1)
            return rollouts.read(rollout_file(self.folder, step), columns, span)

        return await self._on_thread(read, "the group to be read")

    async def _on_thread(self, act: Callable[[], T], what: str) -> T:
        async with self._slots:
            return await wait_for(asyncio.to_thread(act), _READ_S, what)

    def _read(self) -> _Read:
        try:
            folder = self.folder.stat()
        except FileNotFoundError:
            return _Read(NO_FACTS, {}, {}, list(self._stamps), False, (-1, -1))
        looked = (folder.st_ino, folder.st_mtime_ns)
        # Directory mtimes are coarse: a file added at the instant of this scan must be found by the next one.
        if looked == self._looked and time.time_ns() - folder.st_mtime_ns > 2_000_000_000:
            return _Read(NO_FACTS, {}, {}, [], False, looked)
        files = rollouts.files(self.folder).items()
        there = {step: (status.st_ino, status.st_size, status.st_mtime_ns) for step, status in files}
        new = sorted(step for step, stamp in there.items() if self._stamps.get(step) != stamp)
        more = len(new) > _AT_ONCE
        # Newest first: people look at those.
        now = {step: there[step] for step in new[-_AT_ONCE:]}
        parts, damaged = [NO_FACTS], {}
        for step in now:
            path = rollout_file(self.folder, step)
            try:
                parts.append(_facts(step, rollouts.read(path, _INDEXED)))
            except DataError as error:
                if path.exists():
                    damaged[step] = str(error)
        gone = [step for step in self._stamps if step not in there]
        return _Read(pa.concat_tables(parts), now, damaged, gone, more, self._looked if more else looked)

    def _find(self, facts: pa.Table, query: Query) -> Found:
        rows, partial = select(facts.append_column("at", pa.array(np.arange(len(facts)))), query), False
        if query.said:
            rows, partial = self._with_texts(rows, query.said)
        return Found(facts, rows["at"].take(arrange(rows, query.sort)), partial)

    def _with_texts(self, rows: pa.Table, wanted: Query) -> tuple[pa.Table, bool]:
        """Searches newest steps first, within a time limit; results are cached for the next call."""
        end = time.monotonic() + _SEARCH_S
        steps, starts = np.unique(rows["step"].to_numpy(), return_index=True)
        place = rows["place"].to_numpy()
        mask = np.zeros(len(place), np.bool_)
        partial = False
        for step, part in zip(steps[::-1].tolist(), np.split(np.arange(len(place)), starts[1:])[::-1], strict=False):
            if time.monotonic() > end and not self._texts.knows(wanted, step):
                partial = True
                continue
            hits = self._texts.hits(wanted, step)
            # A file that was replaced after it was indexed may be shorter.
            part = part[place[part] < len(hits)]
            mask[part] = hits[place[part]]
        return rows.filter(pa.array(mask)), partial

    def _row(self, facts: dict[str, object], component: str, short: int) -> RolloutRow:
        step, place = facts["step"], facts.pop("place")
        assert isinstance(step, int)
        said = dict.fromkeys(("prompt", "completion", "group_id", "columns", "components"), "")
        shared = 0
        # The file may have been damaged or replaced after it was indexed.
        with contextlib.suppress(DataError, IndexError):
            texts = self._texts.of(step)
            said = {name: texts[name][place].as_py() or "" for name in said}
            shared = self._texts.shared(step) if short == SHORT else 0
        prompt = f"{rollouts.CUT}{said['prompt'][shared:]}" if shared else said["prompt"]
        return RolloutRow.model_validate(
            facts
            | {name: number_or_none(facts[name]) for name in ("reward", "advantage")}
            | {"group_id": said["group_id"], "prompt": prompt[:short], "completion": said["completion"][:short]}
            | {"answer": rollouts.answer_text(rollouts.columns_of(said["columns"]))[:short]}
            | ({"component": component_of(said["components"], component)} if component else {})
        )


def number_or_none(value: object) -> float | None:
    """The value, or None if it is not finite: JSON has no NaN."""
    return value if isinstance(value, int | float) and isfinite(value) else None


def _facts(step: int, table: pa.Table) -> pa.Table:
    """The indexed columns of a file. Raises DataError if one has another type."""
    rows, found = table.num_rows, []
    table = table.append_column("step", pa.array(np.full(rows, step))).append_column("place", pa.array(np.arange(rows)))
    try:
        for field in NO_FACTS.schema:
            is_word = field.type == _WORDS
            missing = "" if is_word else nan if pa.types.is_floating(field.type) else 0
            given = table.column(field.name) if field.name in table.column_names else pa.nulls(rows)
            given = given.cast(pa.string() if is_word else field.type).fill_null(missing)
            found.append(given.dictionary_encode() if is_word else given)
        return pa.table(found, schema=NO_FACTS.schema)
    except pa.ArrowException as error:
        raise DataError(f"the rollouts of step {step} have columns of other types: {error}") from error


def _with(known: pa.Table, replaced: list[int], read: pa.Table) -> pa.Table:
    """Merges the facts by increasing step, without the `replaced` steps; file order within a step."""
    if replaced:
        known = known.filter(~pc.field("step").isin(replaced))
    both = pa.concat_tables([known, read])
    if known.num_rows and read.num_rows and known["step"][-1].as_py() > read["step"][0].as_py():
        both = both.take(pc.sort_indices(both, sort_keys=[("step", "ascending")]))
    return both.unify_dictionaries().combine_chunks()
