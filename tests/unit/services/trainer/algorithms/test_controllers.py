import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.controllers import adapted_entropy_coef, adapted_kl_coef


def test_the_kl_coefficient_by_hand():
    # 10 % over the target, 100 rollouts of a horizon of 1,000: 1 % more
    assert adapted_kl_coef(0.2, kl=0.11, target=0.1, horizon=1000, rollouts=100) == pytest.approx(0.202)
    # errors count as 20 % at most
    assert adapted_kl_coef(0.2, kl=9.0, target=0.1, horizon=1000, rollouts=100) == pytest.approx(0.204)
    assert adapted_kl_coef(0.2, kl=0.0, target=0.1, horizon=1000, rollouts=100) == pytest.approx(0.196)


@given(coef=st.floats(1e-4, 1), kl=st.floats(0, 1), rollouts=st.integers(1, 5000))
def test_the_kl_coefficient_moves_towards_the_target_and_is_never_negative(coef, kl, rollouts):
    adapted = adapted_kl_coef(coef, kl=kl, target=0.1, horizon=1000, rollouts=rollouts)
    assert adapted >= 0
    assert adapted >= coef if kl >= 0.1 else adapted <= coef


def test_the_entropy_coefficient_by_hand_within_its_bounds():
    bounds = {"target": 1.0, "step": 0.005, "high": 0.012}
    assert adapted_entropy_coef(0.001, entropy=0.9, **bounds) == pytest.approx(0.006)
    assert adapted_entropy_coef(0.01, entropy=1.0, **bounds) == pytest.approx(0.012)
    assert adapted_entropy_coef(0.006, entropy=1.1, **bounds) == pytest.approx(0.001)
    assert adapted_entropy_coef(0.001, entropy=1.1, **bounds) == 0.0


@pytest.mark.parametrize("reading", [float("nan"), float("inf")])
def test_a_reading_that_is_not_finite_changes_nothing(reading):
    assert adapted_kl_coef(0.2, kl=reading, target=0.1, horizon=1000, rollouts=10) == 0.2
    assert adapted_entropy_coef(0.01, entropy=reading, target=1.0, step=0.005, high=0.1) == 0.01
