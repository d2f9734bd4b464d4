import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.trainer.ledger import Arrival, GroupFate, Ledger, ReadyGroup
from wire.contracts import DropReason, PolicyVersion, group_id


def ready(index, *, version=0, incarnation=1, digest="d", min_version=None):
    return ReadyGroup(
        group_index=index,
        group_id=group_id("run", index),
        min_version=version if min_version is None else min_version,
        sources=frozenset({(PolicyVersion(incarnation=incarnation, version=version), digest)}),
        scored=None,
        data=b"",
    )


def fate(index, step=0, reason="stale"):
    return GroupFate(group_index=index, group_id=group_id("run", index), step=step, reason="" if step else reason)


def ledger(*indices, groups=2, staleness=0, fates=(), **kwargs):
    made = Ledger(batch_groups=groups, max_staleness=staleness, fates=fates)
    for index in indices:
        made.take(ready(index, **kwargs))
    return made


def choose(of, *, incarnation=1, version=0, digest="d"):
    choice = of.choose(incarnation=incarnation, version=version, weights_digest=digest)
    batch = None if choice.batch is None else [group.group_index for group in choice.batch]
    return batch, [(group.group_index, str(reason)) for group, reason in choice.dropped]


def test_on_policy_the_lowest_indices_are_waited_for_whatever_came_first():
    of = ledger(3, 2, 1)
    assert choose(of) == (None, [])
    assert of.awaited() == [0]
    of.take(ready(0))
    assert choose(of) == ([0, 1], [])


def test_on_policy_a_drop_is_skipped_over():
    of = ledger(1, 2)
    of.end(fate(0))
    assert choose(of) == ([1, 2], [])
    assert of.frontier == 1


def test_off_policy_the_first_to_come_are_taken_and_sorted():
    of = ledger(7, 3, 5, staleness=1)
    assert choose(of) == ([3, 7], [])


def test_off_policy_what_is_over_the_bound_is_dropped_as_stale():
    of = ledger(0, 1, staleness=1, version=1)
    of.take(ready(2, version=3, min_version=2))
    assert choose(of, version=3) == (None, [(0, "stale"), (1, "stale")])
    of.take(ready(3, version=3))
    assert choose(of, version=3) == ([2, 3], [(0, "stale"), (1, "stale")])


def test_a_version_that_does_not_exist_yet_is_not_trained():
    assert choose(ledger(0, 1, staleness=2, version=5), version=4) == (
        None,
        [(0, "unverified_weights"), (1, "unverified_weights")],
    )


def test_on_policy_another_lifes_groups_count_only_with_the_same_weights():
    assert choose(ledger(0, 1, incarnation=1, digest="d"), incarnation=2) == ([0, 1], [])
    dropped = [(0, "unverified_weights"), (1, "unverified_weights")]
    assert choose(ledger(0, 1, incarnation=1, digest="other"), incarnation=2) == (None, dropped)
    assert choose(ledger(0, 1, incarnation=1, digest=""), incarnation=2) == (None, dropped)
    assert choose(ledger(0, 1, incarnation=2, digest=""), incarnation=2) == ([0, 1], [])
    assert choose(ledger(0, 1, incarnation=2, digest="other"), incarnation=2) == (None, dropped)


def test_off_policy_another_lifes_groups_count_by_their_version():
    assert choose(ledger(0, 1, staleness=1, incarnation=1, digest="other"), incarnation=2) == ([0, 1], [])


def test_a_group_is_taken_once_and_ends_once():
    of = ledger(0)
    assert of.take(ready(0)) is Arrival.DUPLICATE
    assert of.end(fate(0, step=1)) and not of.end(fate(0))
    assert of.take(ready(0)) is Arrival.DUPLICATE
    assert of.fates() == [fate(0, step=1)]


def test_fates_of_an_earlier_life_set_the_frontier():
    of = Ledger(batch_groups=2, max_staleness=0, fates=[fate(2, step=1), fate(0, step=1), fate(1)])
    assert of.frontier == 3
    assert [item.group_index for item in of.fates(1)] == [1, 2]


class LedgerMachine(RuleBasedStateMachine):
    """Any order of arrivals, repeats, drops, steps and restarts: every group once, the frontier right."""

    @initialize(staleness=st.integers(0, 2), groups=st.integers(1, 3))
    def begin(self, staleness, groups):
        self.staleness, self.groups = staleness, groups
        self.of = Ledger(batch_groups=groups, max_staleness=staleness)
        self.version, self.incarnation = 0, 1
        self.trained, self.dropped = {}, {}

    @rule(index=st.integers(0, 11), lag=st.integers(0, 3))
    def arrive(self, index, lag):
        known = index in self.trained or index in self.dropped or self.of.is_ready(index)
        group = ready(index, version=max(0, self.version - lag), incarnation=self.incarnation)
        assert (self.of.take(group) is Arrival.DUPLICATE) == known

    @rule(index=st.integers(0, 11))
    def tombstone(self, index):
        if not self.of.is_ready(index) and self.of.end(fate(index, reason="poison")):
            assert index not in self.trained and index not in self.dropped
            self.dropped[index] = "poison"

    @rule()
    def step(self):
        lowest = self.lowest()
        choice = self.of.choose(incarnation=self.incarnation, version=self.version, weights_digest="d")
        for group, reason in choice.dropped:
            assert reason is DropReason.STALE and self.version - group.min_version > self.staleness
            assert self.of.end(fate(group.group_index))
            self.dropped[group.group_index] = "stale"
        if choice.batch is None:
            return
        indices = [group.group_index for group in choice.batch]
        assert indices == sorted(set(indices)) and len(indices) == self.groups
        assert all(self.version - group.min_version <= self.staleness for group in choice.batch)
        if self.staleness == 0 and not choice.dropped:
            assert indices == lowest
        for index in indices:
            assert self.of.end(fate(index, step=self.version + 1))
            assert index not in self.trained and index not in self.dropped
            self.trained[index] = self.version + 1
        self.version += 1

    @precondition(lambda self: self.version > 0)
    @rule()
    def restart(self):
        self.of = Ledger(batch_groups=self.groups, max_staleness=self.staleness, fates=self.of.fates())
        self.incarnation += 1

    def lowest(self):
        ended = self.trained.keys() | self.dropped.keys()
        return [index for index in range(40) if index not in ended][: self.groups]

    @invariant()
    def every_fate_is_known_and_the_frontier_is_the_first_gap(self):
        if hasattr(self, "of"):
            ended = self.trained | dict.fromkeys(self.dropped, 0)
            assert {item.group_index: item.step for item in self.of.fates()} == ended
            assert self.of.frontier == next(index for index in range(99) if index not in ended)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_history = pytest.mark.filterwarnings("ignore")(LedgerMachine.TestCase)
