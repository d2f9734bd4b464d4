import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.kl import KL_ESTIMATORS, kl_per_token


def kl(logprobs, reference, estimator):
    return kl_per_token(
        torch.as_tensor(logprobs, dtype=torch.float64),
        torch.as_tensor(reference, dtype=torch.float64),
        estimator=estimator,
    )


def test_by_hand_at_a_ratio_of_two():
    difference = math.log(2.0)
    assert kl([difference], [0.0], "k1").item() == pytest.approx(difference)
    assert kl([difference], [0.0], "k2").item() == pytest.approx(difference**2 / 2)
    assert kl([difference], [0.0], "k3").item() == pytest.approx(0.5 - 1 + difference)


@given(values=st.lists(st.tuples(st.floats(-40, 0), st.floats(-40, 0)), min_size=1, max_size=6))
def test_k2_and_k3_are_never_negative_and_all_are_finite(values):
    logprobs, reference = zip(*values, strict=True)
    for estimator in KL_ESTIMATORS:
        result = kl(logprobs, reference, estimator)
        assert torch.isfinite(result).all()
        if estimator != "k1":
            assert (result >= -1e-15).all()


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_mean_under_the_policy_is_the_kl(estimator):
    policy, reference = (torch.log_softmax(torch.tensor(x, dtype=torch.float64), 0) for x in ([1.0, 0, 2], [0.5, 1, 0]))
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * kl_per_token(policy, reference, estimator=estimator)).sum(), exact)


def test_only_k2_has_the_gradient_of_the_kl_in_expectation():
    logits = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64), 0)
    policy = torch.log_softmax(logits, 0)
    exact = torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits, retain_graph=True)[0]
    gradients = {}
    for estimator in KL_ESTIMATORS:
        loss = (policy.exp().detach() * kl_per_token(policy, reference, estimator=estimator)).sum()
        gradients[estimator] = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(gradients["k2"], exact)
    torch.testing.assert_close(gradients["k1"], torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert not torch.allclose(gradients["k3"], exact)


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match="k4"):
        kl([0.0], [0.0], "k4")
