"""Room that checkpoints still need, from real ones on a disk."""

import pytest
import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import checkpointing, room_bytes, show_room


def save(store, step, numbers):
    state = CheckpointState(step=step, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest="c")
    return store.save(state, weights={"w": torch.zeros(numbers)}, optimizer={})


def room():
    return REGISTRY.get_sample_value("headrace_trainer_checkpoint_room_bytes")


def size(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    ("have", "writing", "times"),
    [(0, False, 5), (1, False, 4), (1, True, 3), (3, False, 2), (3, True, 1), (4, False, 2)],
)
def test_missing_ones_one_aside_and_one_to_spare(have, writing, times):
    assert room_bytes(100, have=have, keep=3, writing=writing) == 100 * times


def test_the_newest_checkpoint_says_how_large_the_next_ones_are(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    show_room(store)
    assert room() == 0
    first = save(store, 1, 1000)
    show_room(store)
    assert room() == 3 * size(first) > 12_000
    with checkpointing(store, step=2, limit_s=60.0):
        assert room() == 2 * size(first)
        second = save(store, 2, 5000)
    assert room() == 2 * size(second) > 40_000
