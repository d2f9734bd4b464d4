import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate
from headrace.services.trainer.algorithms.names import AGGREGATIONS

HAND = {
    "token-mean": (1 + 2 + 3 + 10) / 4,
    "token-sum": 16.0,
    "seq-mean-token-mean": (2 + 10) / 2,
    "seq-mean-token-sum": (6 + 10) / 2,
    "seq-mean-token-sum-norm": (6 + 10) / 2 / 5,
}


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_by_hand_with_a_rollout_of_three_and_one_of_one(mode):
    counts = StepCounts(tokens=4, rollouts=2, norm_length=5)
    per_token = torch.tensor([1.0, 2, 3, 10], dtype=torch.float64)
    assert aggregate(per_token, torch.tensor([3, 1]), mode=mode, counts=counts).item() == pytest.approx(HAND[mode])


@given(
    rollouts=st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=6), min_size=1, max_size=7),
    size=st.integers(1, 7),
    mode=st.sampled_from(AGGREGATIONS),
)
def test_no_mode_depends_on_the_micro_batches(rollouts, size, mode):
    counts = StepCounts(tokens=sum(map(len, rollouts)), rollouts=len(rollouts), norm_length=6)

    def share(part):
        values = torch.tensor([value for rollout in part for value in rollout], dtype=torch.float64)
        return aggregate(values, torch.tensor([len(rollout) for rollout in part]), mode=mode, counts=counts).item()

    parts = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
    assert sum(map(share, parts)) == pytest.approx(share(rollouts), abs=1e-9)


def test_an_empty_rollout_adds_nothing():
    counts = StepCounts(tokens=2, rollouts=1, norm_length=2)
    values = torch.tensor([1.0, 3.0])
    for mode in AGGREGATIONS:
        with_empty = aggregate(values, torch.tensor([0, 2, 0]), mode=mode, counts=counts)
        torch.testing.assert_close(with_empty, aggregate(values, torch.tensor([2]), mode=mode, counts=counts))
