import torch

from headrace.services.trainer.algorithms.losses.positive_nll import positive_nll, positive_tokens


def test_by_hand_only_tokens_of_rollouts_above_the_threshold():
    logprobs = torch.tensor([-1.0, -2.0, -3.0, -4.0], requires_grad=True)
    rewards, lengths = torch.tensor([1.0, 0.0, float("nan"), 0.5]), torch.tensor([2, 1, 1, 0])
    loss = positive_nll(logprobs, rewards, lengths)
    assert loss.tolist() == [1.0, 2.0, 0.0, 0.0]
    assert positive_tokens(rewards, lengths).tolist() == [True, True, False, False]
    loss.sum().backward()
    assert logprobs.grad.tolist() == [-1.0, -1.0, 0.0, 0.0]
