import torch
from hypothesis import given

from headrace.services.trainer.algorithms.losses.positive_nll import positive_nll, positive_tokens
from tests.unit.services.trainer.algorithms.flat_rollouts import TRAINED, flat


def test_by_hand_only_tokens_of_rollouts_above_the_threshold():
    logprobs = torch.tensor([-1.0, -2.0, -3.0, -4.0], requires_grad=True)
    rewards, lengths = torch.tensor([1.0, 0.0, float("nan"), 0.5]), torch.tensor([2, 1, 1, 0])
    loss = positive_nll(logprobs, rewards, lengths)
    assert loss.tolist() == [1.0, 2.0, 0.0, 0.0]
    assert positive_tokens(rewards, lengths).tolist() == [True, True, False, False]
    loss.sum().backward()
    assert logprobs.grad.tolist() == [-1.0, -1.0, 0.0, 0.0]


@given(rollouts=TRAINED)
def test_it_equals_a_loop_over_rollouts(rollouts):
    logprobs, _, _, lengths = flat(rollouts, 3)
    rewards = torch.arange(len(rollouts)).remainder(3).sub(1).double()
    expected = [
        -token[0] if reward > 0 else 0.0
        for rollout, reward in zip(rollouts, rewards.tolist(), strict=True)
        for token in rollout
    ]
    assert positive_nll(logprobs, rewards, lengths).tolist() == expected
