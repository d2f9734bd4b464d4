"""Ledger and credit together: with `wait` no group passes the bound, and none is left out for its length.

The real ledger, the real rule of credit, and a run around them on a clock of its own: prompts take any time, come back
in any order, are lost and issued again, are dropped or discarded; orchestrator and trainer are started anew.
"""

import heapq
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.orchestrator.issuing.credit import credit_limit, room
from headrace.services.trainer.durability.ledger import Arrival, Ledger, ReadyGroup
from headrace.wire.contracts.reasons import StalePolicy
from tests.unit.services.trainer.durability.test_ledger import MUTE, TOLD, fate, ready


@dataclass
class World:
    """One run. What is random is drawn from `draw`, durations in seconds from `seconds`."""

    stale: StalePolicy
    staleness: int
    groups: int
    steps: int
    draw: random.Random
    sigma: float = 1.0
    trouble: float = 0.0
    """Probability of each kind of trouble, at each of its occasions."""
    step_s: float = 1.0
    now: float = 0.0
    version: int = 0
    known: set[int] = field(default_factory=set)
    """Groups whose fates the orchestrator has heard of."""
    frontier: int = 0
    """The first group that is not among them."""
    known_step: int = 0
    """The last step that has trained one of them."""
    known_version: int = 0
    issued: int = 0
    length: dict[int, float] = field(default_factory=dict)
    """Seconds that each group takes: what its longest answer is long."""
    on_the_way: list[tuple[float, int, int]] = field(default_factory=list)
    """(when it arrives, index, version of its first token)"""
    trained: dict[int, int] = field(default_factory=dict)
    """Index -> its lag."""
    stale_groups: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = self._new_ledger(())

    def _new_ledger(self, fates) -> Ledger:
        return Ledger(
            batch_groups=self.groups,
            max_staleness=self.staleness,
            stale=self.stale,
            dynamic_sampling=True,
            discard_limit=10**6,
            fates=fates,
        )

    def happens(self) -> bool:
        return self.draw.random() < self.trouble

    def report(self) -> None:
        """The orchestrator hears of all fates and of the version, as one look at the trainer's ledger has them."""
        for one in self.ledger.fates(self.frontier):
            self.known.add(one.group_index)
            self.known_step = max(self.known_step, one.step)
        while self.frontier in self.known:
            self.frontier += 1
        self.known_version = self.version

    @property
    def issue_version(self) -> int:
        return max(self.known_version, self.known_step)

    def issue(self) -> None:
        num_open = self.issued - len(self.known)
        limit = credit_limit(
            version=self.issue_version,
            max_steps=self.steps,
            max_staleness=self.staleness,
            groups_per_batch=self.groups,
        )
        for index in range(self.issued, self.issued + room(limit, num_open)):
            self.length[index] = self.draw.lognormvariate(0.0, self.sigma)
            self.send(index)
            self.issued = index + 1

    def send(self, index: int) -> None:
        """A replica has at least the version of the issue; it may have a newer one by then."""
        version = (
            self.draw.randint(self.issue_version, self.version)
            if self.version > self.issue_version
            else self.issue_version
        )
        heapq.heappush(self.on_the_way, (self.now + self.length[index], index, version))

    def arrive(self) -> None:
        self.now, index, version = heapq.heappop(self.on_the_way)
        if self.happens():  # Lost with its replica or with the broker: issued again, when somebody notices.
            self.now += 0.1
            self.send(index)
            return
        if self.happens():  # A tombstone.
            if not self.ledger.is_ready(index):
                self.ledger.end(fate(index, reason="rollout_failed"))
            return
        if self.happens():  # A second copy is under way beside the first one.
            self.send(index)
        told = MUTE if self.happens() else TOLD
        arrival = self.ledger.take(ready(index, version=version, scored=told))
        if arrival is Arrival.UNINFORMATIVE:
            self.ledger.end(fate(index, reason="uninformative"))

    def step(self) -> bool:
        choice = self.ledger.choose(incarnation=1, version=self.version, weights_digest="d")
        for group, reason in choice.dropped:
            self.stale_groups.append(group.group_index)
            self.ledger.end(fate(group.group_index, reason=str(reason)))
        if choice.batch is None:
            return False
        for group in choice.batch:
            self.trained[group.group_index] = self.version - group.min_version
            self.ledger.end(fate(group.group_index, step=self.version + 1))
        if self.happens():
            self.report()  # Between the journal and the end of the step.
            self.issue()
        self.now += self.step_s
        self.version += 1
        if self.happens():
            self.restart_trainer()
        return True

    def restart_trainer(self) -> None:
        """What the journal has stays; what was ready comes again."""
        ready_again = list(self.ledger._ready.values())
        self.ledger = self._new_ledger(self.ledger.fates())
        for group in ready_again:
            self._again(group)

    def _again(self, group: ReadyGroup) -> None:
        heapq.heappush(self.on_the_way, (self.now, group.group_index, group.min_version))

    def run(self) -> "World":
        for _ in range(10_000):
            if self.version == self.steps:
                return self
            if not self.happens():  # Else the report is late, or the orchestrator is just being started anew.
                self.report()
                self.issue()
            while self.on_the_way and self.on_the_way[0][0] <= self.now:
                self.arrive()
            if self.step():
                continue
            if self.on_the_way:
                self.arrive()
        raise AssertionError(f"stuck at version {self.version}")


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    staleness=st.integers(0, 4),
    groups=st.integers(1, 6),
    sigma=st.floats(0, 2),
    trouble=st.floats(0, 0.2),
    step_s=st.floats(0.01, 10),
)
def test_with_wait_no_group_passes_the_bound(seed, staleness, groups, sigma, trouble, step_s):
    world = World(
        stale="wait",
        staleness=staleness,
        groups=groups,
        steps=12,
        draw=random.Random(seed),
        sigma=sigma,
        trouble=trouble,
        step_s=step_s,
    ).run()
    assert world.stale_groups == []
    assert len(world.trained) == 12 * groups and max(world.trained.values()) <= staleness


def skewed(stale: StalePolicy) -> World:
    """Lengths are lognormal with sigma 1, a step takes as long as an answer does on average."""
    return World(stale=stale, staleness=1, groups=8, steps=200, draw=random.Random(0)).run()


@pytest.mark.parametrize("stale", ["wait", "late", "mask"])
def test_no_answer_is_left_out_for_its_length(stale):
    world = skewed(stale)
    assert world.stale_groups == []
    # What is not trained at the end are the last groups under way, whatever their length.
    assert world.issued - len(world.trained) <= 2 * 8
    if stale == "wait":
        assert sorted(world.trained) == [*range(1600)]


def test_drop_leaves_the_longest_out():
    """What the default must not do: of the groups with the longest answers not one is trained."""
    world = skewed("drop")
    longest = sorted(world.length, key=world.length.__getitem__)[-16:]
    assert len(world.stale_groups) > 50 and not set(longest) & world.trained.keys()
