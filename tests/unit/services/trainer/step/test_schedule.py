import pytest

from headrace.services.trainer.step.schedule import learning_rate


def rates(schedule, warmup=2, steps=6):
    return [
        learning_rate(step, peak=1.0, warmup_steps=warmup, max_steps=steps, schedule=schedule)
        for step in range(1, steps + 1)
    ]


def test_by_hand():
    assert rates("constant") == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert rates("linear") == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert rates("cosine")[2] == 1.0
    assert rates("cosine")[4] == pytest.approx(0.5)
    assert rates("linear", warmup=0, steps=2) == [1.0, 0.5]


def test_beyond_the_last_step_it_stays_at_zero():
    assert learning_rate(9, peak=1.0, warmup_steps=0, max_steps=5, schedule="linear") == 0.0


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="steps"):
        rates("steps")
