"""Rows of the cache change places all at once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.rollout.engines.torch.architecture import read_architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from tests.rollout_models import make_model

ARCH = read_architecture(make_model().config)
ROWS, CONTEXT = 6, 5


def filled() -> tuple[KeyValueCache, torch.Tensor]:
    """A cache whose every number is another, and a copy of its keys [rows, kv_heads, length, head_dim]."""
    cache = KeyValueCache(ARCH, rows=ROWS, context_length=CONTEXT, dtype=torch.float32, device=torch.device("cpu"))
    places = torch.arange(ROWS * CONTEXT)
    for layer in range(ARCH.layers):
        cache.write(layer, places, torch.randn(ROWS * CONTEXT, 2 * ARCH.kv_heads * ARCH.head_dim))
    return cache, cache.keys(1, 0, ROWS, CONTEXT).clone()


@given(order=st.permutations(range(ROWS)), count=st.integers(0, ROWS))
def test_moves_happen_all_at_once_also_in_circles(order: list[int], count: int) -> None:
    cache, before = filled()
    sources, targets = order[:count], sorted(order[:count])
    cache.move_rows(sources, targets, [CONTEXT] * count)
    after = cache.keys(1, 0, ROWS, CONTEXT)
    wanted = list(range(ROWS))
    for source, target in zip(sources, targets, strict=True):
        wanted[target] = source
    assert torch.equal(after, before[wanted])


def test_a_prefix_is_copied_and_the_rest_left_alone() -> None:
    cache, before = filled()
    cache.copy_prefix(4, [0, 2], 3)
    after = cache.keys(1, 0, ROWS, CONTEXT)
    assert torch.equal(after[0, :, :3], before[4, :, :3]) and torch.equal(after[2, :, :3], before[4, :, :3])
    assert torch.equal(after[0, :, 3:], before[0, :, 3:]) and torch.equal(after[[1, 3, 4, 5]], before[[1, 3, 4, 5]])


def test_gather_returns_the_requested_rows() -> None:
    cache, before = filled()
    keys, _ = cache.gather(1, torch.tensor([5, 0]), 2)
    assert torch.equal(keys, before[[5, 0], :, :2])
