"""Which groups have arrived, how each ended, and which form the next batch. Pure: no I/O, no clock.

At `max_staleness = 0`, and with `run.stale = "wait"`, a batch is the lowest indices without a fate, in any order
of arrival: with credit of (max_staleness + 1) batches each group is then trained at most `max_staleness` steps after
its issue, and none exceeds the bound. With `late` a batch is the lowest indices among the ready groups, of any age:
credit bounds what is issued. With `mask` and `drop` a batch is ready groups in order of arrival; `drop` drops groups
that exceed the bound.

Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): a group whose trained rollouts all have one score has only
advantages of 0. It is dropped on arrival, so that its credit is free at once for another prompt. That depends on the
group alone: where batches are strictly ordered they do not depend on the order of arrival.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import numpy as np

from headrace.services.trainer.durability.fate_table import FateTable, GroupFate
from headrace.wire.contracts import DropReason, PolicyVersion, ScoredGroup
from headrace.wire.contracts.digests import same_weights
from headrace.wire.contracts.reasons import StalePolicy
from headrace.wire.errors import HeadraceError


class DynamicSamplingError(HeadraceError):
    """Prompt after prompt gives nothing to learn from."""

    final = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyGroup:
    """A scored group that waits for its batch."""

    group_index: int
    group_id: str
    min_version: int | None
    """Version of its oldest token; None if no rollout has tokens."""
    sources: frozenset[tuple[PolicyVersion, str]]
    """Version and weights digest of all its tokens."""
    scored: ScoredGroup
    """With its kept ids, unless it comes from the journal."""
    data: bytes
    """The message as received over the wire; this is journaled."""

    @property
    def replica_id(self) -> str:
        """The replica that sampled it; of an episode, the worker that played it."""
        return self.scored.group.replica_id


class Arrival(StrEnum):
    """What to do with an entry."""

    KEEP = "keep"
    DUPLICATE = "duplicate"
    UNINFORMATIVE = "uninformative"
    """To be dropped: all its rollouts have the same score."""
    ABSTAINED = "abstained"
    """To be dropped: too few of its rollouts were scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The next batch, in training order, if there is one; and what must be dropped before."""

    batch: tuple[ReadyGroup, ...] | None
    dropped: tuple[tuple[ReadyGroup, DropReason], ...]


class Ledger:
    """Every group is taken once and ends once."""

    def __init__(
        self,
        *,
        batch_groups: int,
        max_staleness: int,
        stale: StalePolicy = "wait",
        dynamic_sampling: bool = False,
        discard_limit: int = 10,
        fates: Iterable[GroupFate] = (),
    ) -> None:
        """`stale`: see `run.stale`. With `dynamic_sampling`, at most `discard_limit` batches' worth of groups are
        discarded for one batch.
        """
        self.batch_groups = batch_groups
        self._max_staleness = max_staleness
        self._stale = stale
        self._dynamic_sampling = dynamic_sampling
        self._discard_limit = discard_limit
        self._discarded: list[float] = []
        """The common score of each group that this life has discarded since its last batch."""
        self._fates = FateTable()
        self._ready: dict[int, ReadyGroup] = {}
        self.frontier = 0
        """All indices below have a fate."""
        for fate in fates:
            self.end(fate)

    @property
    def is_ordered(self) -> bool:
        """Whether a batch is the lowest indices without a fate."""
        return self._max_staleness == 0 or self._stale == "wait"

    @property
    def ready(self) -> int:
        """Groups that wait for their batch."""
        return len(self._ready)

    @property
    def discarded(self) -> int:
        """Groups that this life has discarded as uninformative since its last batch."""
        return len(self._discarded)

    def fates(self, from_index: int = 0, most: int | None = None) -> list[GroupFate]:
        """All fates at and above an index, or the first `most` of them, by index."""
        return list(islice(self._fates.since(from_index), most))

    def has_fate(self, index: int) -> bool:
        """Whether the group has ended."""
        return index in self._fates

    def is_over(self, index: int, step: int) -> bool:
        """Whether the group was dropped, or trained by a step up to `step`."""
        return self._fates.is_over(index, step)

    def is_ready(self, index: int) -> bool:
        """Whether the group waits for its batch."""
        return index in self._ready

    def take(self, group: ReadyGroup) -> Arrival:
        """Takes a scored group; the first of an index counts.

        What is uninformative or has too few scores is not kept: the caller journals the drop and then calls `end`.
        """
        if group.group_index in self._fates or group.group_index in self._ready:
            return Arrival.DUPLICATE
        if not group.scored.is_trainable:
            return Arrival.ABSTAINED
        score = common_score(group.scored) if self._dynamic_sampling else None
        if score is not None:
            self._discarded.append(score)
            return Arrival.UNINFORMATIVE
        self._ready[group.group_index] = group
        return Arrival.KEEP

    def end(self, fate: GroupFate) -> bool:
        """Records the fate of a group; False if it had ended before (then nothing changes)."""
        if fate.group_index in self._fates:
            return False
        self._fates.add(fate)
        if fate.step:
            self._discarded.clear()
        self._ready.pop(fate.group_index, None)
        while self.frontier in self._fates:
            self.frontier += 1
        return True

    def choose(self, *, incarnation: int, version: int, weights_digest: str) -> Choice:
        """The batch of step `version + 1`. Changes nothing: the caller journals the outcome and then calls `end`.

        `version` and `weights_digest` are those of the weights now, in this `incarnation`. Raises DynamicSamplingError
        if there is no batch and too much has been discarded on the way to it.
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
        if self._stale == "late":
            fit.sort(key=lambda group: group.group_index)
        batch = self._lowest(fit, ended) if self.is_ordered else fit[: self.batch_groups]
        if len(batch) < self.batch_groups:
            self._check_discarded(version)
            return Choice(batch=None, dropped=tuple(dropped))
        return Choice(batch=tuple(sorted(batch, key=lambda group: group.group_index)), dropped=tuple(dropped))

    def awaited(self) -> list[int]:
        """Returns those of the next batch's indices (the lowest without a fate) whose group has not arrived."""
        return [index for index in self._next_indices(set()) if index not in self._ready]

    def _check_discarded(self, version: int) -> None:
        limit = self._discard_limit * self.batch_groups
        if self.discarded <= limit:
            return
        scores = ", ".join(f"{count} of {score:g}" for score, count in Counter(self._discarded).most_common(3))
        raise DynamicSamplingError(
            f"for step {version + 1}, {self.discarded} groups were discarded, the limit is {limit} "
            f"(algorithm.discard_limit = {self._discard_limit} batches of {self.batch_groups} groups); {self.ready} "
            f"were kept. In each of them all rollouts had one score: {scores}. Ways out: easier prompts where it is "
            "low, harder ones where it is high, a larger batch.group_size or rollout.sampling.temperature, a reward of "
            "more than two values, or algorithm.dynamic_sampling = false"
        )

    def _unfit(self, group: ReadyGroup, now: PolicyVersion, digest: str) -> DropReason | None:
        is_over = group.min_version is not None and now.version - group.min_version > self._max_staleness
        if is_over and (self._stale in ("wait", "drop") or not self._max_staleness):
            # With `wait`, this happens only if credit was exceeded: even then no token over the bound is trained.
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
        while len(indices) < self.batch_groups:
            if index not in self._fates and index not in ended:
                indices.append(index)
            index += 1
        return indices


def common_score(scored: ScoredGroup) -> float | None:
    """The score shared by all trained rollouts of the group; None if they differ, or if there is only one.

    Greedy baselines and abstentions are ignored. Equality is exact: a spread that comes from rounding is due to the
    scorer. A group in which a token's score is not 0 is informative.
    """
    scores = [score for score in scored.scores[: scored.group.prompt.trained] if score.value is not None]
    if any(score.token_scores is not None and np.nan_to_num(score.token_scores).any() for score in scores):
        return None
    values = {score.value for score in scores}
    return values.pop() if len(values) == 1 and len(scores) > 1 else None


def _is_same(version: PolicyVersion, digest: str, now: PolicyVersion, now_digest: str) -> bool:
    """Whether `version` has the current weights; a version of another life must prove it by its digest."""
    if version.incarnation == now.incarnation and not digest:
        return True
    return same_weights(digest, now_digest) is True
