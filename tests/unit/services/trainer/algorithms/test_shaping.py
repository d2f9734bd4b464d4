import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.advantages.shaping import overlong_penalty


def test_by_hand_with_the_papers_lengths():
    lengths = torch.tensor([0, 16384, 16385, 18432, 20480, 30000])
    penalty = overlong_penalty(lengths, max_tokens=20480, buffer=4096, factor=1.0)
    torch.testing.assert_close(penalty, torch.tensor([0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]))


@given(lengths=st.lists(st.integers(0, 300), max_size=9), buffer=st.integers(1, 100), factor=st.floats(0, 3))
def test_longer_is_never_better_and_the_worst_is_the_factor(lengths, buffer, factor):
    penalty = overlong_penalty(
        torch.tensor(sorted(lengths), dtype=torch.int64), max_tokens=100, buffer=buffer, factor=factor
    )
    assert (penalty.diff() <= 0).all()
    assert ((penalty <= 0) & (penalty >= -factor * (1 + 1e-6))).all()
