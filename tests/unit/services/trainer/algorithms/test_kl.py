import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.kl import k3_is_cut, kl_per_token
from headrace.services.trainer.algorithms.names import KL_ESTIMATORS

UNBIASED = ("k2", "k1+", "k3+")
"""Those whose gradient, as a loss on tokens of the policy itself, is that of the KL."""
POLICY = [1.0, 0.0, 2.0]
REFERENCE = [0.5, 1.0, 0.0]
SAMPLER = [0.0, 1.0, 0.5]


def kl(logprobs, reference, estimator):
    return kl_per_token(
        torch.as_tensor(logprobs, dtype=torch.float64),
        torch.as_tensor(reference, dtype=torch.float64),
        estimator=estimator,
    )


def distribution(logits):
    return torch.log_softmax(torch.tensor(logits, dtype=torch.float64), 0)


def test_by_hand_at_a_ratio_of_two():
    difference = math.log(2.0)
    assert kl([difference], [0.0], "k1").item() == pytest.approx(difference)
    assert kl([difference], [0.0], "k2").item() == pytest.approx(difference**2 / 2)
    assert kl([difference], [0.0], "k3").item() == pytest.approx(0.5 - 1 + difference)
    assert kl([-difference], [0.0], "abs").item() == pytest.approx(difference)


@given(values=st.lists(st.tuples(st.floats(-40, 0), st.floats(-40, 0)), min_size=1, max_size=6))
def test_kl_estimators_are_finite_and_all_but_k1_are_never_negative(values):
    logprobs, reference = zip(*values, strict=True)
    for estimator in KL_ESTIMATORS:
        result = kl(logprobs, reference, estimator)
        assert torch.isfinite(result).all()
        if not estimator.startswith("k1"):
            assert (result >= -1e-15).all()
        torch.testing.assert_close(result, kl(logprobs, reference, estimator.removesuffix("+")))


@pytest.mark.parametrize("estimator", ["k1", "k3", "k1+", "k3+"])
def test_the_mean_under_the_policy_is_the_kl(estimator):
    policy, reference = distribution(POLICY), distribution(REFERENCE)
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * kl_per_token(policy, reference, estimator=estimator)).sum(), exact)


def gradients(sampler, *, ratio):
    """The KL's exact gradient at the policy, and each estimator's on tokens of `sampler` (None: the policy)."""
    logits = torch.tensor(POLICY, dtype=torch.float64, requires_grad=True)
    policy, reference = torch.log_softmax(logits, 0), distribution(REFERENCE)
    old = policy.detach() if sampler is None else distribution(sampler)
    losses = {"exact": (policy.exp() * (policy - reference)).sum()}
    for name in KL_ESTIMATORS:
        weight = (policy - old).exp() if ratio else None
        losses[name] = (old.exp() * kl_per_token(policy, reference, estimator=name, ratio=weight)).sum()
    return {name: torch.autograd.grad(loss, logits, retain_graph=True)[0] for name, loss in losses.items()}


def test_on_policy_only_k2_and_the_straight_through_forms_have_the_kls_gradient():
    found = gradients(None, ratio=False)
    for name in UNBIASED:
        torch.testing.assert_close(found[name], found["exact"])
    torch.testing.assert_close(found["k1"], torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert not torch.allclose(found["k3"], found["exact"])


def test_with_the_ratio_all_that_estimate_the_kl_have_its_gradient_off_policy_and_without_none_has():
    found = gradients(SAMPLER, ratio=True)
    for name in ("k1", "k3", *UNBIASED):
        torch.testing.assert_close(found[name], found["exact"])
    biased = gradients(SAMPLER, ratio=False)
    assert not any(torch.allclose(biased[name], biased["exact"]) for name in KL_ESTIMATORS)


def test_with_the_ratio_the_mean_over_stale_tokens_is_the_kl():
    policy, reference, old = distribution(POLICY), distribution(REFERENCE), distribution(SAMPLER)
    exact = (policy.exp() * (policy - reference)).sum()
    for name in ("k1", "k3", "k1+", "k3+"):
        weighted = kl_per_token(policy, reference, estimator=name, ratio=(policy - old).exp())
        torch.testing.assert_close((old.exp() * weighted).sum(), exact)


def test_k3_is_cut_where_one_token_would_dominate():
    logprobs, reference = torch.tensor([-1.0, -5.0, -1.0]), torch.tensor([-1.0, -1.0, -9.0])
    assert k3_is_cut(logprobs, reference).tolist() == [False, True, False]
    assert kl_per_token(logprobs, reference, estimator="k3")[1] == 10.0


def test_no_gradient_reaches_the_reference():
    reference = torch.zeros(2, requires_grad=True)
    kl_per_token(torch.ones(2, requires_grad=True), reference, estimator="k3").sum().backward()
    assert reference.grad is None
