import torch

from headrace.services.trainer.algorithms.advantages.shaping import overlong_penalty


def test_by_hand_with_the_papers_lengths():
    lengths = torch.tensor([0, 16384, 16385, 18432, 20480, 30000])
    penalty = overlong_penalty(lengths, max_tokens=20480, buffer=4096, factor=1.0)
    torch.testing.assert_close(penalty, torch.tensor([0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]))
