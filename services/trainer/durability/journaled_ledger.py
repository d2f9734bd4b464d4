"""The ledger and the journal under one lock: no group ends without a journal record, and none is journaled twice."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.ledger import Arrival, Ledger, ReadyGroup
from headrace.services.trainer.durability.staleness import UntrainedGroups, generated_tokens, lengths_of
from headrace.services.trainer.durability.suspects import Suspects
from headrace.wire.contracts import DropReason, PolicyVersion
from headrace.wire.journal import DroppedRecord, JournalWriter
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import sha256_of_files

_NAMED = 4
"""Number of awaited groups reported to the orchestrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """What was written about a step."""

    step: int
    rollouts: str
    """Hex sha256 of its file in `rollouts/`; empty for one that this life did not write."""
    rollouts_from: int
    """Lowest step whose file is kept; 0 = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerProgress:
    """The state reported to the orchestrator, at one moment."""

    version: int
    frontier: int
    fates: list[GroupFate]
    unproven: Mapping[str, int]
    """Replica id -> groups in a row under weights that this life never had; see `Suspects`."""


class JournaledLedger:
    """Used by the main thread (batches, steps) and by the inbox (arrivals, tombstones)."""

    def __init__(self, ledger: Ledger, journal: JournalWriter, events: EventLog, *, version: int, digest: str) -> None:
        self._ledger = ledger
        self._journal = journal
        self.events = events
        """The log of this life, which has a lock of its own."""
        self._lock = threading.Lock()
        self._unreported: list[GroupFate] = []
        self._suspects = Suspects()
        self._stale: list[tuple[int, ...]] = []
        """Lengths of the groups that were dropped as stale since the last batch."""
        self._spent = 0
        """Completion tokens of all groups that were dropped since the last batch."""
        self.arrived = threading.Event()
        """Set whenever a group has arrived or ended: a batch may be ready."""
        self.version = version
        self.weights_digest = digest

    @property
    def incarnation(self) -> int:
        """Incarnation of this life."""
        return self._journal.incarnation

    @property
    def discarded(self) -> int:
        """Groups that this life has discarded as uninformative since its last batch."""
        with self._lock:
            return self._ledger.discarded

    def knows(self, group_index: int) -> bool:
        """Whether the group waits for its batch, or has ended."""
        with self._lock:
            return self._ledger.is_ready(group_index) or self._ledger.has_fate(group_index)

    def is_over(self, group_index: int, step: int) -> bool:
        """Whether the group was dropped, or trained by a step up to `step`."""
        with self._lock:
            return self._ledger.is_over(group_index, step)

    def take(self, group: ReadyGroup) -> Arrival:
        """Takes a scored group. The caller drops what is not kept: a drop waits for the disk, this method does not."""
        with self._lock:
            arrival = self._ledger.take(group)
            metrics.GROUPS_READY.set(self._ledger.ready)
        if arrival is Arrival.DUPLICATE:
            metrics.DUPLICATES.inc()
        self.arrived.set()
        return arrival

    def drop(self, group_index: int, group_id: str, reason: str, lengths: Sequence[int] = ()) -> bool:
        """Journals (durably) that a group will never be trained; False if it has arrived or ended already.

        `lengths`: completion tokens of its rollouts, as far as they were generated.
        """
        with self._lock:
            if self._ledger.has_fate(group_index) or self._ledger.is_ready(group_index):
                metrics.DUPLICATES.inc()
                return False
            self._drop_all([GroupFate(group_index=group_index, group_id=group_id, reason=reason)])
            self._spent += sum(lengths)
            if reason == DropReason.STALE:
                self._stale.append(tuple(lengths))
        self.arrived.set()
        return True

    def next_batch(self) -> tuple[tuple[ReadyGroup, ...] | None, list[ReadyGroup]]:
        """Returns the next batch, not yet journaled (None while incomplete), and the groups just dropped for it."""
        with self._lock:
            choice = self._ledger.choose(
                incarnation=self.incarnation, version=self.version, weights_digest=self.weights_digest
            )
            self._drop_all(
                [GroupFate(group_index=g.group_index, group_id=g.group_id, reason=r) for g, r in choice.dropped]
            )
            now = PolicyVersion(incarnation=self.incarnation, version=self.version)
            unproven = (group for group, reason in choice.dropped if reason is DropReason.UNVERIFIED_WEIGHTS)
            self._suspects.dropped(unproven, now)
            self._stale += [lengths_of(group.scored) for group, reason in choice.dropped if reason is DropReason.STALE]
            self._spent += sum(generated_tokens(group.scored) for group, _ in choice.dropped)
            return choice.batch, [group for group, _ in choice.dropped]

    def journal_batch(self, step: int, batch: Sequence[ReadyGroup]) -> UntrainedGroups:
        """Makes the batch of `step` durable; from here on its groups count as trained in any case.

        Returns which groups this life has dropped on the way to it.
        """
        with self._lock:
            groups = [(group.group_index, group.group_id) for group in batch]
            record = self._journal.batch(step, groups, [group.data for group in batch])
            discarded = self._ledger.discarded
            self.events.append(
                "batch", step=step, group_ids=list(record.group_ids), digest=record.digest, discarded=discarded
            )
            fates = [GroupFate(group_index=index, group_id=name, step=step) for index, name in groups]
            for fate in fates:
                self._ledger.end(fate)
            self._suspects.trained(batch)
            self._unreported += fates
            metrics.GROUPS_READY.set(self._ledger.ready)
            stale, self._stale = tuple(self._stale), []
            spent, self._spent = self._spent, 0
        return UntrainedGroups(uninformative=discarded, stale=stale, spent=spent)

    def step_done(self, step: int, weights_digest: str) -> None:
        """Journals that the weights are now those of version `step`."""
        with self._lock:
            self._journal.step_done(step, weights_digest)
            self.events.append("step_done", step=step, weights_digest=weights_digest)
            self.version = step
            self.weights_digest = weights_digest

    def progress(self, from_index: int | None = None, most: int | None = None) -> LedgerProgress:
        """Version, frontier, and fates: those since the last call of `reported`, or those from an index on.

        `most`: at most so many of the latter, by index; None = all.
        """
        with self._lock:
            fates = list(self._unreported) if from_index is None else self._ledger.fates(from_index, most)
            return LedgerProgress(
                version=self.version, frontier=self._ledger.frontier, fates=fates, unproven=self._suspects.rows()
            )

    def reported(self, fates: Sequence[GroupFate]) -> None:
        """Marks fates as received by the orchestrator."""
        with self._lock:
            done = {fate.group_index for fate in fates}
            self._unreported = [fate for fate in self._unreported if fate.group_index not in done]

    def recorded(self, written: RecordedStep) -> None:
        """Records the digests of a step's files."""
        self.events.append("step_recorded", **asdict(written))

    def exported(self, path: Path, weights_sha256: str) -> None:
        """Records that the model of the current version is written, with the digest of each file. Raises OSError."""
        self.events.append(
            "exported",
            path=str(path),
            weights_sha256=weights_sha256,
            step=self.version,
            weights_digest=self.weights_digest,
            files=sha256_of_files(path),
        )

    def missing(self) -> tuple[str, list[int]]:
        """Describes what the next batch lacks, and returns the groups that it waits for, if these are certain ones."""
        with self._lock:
            if not self._ledger.is_ordered:
                return f": {self._ledger.ready} of {self._ledger.batch_groups} groups have come", []
            awaited = self._ledger.awaited()
            if not awaited:
                return "", []
            others = f" and {len(awaited) - 1} more" if len(awaited) > 1 else ""
            return f": group {awaited[0]}{others}", awaited[:_NAMED]

    def diagnosis(self) -> str:
        """Why there is no batch, in words."""
        with self._lock:
            awaited = ", ".join(map(str, self._ledger.awaited()[:8]))
            return f"{self._ledger.ready} groups are ready, the lowest that have not come are {awaited}"

    def fence(self) -> None:
        """Raises FencedError if a later life of the trainer has a journal segment."""
        self._journal.fence()

    def close(self) -> None:
        """Closes journal and events."""
        with self._lock:
            self._journal.close()
            self.events.close()

    def _drop_all(self, fates: list[GroupFate]) -> None:
        if not fates:
            return
        self._journal.dropped(
            [DroppedRecord(group_index=f.group_index, group_id=f.group_id, reason=f.reason) for f in fates]
        )
        for fate in fates:
            self._ledger.end(fate)
            self.events.append("dropped", group_id=fate.group_id, group_index=fate.group_index, reason=fate.reason)
            metrics.GROUPS_DROPPED.labels(str(DropReason(fate.reason))).inc()
        self._unreported += fates
        metrics.GROUPS_READY.set(self._ledger.ready)
