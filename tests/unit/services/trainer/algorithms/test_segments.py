import pytest
import torch
from hypothesis import given
from torch.autograd import gradcheck

from headrace.services.trainer.algorithms.segments import (
    ahead,
    carry_back,
    is_last,
    last_tokens,
    segment_mean,
    segment_sum,
    spread,
)
from tests.unit.services.trainer.algorithms.flat_rollouts import drawn, flat, numbers

VALUES = drawn(numbers(-5, 5), numbers(0, 1))


def test_by_hand_with_empty_rollouts_in_between():
    lengths = torch.tensor([0, 3, 0, 1])
    values = torch.tensor([1.0, 2.0, -6.0, 4.0])
    assert segment_sum(values, lengths).tolist() == [0, -3, 0, 4]
    assert segment_mean(values, lengths).tolist() == [0, -1, 0, 4]
    assert spread(torch.tensor([9.0, 1.0, 8.0, 2.0]), lengths).tolist() == [1, 1, 1, 2]
    assert last_tokens(lengths).tolist() == [2, 3]
    assert is_last(lengths, 4).tolist() == [False, False, True, True]
    assert ahead(values, 1).tolist() == [2, -6, 4, 0]
    assert ahead(values, 9).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_tokens_at_all_give_zeros(lengths):
    nothing, lengths = torch.zeros(0), torch.tensor(lengths, dtype=torch.int64)
    for of in (segment_sum, segment_mean):
        assert of(nothing, lengths).tolist() == [0.0] * len(lengths)
    assert carry_back(nothing, nothing, torch.zeros(len(lengths)), lengths).tolist() == []


@given(rollouts=VALUES)
def test_sums_and_means_are_computed_per_rollout(rollouts):
    values, _, lengths = flat(rollouts, 2)
    for of, slow in (
        (segment_sum, sum),
        (segment_mean, lambda x: sum(x) / max(len(x), 1)),
    ):
        expected = [float(slow([token[0] for token in rollout])) for rollout in rollouts]
        assert of(values, lengths).tolist() == pytest.approx(expected, abs=1e-12)


@given(rollouts=VALUES)
def test_the_recurrence_equals_a_loop_from_the_end(rollouts):
    increments, factors, lengths = flat(rollouts, 2)
    start = torch.linspace(-2, 3, len(rollouts), dtype=torch.float64)
    expected = []
    for rollout, after in zip(rollouts, start.tolist(), strict=True):
        solved = []
        for increment, factor in reversed(rollout):
            after = increment + factor * after
            solved.insert(0, after)
        expected += solved
    assert carry_back(increments, factors, start, lengths).tolist() == pytest.approx(expected, abs=1e-9)


def test_a_long_recurrence_is_exact_without_discount():
    count = 5000
    ones = torch.ones(count)
    result = carry_back(ones, ones, torch.tensor([0.5]), torch.tensor([count]))
    torch.testing.assert_close(result, torch.arange(count, 0, -1) + 0.5, rtol=0, atol=0)


def test_the_sums_gradients_are_numerically_right():
    values = torch.randn(5, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([2, 0, 3])
    assert gradcheck(lambda x: segment_sum(x.square(), lengths), (values,))
    assert gradcheck(lambda x: segment_mean(x.square(), lengths), (values,))
