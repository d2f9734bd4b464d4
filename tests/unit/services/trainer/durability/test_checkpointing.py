"""Room that checkpoints still need, from real ones on a disk."""

import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.checkpointing import show_room
from headrace.services.trainer.durability.random_states import random_states


def save(store, step, numbers):
    state = CheckpointState(step=step, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest="c")
    return store.save(state, {"model": {"w": torch.zeros(numbers)}, "optimizer": {}, "random": random_states()})


def room():
    return REGISTRY.get_sample_value("headrace_trainer_checkpoint_room_bytes")


def size(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_newest_checkpoint_says_how_large_the_next_ones_are(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    show_room(store)
    assert room() == 0
    first = save(store, 1, 1000)
    show_room(store)
    assert room() == 3 * size(first) > 12_000
    show_room(store, writing=True)
    assert room() == 2 * size(first)
    second = save(store, 2, 5000)
    show_room(store)
    assert room() == 2 * size(second) > 40_000
