"""Index of all trained rollouts of a run; grows with `RUN/rollouts/`, searched and read on threads."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.services.orchestrator.dashboard.readers.query import Positions, Query, arrange, select
from headrace.services.orchestrator.dashboard.readers.rollout_file import (
    NO_FACTS,
    Names,
    RolloutFacts,
    joined,
    read_facts,
)
from headrace.services.orchestrator.dashboard.readers.texts import Texts
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
_AT_ONCE = 256
_READ_S = 120.0
_SEARCH_S = 2.0
_ORDERS = 8
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """Ordered positions in the searched snapshot `facts`; `partial` = not all files have been searched yet."""

    facts: RolloutFacts
    positions: Positions
    partial: bool = False


@dataclass(frozen=True, slots=True)
class _Read:
    facts: RolloutFacts
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
        self.names = Names()
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

    async def listed(self, facts: RolloutFacts, positions: Positions) -> list[RolloutRow]:
        """Rows of the list, in the order of `positions`."""
        return await self._on_thread(lambda: self._listed(facts, positions), "the rollouts to be read")

    async def table(self, step: int, group_index: int, columns: tuple[str, ...]) -> pa.Table | None:
        """The rows of one group; None if there is no such group. Raises DataError if the file is damaged."""
        facts = self.facts
        start, end = (int(np.searchsorted(facts.step, step, side=side)) for side in ("left", "right"))
        rows = np.flatnonzero(facts.group_index[start:end] == group_index)
        if not len(rows):
            return None
        path = self._path(step)
        first, last = int(rows[0]), int(rows[-1]) + 1
        return await self._on_thread(lambda: rollouts.read(path, columns, (first, last)), "the group to be read")

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
        facts, unread = read_facts({step: self._path(step) for step in now}, self.names)
        damaged = {step: reason for step, reason in unread.items() if self._path(step).exists()}
        gone = [step for step in self._stamps if step not in there]
        return _Read(facts, now, damaged, gone, more, self._looked if more else looked)

    def _path(self, step: int) -> Path:
        return rollout_file(self.folder, step)

    def _find(self, facts: RolloutFacts, query: Query) -> Found:
        positions = select(facts, self.names, query)
        partial = False
        if query.text:
            positions, partial = self._with_text(facts, positions, query.text)
        return Found(facts, arrange(facts, positions, query.sort), partial)

    def _with_text(self, facts: RolloutFacts, positions: Positions, text: str) -> tuple[Positions, bool]:
        """Searches newest steps first, within a time limit; results are cached for the next call."""
        end = time.monotonic() + _SEARCH_S
        steps, starts = np.unique(facts.step, return_index=True)
        mask = np.zeros(len(facts), np.bool_)
        partial = False
        for step in np.unique(facts.step[positions])[::-1].tolist():
            if time.monotonic() > end and not self._texts.knows(text, step):
                partial = True
                continue
            hits = self._texts.hits(text, step)
            start = int(starts[np.searchsorted(steps, step)])
            mask[start : start + len(hits)] = hits[: len(facts) - start]
        return positions[mask[positions]], partial

    def _listed(self, facts: RolloutFacts, positions: Positions) -> list[RolloutRow]:
        starts = np.searchsorted(facts.step, facts.step[positions], side="left")
        return [
            self._row(facts, int(position), int(position - start))
            for position, start in zip(positions, starts, strict=True)
        ]

    def _row(self, facts: RolloutFacts, position: int, number: int) -> RolloutRow:
        step = int(facts.step[position])
        try:
            said = self._texts.of(step)
            texts = (said.prompt, said.completion, said.group_id)
            prompt, completion, group_id = (text[number].as_py() or "" for text in texts)
        except (DataError, IndexError):
            prompt = completion = group_id = ""  # The file was damaged or replaced after it was indexed.
        return RolloutRow(
            step=step,
            group_index=int(facts.group_index[position]),
            group_id=group_id,
            rollout_index=int(facts.rollout_index[position]),
            reward=number_or_none(facts.reward[position]),
            advantage=number_or_none(facts.advantage[position]),
            finish_reason=self.names.finish.words[facts.finish_reason[position]],
            tokens=int(facts.tokens[position]),
            min_version=int(facts.min_version[position]),
            max_version=int(facts.max_version[position]),
            replica_id=self.names.replica.words[facts.replica_id[position]],
            prompt=prompt[:SHORT],
            completion=completion[:SHORT],
        )


def number_or_none(value: float | np.float64 | None) -> float | None:
    """The value, or None if it is not finite: JSON has no NaN."""
    return None if value is None or not np.isfinite(value) else float(value)


def _with(known: RolloutFacts, replaced: list[int], read: RolloutFacts) -> RolloutFacts:
    """Merges the facts by increasing step, without the `replaced` steps; file order within a step."""
    if replaced:
        known = known.at(~np.isin(known.step, replaced))
    both = joined((known, read))
    return both.at(np.argsort(both.step, kind="stable"))
