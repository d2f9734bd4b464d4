import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.losses.sequence import sequence_ratios
from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, check_loss, flat, policy_loss

CLIPS = {"clip_low": st.sampled_from([3e-4, 0.2]), "clip_high": st.sampled_from([4e-4, 0.28])}


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def slow_ratio(logprobs, old):
    total = sum((p - q) for p, q in zip(logprobs, old, strict=True))
    return (total / len(logprobs)).exp()


def slow_worst(ratio, advantage, clip_low, clip_high):
    if ratio > 1 + clip_high and advantage > 0:
        return f64(-(1 + clip_high) * advantage) + 0 * ratio
    if ratio < 1 - clip_low and advantage < 0:
        return f64(-(1 - clip_low) * advantage) + 0 * ratio
    return -ratio * advantage


def slow_gspo(logprobs, old, advantages, **clips):
    if not logprobs:
        return []
    mean = sum(advantages) / len(advantages)
    return [slow_worst(slow_ratio(logprobs, old), mean, **clips)] * len(logprobs)


def slow_gspo_token(logprobs, old, advantages, **clips):
    out = []
    for logprob, advantage in zip(logprobs, advantages, strict=True):
        ratio = math.exp(sum(p.item() - q for p, q in zip(logprobs, old, strict=True)) / len(logprobs))
        out.append(slow_worst(ratio * (logprob - logprob.item()).exp(), advantage, **clips))
    return out


def slow_gmpo(logprobs, old, advantages, clip_low, clip_high):
    if not logprobs:
        return []
    mean, product = sum(advantages) / len(advantages), 1 + 0 * logprobs[0]
    for p, q in zip(logprobs, old, strict=True):
        held = min(p.item() - q, clip_high) if mean > 0 else max(p.item() - q, -clip_low)
        product = product * ((p - q).exp() if held == p.item() - q else math.exp(held))
    return [-mean * product ** (1 / len(logprobs))] * len(logprobs)


def test_gmpo_by_hand_clips_tokens_before_their_geometric_mean():
    # log-ratios 1 and -1: of a good rollout 0.4 and -1, of a bad one 1 and -0.4; GSPO would see a ratio of 1
    logprobs, old, lengths = f64([-1.0, -2.0] * 2), f64([-2.0, -1.0] * 2), torch.tensor([2, 2])
    found = policy_loss("gmpo", logprobs, old, [2.0, 2.0, -2.0, -2.0], lengths, clip_low=0.4, clip_high=0.4)
    expected = [-2 * math.exp(-0.3)] * 2 + [2 * math.exp(0.3)] * 2
    torch.testing.assert_close(found.per_token, f64(expected))
    assert found.clipped.tolist() == [True, False, False, True]


@settings(max_examples=40)
@given(rollouts=TRAINED, clip_low=st.sampled_from([0.4, 0.2]), clip_high=st.sampled_from([0.4, 0.5]))
def test_gmpo_equals_a_slow_obvious_version_with_its_gradient(rollouts, **clips):
    check_loss("gmpo", slow_gmpo, rollouts, **clips)


def test_by_hand_the_ratio_is_the_geometric_mean():
    logprobs, old = f64([math.log(2), 0.0, math.log(0.5)]), f64([0.0, 0.0, 0.0])
    lengths = torch.tensor([2, 1, 0])
    ratios = sequence_ratios(logprobs, old, lengths)
    torch.testing.assert_close(ratios, f64([math.sqrt(2), 0.5, 1.0]))
    result = policy_loss("gspo", logprobs, old, f64([1.0, 1.0, 1.0]), lengths, clip_low=0.2, clip_high=0.28)
    torch.testing.assert_close(result.per_token, f64([-1.28, -1.28, -0.5]))
    assert result.clipped.tolist() == [True, True, False]


@settings(max_examples=40)
@given(rollouts=TRAINED, **CLIPS)
def test_gspo_equals_a_slow_obvious_version_with_its_gradient(rollouts, **clips):
    check_loss("gspo", slow_gspo, rollouts, **clips)


@settings(max_examples=40)
@given(rollouts=TRAINED, **CLIPS)
def test_gspo_token_equals_a_slow_obvious_version_with_its_gradient(rollouts, **clips):
    check_loss("gspo_token", slow_gspo_token, rollouts, **clips)


@settings(max_examples=40)
@given(rollouts=TRAINED, **CLIPS)
def test_gspo_token_is_gspo_where_a_rollouts_advantages_are_all_the_same(rollouts, **clips):
    alike = [[(p, q, float(row % 3 - 1)) for p, q, _ in rollout] for row, rollout in enumerate(rollouts)]
    logprobs, old, advantages, lengths = flat(alike, 3)
    logprobs.requires_grad_()
    weights = (torch.arange(len(lengths)) + 1.0).double().repeat_interleave(lengths)
    one, other = (policy_loss(name, logprobs, old, advantages, lengths, **clips) for name in ("gspo", "gspo_token"))
    torch.testing.assert_close(one.per_token, other.per_token)
    assert one.clipped.tolist() == other.clipped.tolist()
    gradients = [
        torch.autograd.grad((result.per_token * weights).sum(), logprobs, retain_graph=True)[0]
        for result in (one, other)
    ]
    torch.testing.assert_close(*gradients)


def test_a_rollouts_drift_never_touches_its_neighbour():
    lengths = torch.tensor([2, 2])
    old = f64([-1.0, -1, -1, -1])
    near = policy_loss(
        "gspo", f64([-1.0, -1, -1, -1]), old, torch.ones_like(old), lengths, clip_low=3e-4, clip_high=4e-4
    )
    far = policy_loss(
        "gspo", f64([-1.0, -1, -9, -9]), old, torch.ones_like(old), lengths, clip_low=3e-4, clip_high=4e-4
    )
    assert near.per_token[:2].tolist() == far.per_token[:2].tolist()
    assert near.per_token[2] != far.per_token[2]
