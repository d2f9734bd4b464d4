import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.mismatch import mismatch_metrics, mismatch_sums
from headrace.services.trainer.step.reductions import Sums
from tests.unit.services.trainer.algorithms.flat_rollouts import LOGPROBS, drawn, flat

PAIRS = drawn(LOGPROBS, LOGPROBS)


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def test_two_rollouts_by_hand():
    rho = [2.0, 0.25, 1.0]
    old = f64([math.log(x) - 1 for x in rho])
    metrics = mismatch_metrics(mismatch_sums(old, torch.full_like(old, -1.0), torch.tensor([2, 0, 1])))
    assert metrics == pytest.approx(
        {
            "kl_k1": math.log(2) / 3,
            "kl_k3": (sum(rho) - 3 + math.log(2)) / 3,
            "chi2_token": (4 + 1 / 16 + 1) / 3 - 1,
            "chi2_sequence": (0.25 + 1) / 2 - 1,
            "ess": 3.25**2 / (3 * (5 + 1 / 16)),
            "gap_mean": (math.log(2) + math.log(4)) / 3,
            "gap_max": math.log(4),
            "perplexity_gap": math.exp(1 + math.log(2) / 3) - math.e,
        }
    )


def test_without_a_gap_nothing_is_wrong_and_every_token_counts():
    old = torch.tensor([-1.0, -2.0])
    metrics = mismatch_metrics(mismatch_sums(old, old, torch.tensor([2])))
    assert metrics.pop("ess") == 1
    assert set(metrics.values()) == {0.0}


@given(rollouts=PAIRS, size=st.integers(1, 4))
def test_no_metric_depends_on_the_micro_batches(rollouts, size):
    parts = [flat(rollouts[start : start + size], 2) for start in range(0, len(rollouts), size)]
    whole = mismatch_metrics(mismatch_sums(*flat(rollouts, 2)))
    sums = Sums()
    for part in parts:
        sums.mismatch("mismatch", mismatch_sums(*part))
    joined = {
        name.removeprefix("mismatch_"): value for name, value in sums.metrics().items() if name.startswith("mismatch_")
    }
    assert joined == pytest.approx(whole, rel=1e-9, abs=1e-12)


@given(rollouts=PAIRS, data=st.data())
def test_tokens_that_are_not_counted_do_not_affect_the_metrics(rollouts, data):
    old, behaviour, lengths = flat(rollouts, 2)
    draw = st.lists(st.booleans(), min_size=len(old), max_size=len(old))
    counted = torch.tensor(data.draw(draw), dtype=torch.bool)
    rest, chosen = [], iter(counted.tolist())
    for rollout in rollouts:
        rest.append([token for token in rollout if next(chosen)])
    ours = mismatch_metrics(mismatch_sums(old, behaviour, lengths, counted))
    assert ours == pytest.approx(mismatch_metrics(mismatch_sums(*flat(rest, 2))), rel=1e-9, abs=1e-12)


@given(rollouts=PAIRS)
def test_every_metric_is_finite_and_the_effective_share_is_one_at_most(rollouts):
    metrics = mismatch_metrics(mismatch_sums(*flat(rollouts, 2)))
    assert all(math.isfinite(value) for value in metrics.values())
    assert 0 <= metrics.get("ess", 1.0) <= 1 + 1e-9
    assert metrics.get("kl_k3", 0.0) >= -1e-12


def test_no_tokens_give_no_metrics():
    nothing = torch.zeros(0)
    assert mismatch_metrics(mismatch_sums(nothing, nothing, torch.tensor([0]))) == {}
