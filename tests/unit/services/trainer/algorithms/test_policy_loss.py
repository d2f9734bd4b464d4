import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.policy_loss import clipped_policy_loss


def loss(logprobs, behaviour, advantages, low=0.2, high=0.28):
    tensors = [torch.as_tensor(value, dtype=torch.float64) for value in (logprobs, behaviour, advantages)]
    return clipped_policy_loss(*tensors, clip_low=low, clip_high=high)


def golden(logprobs, behaviour, advantages, low, high):
    out = []
    for new, old, advantage in zip(logprobs, behaviour, advantages, strict=True):
        ratio = math.exp(max(-20.0, min(20.0, new - old)))
        out.append(-min(ratio * advantage, max(1 - low, min(1 + high, ratio)) * advantage))
    return np.array(out)


def test_four_corners_by_hand():
    up, down = math.log(2.0), math.log(0.5)
    result = loss([up, up, down, down], [0.0] * 4, [1.0, -1.0, 1.0, -1.0])
    # a good token already twice as likely is clipped at 1.28; a bad one is not, and the other way round at 0.8
    torch.testing.assert_close(result.per_token, torch.tensor([-1.28, 2.0, -0.5, 0.8], dtype=torch.float64))
    assert result.clipped.tolist() == [True, False, False, True]
    torch.testing.assert_close(result.kl, torch.tensor([-up, -up, -down, -down], dtype=torch.float64))


TOKENS = st.lists(st.tuples(st.floats(-30, 0), st.floats(-30, 0), st.floats(-3, 3)), min_size=1, max_size=8)


@given(tokens=TOKENS, low=st.floats(0.01, 0.5), high=st.floats(0.01, 0.5))
def test_equals_a_slow_obvious_version(tokens, low, high):
    logprobs, behaviour, advantages = zip(*tokens, strict=True)
    np.testing.assert_allclose(
        loss(logprobs, behaviour, advantages, low, high).per_token.numpy(),
        golden(logprobs, behaviour, advantages, low, high),
        rtol=1e-12,
    )


def test_on_policy_the_gradient_is_that_of_reinforce():
    logprobs = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.5, -0.5, 0.0], dtype=torch.float64)
    result = clipped_policy_loss(logprobs, logprobs.detach(), advantages, clip_low=0.2, clip_high=0.2)
    result.per_token.sum().backward()
    torch.testing.assert_close(logprobs.grad, -advantages)
    assert not result.clipped.any()


def test_a_clipped_token_has_no_gradient_and_a_huge_ratio_stays_finite():
    logprobs = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    result = clipped_policy_loss(
        logprobs,
        torch.tensor([-2.0, -900.0], dtype=torch.float64),
        torch.tensor([1.0, -1.0], dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.2,
    )
    result.per_token.sum().backward()
    assert logprobs.grad[0] == 0
    assert torch.isfinite(result.per_token).all()
