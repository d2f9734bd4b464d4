import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.services.trainer.durability.ledger import (
    Arrival,
    DynamicSamplingError,
    GroupFate,
    Ledger,
    ReadyGroup,
    common_score,
)
from headrace.wire.contracts import DropReason, PolicyVersion, RolloutGroup, Score, ScoredGroup, group_id
from tests import builders


def scored(*values, greedy_last=0):
    """A group with these scores."""
    rollouts = tuple(builders.rollout(0, number) for number in range(len(values)))
    body = RolloutGroup(prompt=builders.prompt(size=len(values), greedy_last=greedy_last), rollouts=rollouts)
    scores = tuple(Score(rollout_id=one.rollout_id, value=value) for one, value in zip(rollouts, values, strict=True))
    return ScoredGroup(group=body, scores=scores)


TOLD, MUTE = scored(0.0, 1.0), scored(0.0, 0.0)
"""A group that tells something, and one that does not."""


def ready(index, *, version=0, incarnation=1, digest="d", min_version=None, scored=TOLD):
    return ReadyGroup(
        group_index=index,
        group_id=group_id("run", index),
        min_version=version if min_version is None else min_version,
        sources=frozenset({(PolicyVersion(incarnation=incarnation, version=version), digest)}),
        scored=scored,
        data=b"",
    )


def fate(index, step=0, reason="stale"):
    return GroupFate(group_index=index, group_id=group_id("run", index), step=step, reason="" if step else reason)


def ledger(*indices, groups=2, staleness=0, stale="drop", fates=(), dynamic=False, limit=10, **kwargs):
    made = Ledger(
        batch_groups=groups,
        max_staleness=staleness,
        stale=stale,
        fates=fates,
        dynamic_sampling=dynamic,
        discard_limit=limit,
    )
    for index in indices:
        made.take(ready(index, **kwargs))
    return made


def choose(of, *, incarnation=1, version=0, digest="d"):
    choice = of.choose(incarnation=incarnation, version=version, weights_digest=digest)
    batch = None if choice.batch is None else [group.group_index for group in choice.batch]
    return batch, [(group.group_index, str(reason)) for group, reason in choice.dropped]


def test_on_policy_batches_wait_for_the_lowest_indices():
    of = ledger(3, 2, 1)
    assert choose(of) == (None, [])
    assert of.awaited() == [0]
    of.take(ready(0))
    assert choose(of) == ([0, 1], [])


def test_off_policy_the_first_to_come_are_taken_and_sorted():
    of = ledger(7, 3, 5, staleness=1)
    assert choose(of) == ([3, 7], [])


def test_with_wait_the_lowest_indices_are_waited_for_off_policy_too():
    of = ledger(3, 2, 1, staleness=1, stale="wait")
    assert choose(of, version=1) == (None, [])
    assert of.awaited() == [0]
    of.take(ready(0))
    assert choose(of, version=1) == ([0, 1], [])


def test_with_late_the_lowest_ready_indices_of_any_age_are_taken():
    of = ledger(7, 3, 5, staleness=1, stale="late")
    assert choose(of, version=9) == ([3, 5], []), "as it must be after a restart, whichever came first"


@pytest.mark.parametrize("stale", ["wait", "drop"])
def test_no_group_over_the_bound_is_trained_but_with_mask(stale):
    assert choose(ledger(0, 1, staleness=1, stale=stale), version=2) == (None, [(0, "stale"), (1, "stale")])


def test_with_mask_groups_of_any_age_are_taken_in_order_of_arrival():
    assert choose(ledger(7, 3, 5, staleness=1, stale="mask"), version=9) == ([3, 7], [])


@pytest.mark.parametrize("stale", ["wait", "late", "mask", "drop"])
def test_strictly_on_policy_all_policies_are_one_rule(stale):
    of = ledger(3, 1, stale=stale)
    of.take(ready(0, version=4))
    assert choose(of, version=4) == (None, [(3, "stale"), (1, "stale")])
    of = ledger(1, 2, 3, stale=stale)
    assert choose(of) == (None, [])
    assert of.awaited() == [0]


def test_off_policy_groups_over_the_bound_are_dropped_as_stale():
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
    # A former life from before digests had names, and one whose digests cannot be compared with those of now.
    assert choose(ledger(0, 1, incarnation=1, digest="d"), incarnation=2, digest="xxh3:d") == ([0, 1], [])
    assert choose(ledger(0, 1, incarnation=1, digest="d"), incarnation=2, digest="sgl64:d") == (None, dropped)


def test_off_policy_another_lifes_groups_count_by_their_version():
    assert choose(ledger(0, 1, staleness=1, incarnation=1, digest="other"), incarnation=2) == ([0, 1], [])


@pytest.mark.parametrize(
    ("group", "score"),
    [
        (scored(0.5, 0.5, 0.5), 0.5),
        (scored(0.5, 0.5, 0.6), None),
        (scored(1.0, 1.0, 0.0, greedy_last=1), 1.0),
        (scored(1.0, 0.0, 0.0, greedy_last=1), None),
        (scored(1.0, 0.0, greedy_last=1), None),
        (scored(1.0), None),
    ],
    ids=["one score", "two scores", "the baseline is not looked at", "nor does it hide", "one and a baseline", "one"],
)
def test_a_group_whose_trained_rollouts_all_have_one_score_tells_nothing(group, score):
    assert common_score(group) == score


def discard(of, *indices, score=0.0):
    for index in indices:
        assert of.take(ready(index, scored=scored(score, score))) is Arrival.UNINFORMATIVE
        assert not of.is_ready(index)
        assert of.end(fate(index, reason="uninformative"))


def test_too_much_discarded_for_one_batch_is_an_error_that_names_numbers_and_ways_out():
    of = ledger(9, dynamic=True, limit=2)
    discard(of, 0, 1, 2)
    discard(of, 3, score=1.0)
    assert choose(of) == (None, [])
    discard(of, 4)
    with pytest.raises(DynamicSamplingError) as raised:
        choose(of)
    assert raised.value.final
    for part in (
        *("for step 1, 5 groups were discarded, the limit is 4", "1 were kept", "one score: 4 of 0, 1 of 1"),
        *("algorithm.discard_limit = 2", "batch.group_size", "algorithm.dynamic_sampling = false"),
    ):
        assert part in str(raised.value)


def test_a_complete_batch_is_trained_despite_discards_and_resets_their_count():
    of = ledger(8, 9, groups=2, dynamic=True, limit=1)
    discard(of, *range(8))
    assert choose(of) == ([8, 9], [])
    for index in (8, 9):
        of.end(fate(index, step=1))
    assert of.discarded == 0
    discard(of, 10, 11)
    assert choose(of, version=1) == (None, [])


class LedgerMachine(RuleBasedStateMachine):
    """Any order of arrivals, repeats, drops, steps and restarts: every group once, the frontier right."""

    @initialize(staleness=st.integers(0, 2), groups=st.integers(1, 3), dynamic=st.booleans())
    def begin(self, staleness, groups, dynamic):
        self.staleness, self.groups, self.dynamic = staleness, groups, dynamic
        self.of = self.make()
        self.version, self.incarnation = 0, 1
        self.trained, self.dropped = {}, {}

    def make(self, fates=()):
        return Ledger(
            batch_groups=self.groups, max_staleness=self.staleness, dynamic_sampling=self.dynamic, fates=fates
        )

    @rule(index=st.integers(0, 11), lag=st.integers(0, 3), told=st.booleans())
    def arrive(self, index, lag, told):
        known = index in self.trained or index in self.dropped or self.of.is_ready(index)
        group = ready(
            index,
            version=max(0, self.version - lag),
            incarnation=self.incarnation,
            scored=TOLD if told else MUTE,
        )
        arrival = self.of.take(group)
        assert (arrival is Arrival.DUPLICATE) == known
        assert (arrival is Arrival.UNINFORMATIVE) == (self.dynamic and not told and not known)
        if arrival is Arrival.UNINFORMATIVE:
            assert self.of.end(fate(index, reason="uninformative"))
            self.dropped[index] = "uninformative"

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
        assert not self.dynamic or all(group.scored is TOLD for group in choice.batch)
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
        self.of = self.make(self.of.fates())
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
