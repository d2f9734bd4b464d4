"""Which steps of a run can be trained again."""

import pytest

from headrace.services.trainer.stages.replay.plan import ReplayPlan, plan_replay
from headrace.wire.errors import ConfigError

STARTS, PAYLOADS = {0, 80, 100}, set(range(81, 108))


def test_a_replay_covers_as_much_as_possible_by_default() -> None:
    assert plan_replay(STARTS, PAYLOADS, after=-1, last=0) == ReplayPlan(80, 107)
    assert plan_replay({0}, range(1, 8), after=-1, last=0) == ReplayPlan(0, 7)


def test_a_beginning_and_an_end_can_be_chosen() -> None:
    assert plan_replay(STARTS, PAYLOADS, after=100, last=0) == ReplayPlan(100, 107)
    assert plan_replay(STARTS, PAYLOADS, after=80, last=90) == ReplayPlan(80, 90)
    assert plan_replay(STARTS, PAYLOADS, after=-1, last=90) == ReplayPlan(80, 90)


@pytest.mark.parametrize(
    ("after", "last", "word"),
    [
        (0, 0, "the batch of step 1 is not in the journal"),
        (90, 0, "no checkpoint of step 90"),
        (-1, 108, "step 108 cannot be replayed"),
        (100, 100, "steps 101 to 100"),
        (80, 200, "steps 81 to 200"),
    ],
)
def test_an_impossible_replay_is_rejected_with_the_possible_ranges(after: int, last: int, word: str) -> None:
    with pytest.raises(ConfigError, match=word) as error:
        plan_replay(STARTS, PAYLOADS, after=after, last=last)
    assert "81 to 107 from checkpoint 80; 101 to 107 from checkpoint 100" in str(error.value)
