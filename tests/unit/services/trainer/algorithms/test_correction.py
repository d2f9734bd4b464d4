import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.algorithm import PolicyTokens
from headrace.services.trainer.algorithms.correction import correct
from headrace.services.trainer.algorithms.parts import CorrectionTable
from tests.unit.services.trainer.algorithms.flat_rollouts import LOGPROBS, TRAINED, drawn, flat

PAIRS = drawn(LOGPROBS, LOGPROBS)
WEIGHTS = ("none", "token", "sequence", "geometric")


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def corrected(old, behaviour, lengths, advantages=None, **table):
    advantages = torch.zeros_like(old) if advantages is None else advantages
    tokens = PolicyTokens(logprobs=old, old=old, advantages=advantages, lengths=lengths)
    return correct(tokens, behaviour, CorrectionTable.model_validate(table))


def from_ratios(*rollouts):
    """Old logprobs, behaviour logprobs of -1, and lengths, of rollouts given by their tokens' rho."""
    log_rho = f64([math.log(rho) for rollout in rollouts for rho in rollout])
    return log_rho - 1, torch.full_like(log_rho, -1.0), torch.tensor([len(rollout) for rollout in rollouts])


TWO = from_ratios([2.0, 0.25], [4.0, 4.0])


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, [1, 1, 1, 1]),
        ({"weight": "token", "cap": 3.0}, [2, 0.25, 3, 3]),
        ({"weight": "token", "cap": 3.0, "floor": 0.5}, [2, 0.5, 3, 3]),
        ({"weight": "token", "cap": 3.0, "floor": 0.5, "outside": "mask"}, [2, 0, 0, 0]),
        ({"weight": "sequence", "cap": 10.0}, [0.5, 0.5, 10, 10]),
        ({"weight": "sequence", "cap": 3.0, "outside": "mask"}, [0.5, 0.5, 0, 0]),
        ({"weight": "geometric", "cap": 3.0}, [0.5**0.5, 0.5**0.5, 3, 3]),
        ({"reject": "geometric", "reject_low": 0.5, "reject_high": 2.0}, [1, 1, 0, 0]),
        ({"reject": "geometric", "reject_high": 2.0, "weight": "token", "cap": 1.5}, [1.5, 0.25, 0, 0]),
    ],
)
def test_two_rollouts_by_hand(settings, weights):
    result = corrected(*TWO, **settings)
    torch.testing.assert_close(result.weights, f64(weights))
    assert result.kept.tolist() == [weight > 0 for weight in weights]


@pytest.mark.parametrize(
    ("reject", "measure"),
    [
        ("k2", (math.log(2) ** 2 + math.log(4) ** 2) / 4),
        ("k3", ((2 - 1 - math.log(2)) + (0.25 - 1 + math.log(4))) / 2),
    ],
)
def test_rejection_by_k2_and_k3_has_its_border_where_the_hand_says(reject, measure):
    old, behaviour, lengths = from_ratios([2.0, 0.25])
    assert corrected(old, behaviour, lengths, reject=reject, reject_high=measure * 1.001).kept.all()
    assert not corrected(old, behaviour, lengths, reject=reject, reject_high=measure * 0.999).kept.any()


SETTINGS = st.fixed_dictionaries(
    {
        "weight": st.sampled_from(WEIGHTS),
        "cap": st.floats(1, 5),
        "floor": st.floats(0, 1),
        "outside": st.sampled_from(["truncate", "mask"]),
        "reject": st.sampled_from(["none", "geometric", "k2", "k3"]),
        "reject_low": st.floats(0, 0.9),
        "reject_high": st.floats(1, 3),
    }
)


@given(rollouts=PAIRS, settings=SETTINGS)
def test_correction_weights_are_bounded_and_each_rollout_is_rejected_on_its_own(rollouts, settings):
    old, behaviour, lengths = flat(rollouts, 2)
    result = corrected(old, behaviour, lengths, **settings)
    assert (result.weights[~result.kept] == 0).all()
    if settings["weight"] != "none":
        kept = result.weights[result.kept]
        assert ((kept >= settings["floor"]) & (kept <= settings["cap"])).all()
    if settings["outside"] == "truncate" or settings["weight"] != "token":
        for part in result.kept.split(lengths.tolist()):
            assert part.all() or not part.any()
    alone = [corrected(*flat([rollout], 2), **settings).weights for rollout in rollouts]
    torch.testing.assert_close(result.weights, torch.cat(alone))


@given(rollouts=PAIRS)
def test_without_a_gap_every_weight_is_one(rollouts):
    old, _, lengths = flat(rollouts, 2)
    for weight in WEIGHTS:
        result = corrected(
            old, old, lengths, weight=weight, cap=1.0, reject="geometric", reject_low=1.0, reject_high=1.0
        )
        assert result.kept.all() and (result.weights == 1).all()


def test_token_weights_make_the_mean_under_another_policy_right():
    old, behaviour = (torch.log_softmax(f64(x), 0) for x in ([1.0, 0, 2], [0.5, 1, 0]))
    values = f64([3.0, -1.0, 2.0])
    weights = corrected(old, behaviour, torch.tensor([3]), weight="token", cap=9.0).weights
    torch.testing.assert_close((behaviour.exp() * weights * values).sum(), (old.exp() * values).sum())


def test_a_small_steady_gap_grows_with_length_in_the_product_and_not_in_the_geometric_mean():
    old, behaviour, lengths = from_ratios([math.exp(0.012)] * 100)
    assert corrected(old, behaviour, lengths, weight="sequence", cap=9.0).weights[0] == pytest.approx(3.32, abs=0.01)
    assert corrected(old, behaviour, lengths, weight="geometric").weights[0] == pytest.approx(1.012, abs=1e-3)


def test_weights_carry_no_gradient_and_stay_finite_however_far_the_gap():
    old = torch.tensor([-1.0, -900.0], requires_grad=True)
    for weight in WEIGHTS:
        result = corrected(old, torch.tensor([-900.0, -1.0]), torch.tensor([1, 1]), weight=weight)
        assert not result.weights.requires_grad and result.weights.isfinite().all()


def test_sequence_masking_by_hand_drops_only_bad_rollouts_that_drifted():
    now = f64([-2.0, -3.0, -2.0, -3.0, -1.0])
    behaviour = f64([-1.0, -2.0, -1.0, -2.0, -0.9])
    advantages = f64([-1.0, -1.0, 1.0, 1.0, -1.0])
    kept = corrected(now, behaviour, torch.tensor([2, 2, 1]), advantages, opsm_delta=0.5).kept
    assert kept.tolist() == [False, False, True, True, True]


@given(rollouts=TRAINED, delta=st.floats(0, 2))
def test_sequence_masking_equals_a_loop(rollouts, delta):
    logprobs, behaviour, advantages, lengths = flat(rollouts, 3)
    expected = []
    for rollout in rollouts:
        drift = sum(q - p for p, q, _ in rollout) / max(len(rollout), 1)
        expected += [a >= 0 or drift <= delta + 1e-12 for _, _, a in rollout]
    made = corrected(logprobs, behaviour, lengths, advantages, opsm_delta=delta + 1e-12)
    assert made.kept.tolist() == expected and made.weights.tolist() == [float(one) for one in expected]
