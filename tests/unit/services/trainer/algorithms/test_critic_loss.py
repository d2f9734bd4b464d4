import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.losses.critic import (
    explained_variance,
    quantile_loss,
    quantile_mean,
    quantile_spread,
    spread_weights,
    value_loss,
)
from tests.unit.services.trainer.algorithms.flat_rollouts import numbers

TOKENS = st.lists(st.tuples(numbers(-3, 3), numbers(-3, 3), numbers(-3, 3)), min_size=1, max_size=8)
QUANTILES = st.lists(
    st.tuples(numbers(-3, 3), st.lists(numbers(-3, 3), min_size=3, max_size=3)), min_size=1, max_size=6
)


def f64(values):
    return torch.as_tensor(values, dtype=torch.float64)


def gradient(loss, of):
    return torch.autograd.grad(loss.sum(), of, retain_graph=True)[0]


def test_the_clipped_value_loss_by_hand():
    values, old, returns = f64([1.0, 1.0, 0.1]), f64([0.0, 0.0, 0.0]), f64([2.0, 0.0, 0.0])
    # moved towards the return beyond the clip: the unmoved 0.5 counts; away from it: the value itself
    torch.testing.assert_close(value_loss(values, old, returns, clip=0.5), f64([1.125, 0.5, 0.005]))
    torch.testing.assert_close(value_loss(values, old, returns, clip=0.0), f64([0.5, 0.5, 0.005]))
    # Huber's: errors of 1, 1 and 0.1 against a bound of 0.25
    torch.testing.assert_close(value_loss(values, old, returns, clip=0.0, bound=0.25), f64([0.21875, 0.21875, 0.005]))


def slow_cost(error, bound):
    if bound and abs(error.item()) > bound:
        return bound * (error.abs() - bound / 2)
    return error**2 / 2


@example(tokens=[(1.5, 0.0, 1.0)], clip=0.5, bound=0.0)
@given(tokens=TOKENS, clip=st.sampled_from([0.0, 0.2, 0.5]), bound=st.sampled_from([0.0, 0.3, 1.0]))
def test_the_value_loss_equals_a_slow_obvious_version_with_its_gradient(tokens, clip, bound):
    values, old, returns = (f64(column) for column in zip(*tokens, strict=True))
    values.requires_grad_()
    slow = []
    for value, before, target in zip(list(values), old.tolist(), returns.tolist(), strict=True):
        moved = value.item() - before
        held = value if not clip or abs(moved) <= clip else f64(before + math.copysign(clip, moved))
        error, held_error = slow_cost(value - target, bound), slow_cost(held - target, bound)
        # Where both are as far from the return, the gradient is half of each.
        equal = error.item() == held_error.item()
        worst = (error + held_error) / 2 if equal else max(error, held_error, key=torch.Tensor.item)
        slow.append(worst + 0 * value)
    ours = value_loss(values, old, returns, clip=clip, bound=bound)
    torch.testing.assert_close(ours, torch.stack(slow))
    torch.testing.assert_close(gradient(ours, values), gradient(torch.stack(slow), values))


def test_the_quantile_loss_by_hand():
    # levels 1/4 and 3/4; errors 2 and -1
    quantiles = f64([[0.0, 3.0]])
    torch.testing.assert_close(quantile_loss(quantiles, f64([2.0]), kappa=0.0), f64([(0.25 * 2 + 0.25 * 1) / 2]))
    torch.testing.assert_close(quantile_loss(quantiles, f64([2.0]), kappa=1.0), f64([(0.25 * 1.5 + 0.25 * 0.5) / 2]))


@given(rows=QUANTILES, kappa=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_quantile_loss_equals_a_slow_obvious_version_with_its_gradient(rows, kappa):
    targets, rows = zip(*rows, strict=True)
    quantiles = f64(rows).requires_grad_()
    slow = []
    for row, target in zip(quantiles, targets, strict=True):
        total = 0 * row[0]
        for i, quantile in enumerate(row):
            error = target - quantile
            if not kappa:
                size = error.abs()
            elif abs(error.item()) <= kappa:
                size = error**2 / 2 / kappa
            else:
                size = (kappa * (error.abs() - kappa / 2)) / kappa
            level = (2 * i + 1) / 6
            total = total + (1 - level if error.item() < 0 else level) * size
        slow.append(total / 3)
    ours = quantile_loss(quantiles, f64(targets), kappa=kappa)
    torch.testing.assert_close(ours, torch.stack(slow))
    torch.testing.assert_close(gradient(ours, quantiles), gradient(torch.stack(slow), quantiles))


def test_minimizing_it_finds_the_quantiles_of_the_returns():
    returns = torch.linspace(0, 1, 401, dtype=torch.float64)
    quantiles = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        loss = quantile_loss(quantiles.expand(401, 4), returns, kappa=0.0).mean()
        (step,) = torch.autograd.grad(loss, quantiles)
        quantiles = (quantiles - 0.2 * step).detach().requires_grad_()
    torch.testing.assert_close(quantiles.detach(), f64([0.125, 0.375, 0.625, 0.875]), atol=0.02, rtol=0)


def test_value_and_spread_of_quantiles_by_hand():
    quantiles = f64([[1.0, 3.0], [2.0, 2.0]]).requires_grad_()
    assert quantile_mean(quantiles).tolist() == [2.0, 2.0]
    assert quantile_spread(quantiles).tolist() == [1.0, 0.0]
    assert quantile_mean(quantiles).requires_grad and not quantile_spread(quantiles).requires_grad
    assert quantile_spread(f64([[1.0], [2.0]])).tolist() == [0.0, 0.0]


@given(spread=st.lists(numbers(0, 5), min_size=1, max_size=9), strength=st.floats(0, 4))
def test_spread_weights_have_mean_one_and_fall_with_the_spread(spread, strength):
    weights = spread_weights(f64(spread), strength=strength)
    assert float(weights.mean()) == pytest.approx(1)
    assert (weights > 0).all()
    ordered = weights[f64(spread).argsort()]
    assert (ordered.diff() <= 1e-12).all()


def test_spread_weights_by_hand_and_none_without_strength_or_spread():
    # mean spread 1: 1 / (1 + 0) and 1 / (1 + 2), over their mean 2/3
    torch.testing.assert_close(spread_weights(f64([0.0, 2.0]), strength=1.0), f64([1.5, 0.5]))
    assert spread_weights(f64([0.0, 2.0]), strength=0.0).tolist() == [1.0, 1.0]
    assert spread_weights(f64([0.0, 0.0]), strength=1.0).tolist() == [1.0, 1.0]
    assert spread_weights(f64([]), strength=1.0).tolist() == []


def test_explained_variance_by_hand():
    returns = f64([0.0, 1.0, 2.0])
    assert float(explained_variance(returns + 5, returns)) == 1.0
    assert float(explained_variance(f64([7.0, 7.0, 7.0]), returns)) == 0.0
    assert float(explained_variance(-returns, returns)) == pytest.approx(-3.0)
    assert float(explained_variance(f64([1.0, 2.0]), f64([3.0, 3.0]))) == 0.0
    assert float(explained_variance(f64([]), f64([]))) == 0.0
