import random

import pytest

from benchmarks.growth import drift, growth


def test_what_is_open_for_a_moment_is_no_growth_of_a_count_and_what_is_kept_is():
    """The later half has more of such moments by chance: a mean would rise."""
    moments = [(step, 10.0 + (step % 200 == 0) * (1 if step < 3000 else 3)) for step in range(0, 6000, 5)]
    assert growth(moments).exceeds(0.0)
    assert not growth(moments, middle=min).exceeds(0.0)
    kept = [(step, value + (step >= 4000)) for step, value in moments]
    assert growth(kept, middle=min).exceeds(0.0)


def test_a_line_in_noise_is_found_within_its_interval() -> None:
    draw = random.Random(3)
    for wanted in (0.0, 0.5, 12.0):
        found = growth([(step, 100 + wanted * step / 1000 + draw.gauss(0, 2)) for step in range(0, 6000, 5)])
        assert abs(found.slope - wanted) < 2 * found.half_width < 1
        assert found.exceeds(wanted - 1) and not found.exceeds(wanted + 1)


def test_what_grows_only_at_first_has_a_wide_interval() -> None:
    found = growth([(step, min(step, 600) / 600) for step in range(0, 6000, 5)])
    assert not found.exceeds(0.1)


def test_too_little_says_nothing() -> None:
    with pytest.raises(ValueError, match="say nothing"):
        growth([(7, 1.0)] * 100)
    with pytest.raises(ValueError, match="say nothing"):
        growth([])


def test_a_count_that_changes_once_does_not_grow_and_one_that_changes_again_and_again_does() -> None:
    def count(changes: list[int]) -> list[tuple[float, float]]:
        return [(step, 30.0 + sum(step >= change for change in changes)) for step in range(6000, 26000, 33)]

    for once in range(6500, 26000, 700):
        assert growth(count([once])).slope > 0 and not drift(count([once])).exceeds(0.0), once
        assert not drift(count([once, once])).exceeds(0.0), once
    for every in (500, 1000, 2000, 4000):
        changes = list(range(7000, 26000, every))
        found = drift(count(changes))
        assert found.exceeds(0.0) and found.slope == pytest.approx(len(changes) / 20, abs=0.15), every
    assert not drift(count(list(range(7000, 26000, 500)))).exceeds(2.1)


def test_a_count_that_rises_and_falls_has_no_drift() -> None:
    waves = [(step, 30.0 + (step // 1000) % 2) for step in range(0, 20000, 33)]
    assert not drift(waves).exceeds(0.0)
