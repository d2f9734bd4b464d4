import math
import typing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.baselines import online_dpo
from headrace.services.trainer.algorithms.aggregation import StepCounts, aggregate
from headrace.services.trainer.algorithms.losses.preference import (
    preference_loss,
    reward_model_loss,
)
from headrace.services.trainer.algorithms.names import PreferenceKind
from headrace.services.trainer.algorithms.parts import PreferenceStrength
from headrace.services.trainer.algorithms.segments import segment_sum
from tests.unit.services.trainer.algorithms.flat_rollouts import LOGPROBS, flat, numbers, policy_loss, signals_of

PAIRS = st.lists(st.tuples(*[numbers(-9, 0)] * 4), min_size=1, max_size=6)
NAN = float("nan")
PREFERENCE_LOSSES = typing.get_args(PreferenceKind)


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def log_sigmoid(x):
    return -torch.log1p((-x).exp())


def slow(kind, delta, beta, e):
    right, wrong = log_sigmoid(beta * delta), log_sigmoid(-beta * delta)
    match kind:
        case "dpo":
            return -right
        case "cdpo":
            return -(1 - e) * right - e * wrong
        case "robust":
            return (-(1 - e) * right + e * wrong) / (1 - 2 * e)
        case "ipo":
            return (delta - 1 / (2 * beta)) ** 2
        case _:
            return 1 - beta * delta if beta * delta < 1 else 0 * delta


@pytest.mark.parametrize("kind", PREFERENCE_LOSSES)
@settings(max_examples=40)
@given(pairs=PAIRS, beta=st.floats(0.05, 1), smoothing=st.floats(0, 0.4))
def test_each_equals_a_slow_obvious_version_with_its_gradient(kind, pairs, beta, smoothing):
    columns = [f64(column).requires_grad_() for column in zip(*pairs, strict=True)]
    smoothing = smoothing if kind in ("cdpo", "robust") else 0.0
    ours = preference_loss(*columns, beta=beta, kind=kind, label_smoothing=smoothing)
    golden = torch.stack(
        [slow(kind, (w - x) - (rw - rx).detach(), beta, smoothing) for w, x, rw, rx in zip(*columns, strict=True)]
    )
    torch.testing.assert_close(ours, golden)
    for column in columns[:2]:
        our, their = (torch.autograd.grad(x.sum(), column, retain_graph=True)[0] for x in (ours, golden))
        torch.testing.assert_close(our, their)
    assert torch.autograd.grad(ours.sum(), columns[2:], allow_unused=True) == (None, None)


def test_by_hand_at_the_reference_and_at_a_margin():
    same = [f64([-3.0])] * 4
    values = {kind: preference_loss(*same, beta=0.5, kind=kind).item() for kind in PREFERENCE_LOSSES}
    assert values == pytest.approx(
        {"dpo": math.log(2), "cdpo": math.log(2), "robust": math.log(2), "ipo": 1.0, "hinge": 1.0}
    )
    # a margin of 2 at beta 0.5
    moved = [f64([-1.0]), f64([-3.0]), f64([-2.0]), f64([-2.0])]
    values = {kind: preference_loss(*moved, beta=0.5, kind=kind).item() for kind in PREFERENCE_LOSSES}
    far = math.log1p(math.exp(-1))
    assert values == pytest.approx({"dpo": far, "cdpo": far, "robust": far, "ipo": 1.0, "hinge": 0.0})


@settings(max_examples=40)
@given(pairs=PAIRS, share=st.floats(0.01, 0.4))
def test_the_robust_loss_under_flipped_labels_is_dpo_in_the_mean(pairs, share):
    w, x, rw, rx = (f64(column) for column in zip(*pairs, strict=True))
    robust = {"beta": 0.3, "kind": "robust", "label_smoothing": share}
    noisy = (1 - share) * preference_loss(w, x, rw, rx, **robust) + share * preference_loss(x, w, rx, rw, **robust)
    torch.testing.assert_close(noisy, preference_loss(w, x, rw, rx, beta=0.3, kind="dpo"))


def test_the_reward_models_loss_by_hand():
    chosen, rejected = f64([1.0, 0.0]), f64([0.0, 0.0])
    torch.testing.assert_close(reward_model_loss(chosen, rejected), f64([math.log1p(math.exp(-1.0)), math.log(2)]))
    with_all = reward_model_loss(chosen, rejected, margin=f64([1.0, 0.0]), centering=0.01)
    torch.testing.assert_close(with_all, f64([math.log(2) + 0.01, math.log(2)]))
    torch.testing.assert_close(reward_model_loss(chosen, rejected, margin=1.0)[:1], f64([math.log(2)]))


@given(pairs=PAIRS, margin=st.floats(0, 2), shift=st.floats(-5, 5))
def test_without_centering_only_the_difference_counts_and_a_far_pair_stays_finite(pairs, margin, shift):
    chosen, rejected, *_ = (f64(column) for column in zip(*pairs, strict=True))
    plain = reward_model_loss(chosen, rejected, margin=margin)
    torch.testing.assert_close(plain, -log_sigmoid(chosen - rejected - margin))
    torch.testing.assert_close(reward_model_loss(chosen + shift, rejected + shift, margin=margin), plain)
    assert reward_model_loss(f64([-1e4]), f64([1e4])).isfinite().all()


def pairs_of(rewards, policy, reference, beta, sizes=None, lengths=None):
    """Advantages of tokens; each rollout has one where no lengths are given."""
    signals = signals_of(rewards, sizes, lengths, old=policy, reference=reference)
    return online_dpo(signals, PreferenceStrength(beta=beta)).advantages


def test_online_pairs_by_hand():
    policy, reference = f64([-5.0, -7.0, -6.0]), f64([-6.0, -6.0, -6.0])
    # best 1, worst 2: D = (-7 + 6) - 0 = -1; 0.5 sigmoid(0.5); times the mean size of a group
    pull = 3 * 0.5 / (1 + math.exp(-0.5))
    torch.testing.assert_close(pairs_of([0.2, 0.9, 0.1], policy, reference, 0.5), f64([0.0, pull, -pull]))
    torch.testing.assert_close(pairs_of([0.9, 0.9, 0.1], reference, reference, 0.5), 3 * f64([0.25, 0.0, -0.25]))


@pytest.mark.parametrize("rewards", [[], [1.0], [0.5, 0.5, 0.5], [NAN, 1.0], [NAN, NAN], [0.5, NAN, 0.5]])
def test_groups_without_an_order_give_no_pair(rewards):
    zeros = torch.zeros(len(rewards), dtype=torch.float64)
    assert pairs_of(rewards, zeros, zeros, 0.1).tolist() == zeros.tolist()


GROUP = st.lists(st.lists(st.tuples(LOGPROBS, LOGPROBS), min_size=1, max_size=4), min_size=2, max_size=5)


@settings(max_examples=40)
@given(groups=st.lists(GROUP, min_size=1, max_size=3), beta=st.floats(0.05, 1), data=st.data())
def test_the_policy_gradient_on_online_pairs_is_dpos_exact_gradient(groups, beta, data):
    tokens, references, lengths = flat([rollout for group in groups for rollout in group], 2)
    tokens.requires_grad_()
    policy, reference = (segment_sum(x, lengths) for x in (tokens, references))
    rewards, chosen, rejected = [], [], []
    for group in groups:
        ranks = data.draw(st.permutations(range(len(group))))
        chosen.append(len(rewards) + ranks.index(max(ranks)))
        rejected.append(len(rewards) + ranks.index(0))
        rewards += ranks
    of_tokens = pairs_of(rewards, tokens.detach(), references, beta, [len(group) for group in groups], lengths)
    counts = StepCounts(tokens=len(tokens), rollouts=len(lengths), norm_length=1)
    dpo = preference_loss(
        policy[chosen], policy[rejected], reference[chosen], reference[rejected], beta=beta, kind="dpo"
    ).mean()
    exact = torch.autograd.grad(dpo, tokens, retain_graph=True)[0]
    for name in ("policy_gradient", "ppo_clip"):
        result = policy_loss(name, tokens, tokens.detach(), of_tokens, lengths)
        loss = aggregate(result.per_token, lengths, mode="seq-mean-token-sum", counts=counts)
        torch.testing.assert_close(torch.autograd.grad(loss, tokens, retain_graph=True)[0], exact)
