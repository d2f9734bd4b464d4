"""Where a step's time goes: nothing counts twice, nothing is lost."""

import pytest

from headrace.services.trainer.timing.phases import OTHER, TRAIN, Phases, joined
from headrace.services.trainer.timing.step_times import replay_times, step_times


class Steady:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 0.0

    def mark(self):
        return self.now

    def seconds(self, begin, end):
        return end - begin


@pytest.fixture
def clock():
    return Steady()


def test_phases_and_the_time_between_them_add_up_to_the_lap(clock):
    phases = Phases(clock)
    clock.now = 1.0
    with phases("reference"):
        clock.now = 3.0
    clock.now = 3.5
    with phases("reference"):
        clock.now = 4.0
    with phases("advantages"):
        clock.now = 4.25
    assert phases.lap() == {OTHER: 1.5, "reference": 2.5, "advantages": 0.25}
    clock.now = 5.0
    assert phases.lap() == {OTHER: 0.75}


def test_a_nested_phase_is_subtracted_from_the_outer_one(clock):
    phases = Phases(clock)
    with phases("policy_update"):
        clock.now = 4.0
        with phases("optimizer"):
            clock.now = 5.0
        clock.now = 7.0
    assert phases.lap() == {OTHER: 0.0, "policy_update": 6.0, "optimizer": 1.0}


def test_an_exception_ends_its_phases_and_the_next_ones_are_right(clock):
    phases = Phases(clock)
    with pytest.raises(KeyError), phases("policy_update"), phases("optimizer"):
        clock.now = 2.0
        raise KeyError
    clock.now = 3.0
    with phases("snapshot"):
        clock.now = 3.5
    assert phases.lap() == {OTHER: 1.0, "policy_update": 0.0, "optimizer": 2.0, "snapshot": 0.5}


def test_training_is_replaced_by_its_own_phases():
    whole = {"wait": 2.0, "snapshot": 0.5, "discriminator": 0.25, TRAIN: 10.0, OTHER: 0.1}
    train = {"policy_update": 6.0, "reference": 3.0, "discriminator": 0.5, OTHER: 0.7}
    found = joined(whole, train)
    assert TRAIN not in found and sum(found.values()) == pytest.approx(sum(whole.values()))
    assert found[OTHER] == pytest.approx(0.6) and found["discriminator"] == 0.75
    assert found["wait"] == 2.0 and found["policy_update"] == 6.0
    # Another clock may say a little more than there was.
    assert joined({TRAIN: 1.0}, {"policy_update": 1.001}) == {"policy_update": 1.001, OTHER: 0.0}


def test_step_times_are_derived_from_the_lap():
    lap = {"wait": 3.0, "checkpoint": 1.0, "record": 0.5, "journal": 0.25, TRAIN: 5.0, "snapshot": 0.25, OTHER: 0.0}
    found = step_times(lap, {"policy_update": 4.0, OTHER: 1.0})
    assert found["seconds"] == 5.5 and found["train_seconds"] == 5.0
    assert found["wait_batch_seconds"] == 3.0 and found["wait_batch_share"] == 0.3
    phases = {key: value for key, value in found.items() if key.startswith("phase_seconds_")}
    assert sum(phases.values()) == 10.0 and phases["phase_seconds_other"] == 1.0
    assert "phase_seconds_train" not in phases and "phase_seconds_reference" not in phases


def test_a_replayed_step_has_only_training_phases(clock):
    phases = Phases(clock)
    with phases("policy_update"):
        clock.now = 2.0
    found = replay_times(phases)
    assert found == {"seconds": 2.0, "phase_seconds_policy_update": 2.0, "phase_seconds_other": 0.0}
