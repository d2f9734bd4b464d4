"""Which groups have come, how each ended, and which are the next batch. Pure: no I/O, no clock.

At `max_staleness = 0` a batch is the lowest indices without a fate, whatever the order of arrival. At 1 and up it is
ready groups by arrival; what is over the bound is dropped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wire.contracts import DropReason, PolicyVersion, ScoredGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFate:
    """How a group ended: trained by a step, or dropped for a reason (then the step is 0)."""

    group_index: int
    group_id: str
    step: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyGroup:
    """A scored group that waits for its batch."""

    group_index: int
    group_id: str
    min_version: int
    sources: frozenset[tuple[PolicyVersion, str]]
    """Version and weights digest of all its tokens."""
    scored: ScoredGroup
    data: bytes
    """As it came over the wire: what is journaled."""


class Arrival(StrEnum):
    """What to do with an entry."""

    KEEP = "keep"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The next batch, in training order, if there is one; and what must be dropped before."""

    batch: tuple[ReadyGroup, ...] | None
    dropped: tuple[tuple[ReadyGroup, DropReason], ...]


class Ledger:
    """Every group is taken once and ends once."""

    def __init__(self, *, batch_groups: int, max_staleness: int, fates: Iterable[GroupFate] = ()) -> None:
        self._batch_groups = batch_groups
        self._max_staleness = max_staleness
        self._fates: dict[int, GroupFate] = {}
        self._ready: dict[int, ReadyGroup] = {}
        self.frontier = 0
        """All indices below have a fate."""
        for fate in fates:
            self.end(fate)

    @property
    def ready(self) -> int:
        """Groups that wait for their batch."""
        return len(self._ready)

    def fates(self, from_index: int = 0) -> list[GroupFate]:
        """All fates at and above an index, by index."""
        return [self._fates[index] for index in sorted(self._fates) if index >= from_index]

    def has_fate(self, index: int) -> bool:
        """Whether the group has ended."""
        return index in self._fates

    def is_ready(self, index: int) -> bool:
        """Whether the group waits for its batch."""
        return index in self._ready

    def take(self, group: ReadyGroup) -> Arrival:
        """A scored group has come: the first of an index counts."""
        if group.group_index in self._fates or group.group_index in self._ready:
            return Arrival.DUPLICATE
        self._ready[group.group_index] = group
        return Arrival.KEEP

    def end(self, fate: GroupFate) -> bool:
        """A group ends; False if it had ended before (then nothing changes)."""
        if fate.group_index in self._fates:
            return False
        self._fates[fate.group_index] = fate
        self._ready.pop(fate.group_index, None)
        while self.frontier in self._fates:
            self.frontier += 1
        return True

    def choose(self, *, incarnation: int, version: int, weights_digest: str) -> Choice:
        """The batch of step `version + 1`. Changes nothing: the caller journals the outcome and then calls `end`.

        `version` and `weights_digest` are those of the weights now, in this `incarnation`.
        """
        dropped = []
        fit = []
        for group in self._ready.values():
            reason = self._unfit(group, PolicyVersion(incarnation=incarnation, version=version), weights_digest)
            if reason is None:
                fit.append(group)
            else:
                dropped.append((group, reason))
        ended = {group.group_index for group, _ in dropped}
        batch = self._lowest(fit, ended) if self._max_staleness == 0 else fit[: self._batch_groups]
        if len(batch) < self._batch_groups:
            return Choice(batch=None, dropped=tuple(dropped))
        return Choice(batch=tuple(sorted(batch, key=lambda group: group.group_index)), dropped=tuple(dropped))

    def awaited(self) -> list[int]:
        """The lowest indices that the next on-policy batch needs and that have not come."""
        return [index for index in self._next_indices(set()) if index not in self._ready]

    def _unfit(self, group: ReadyGroup, now: PolicyVersion, digest: str) -> DropReason | None:
        if now.version - group.min_version > self._max_staleness:
            return DropReason.STALE
        if any(version.version > now.version for version, _ in group.sources):
            return DropReason.UNVERIFIED_WEIGHTS
        if self._max_staleness == 0 and not all(_is_same(*source, now, digest) for source in group.sources):
            return DropReason.UNVERIFIED_WEIGHTS
        return None

    def _lowest(self, fit: Sequence[ReadyGroup], ended: set[int]) -> list[ReadyGroup]:
        by_index = {group.group_index: group for group in fit}
        return [by_index[index] for index in self._next_indices(ended) if index in by_index]

    def _next_indices(self, ended: set[int]) -> list[int]:
        """The `batch_groups` lowest indices without a fate, were those of `ended` to end now."""
        indices: list[int] = []
        index = self.frontier
        while len(indices) < self._batch_groups:
            if index not in self._fates and index not in ended:
                indices.append(index)
            index += 1
        return indices


def _is_same(version: PolicyVersion, digest: str, now: PolicyVersion, now_digest: str) -> bool:
    """Whether tokens of `version` were sampled by the weights of now: another life's must prove it by their digest."""
    if version.incarnation == now.incarnation:
        return digest in ("", now_digest)
    return digest == now_digest
