import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.whitening import whiten
from tests.unit.services.trainer.algorithms.flat_rollouts import numbers

VALUES = st.lists(numbers(-5, 5), min_size=2, max_size=9)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand():
    # mean 2, variance ((-2)^2 + 0 + 2^2) / 2 = 4
    torch.testing.assert_close(whiten(f64([0.0, 2.0, 4.0])), f64([-1.0, 0.0, 1.0]))
    torch.testing.assert_close(whiten(f64([0.0, 2.0, 4.0]), shift_mean=False), f64([1.0, 2.0, 3.0]))
    mask = torch.tensor([True, True, True, False])
    torch.testing.assert_close(whiten(f64([0.0, 2.0, 4.0, 90.0]), mask), f64([-1.0, 0.0, 1.0, 44.0]))


@given(values=VALUES)
def test_the_result_has_mean_zero_and_variance_one_and_keeps_the_order(values):
    assume(max(values) - min(values) > 0.1)
    result = whiten(f64(values))
    assert float(result.mean()) == pytest.approx(0, abs=1e-9)
    assert float(result.var(correction=1)) == pytest.approx(1, abs=1e-4)
    assert (result.argsort(stable=True) == f64(values).argsort(stable=True)).all()


@given(values=VALUES, mask=st.data())
def test_what_is_masked_has_no_part_in_the_statistics(values, mask):
    chosen = mask.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    assume(sum(chosen) >= 2)
    kept = torch.tensor(chosen)
    torch.testing.assert_close(whiten(f64(values), kept)[kept], whiten(f64(values)[kept]))


def test_equal_values_become_zero():
    assert whiten(torch.full((4,), 0.5)).tolist() == [0.0] * 4


def test_fewer_than_two_values_are_refused_with_the_reason():
    for values, mask in (([1.0], None), ([], None), ([1.0, 2.0], torch.tensor([True, False]))):
        with pytest.raises(ValueError, match="at least 2 values"):
            whiten(f64(values), mask)
