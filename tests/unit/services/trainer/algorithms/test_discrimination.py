import math

import pytest
import torch

from headrace.services.trainer.algorithms.losses.discrimination import discrimination_loss

LOGITS = torch.tensor([0.0, 2.0, -3.0, 2.0], dtype=torch.float64)
IS_REFERENCE = torch.tensor([True, True, True, False])


def softplus(value):
    return math.log1p(math.exp(value))


def test_it_is_the_cross_entropy_of_the_label():
    found = discrimination_loss(LOGITS, IS_REFERENCE)
    assert found.tolist() == pytest.approx([math.log(2), softplus(-2), softplus(3), softplus(2)])


def test_smoothed_labels_are_nearer_to_one_half():
    found = discrimination_loss(LOGITS, IS_REFERENCE, label_smoothing=0.2)
    expected = [0.9 * softplus(-2) + 0.1 * softplus(2), 0.1 * softplus(-2) + 0.9 * softplus(2)]
    assert found[[1, 3]].tolist() == pytest.approx(expected)


def test_nothing_is_learned_from_a_logit_that_already_is_the_smoothed_label():
    logits = torch.tensor([math.log(9), -math.log(9)], dtype=torch.float64, requires_grad=True)
    discrimination_loss(logits, torch.tensor([True, False]), label_smoothing=0.2).sum().backward()
    assert logits.grad.abs().max() < 1e-12
