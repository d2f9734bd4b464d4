"""Room that checkpoints still need, from real ones on a disk."""

import pytest
import torch
from prometheus_client import REGISTRY

from headrace.services.trainer.durability import checkpointing as module
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


def test_a_checkpoint_that_fails_needs_its_room_again(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    first = save(store, 1, 1000)
    with pytest.raises(OSError, match="full"), checkpointing(store, step=2, limit_s=60.0):
        raise OSError("the disk is full")
    assert room() == 2 * size(first)


@pytest.mark.parametrize(("limit_s", "late"), [(1e-9, True), (600.0, False)])
def test_one_that_is_late_is_logged_with_its_deadline(tmp_path, monkeypatch, limit_s, late):
    said = []
    monkeypatch.setattr(module.log, "warning", lambda event, **facts: said.append((event, facts)))
    with checkpointing(CheckpointStore(tmp_path, keep=2), step=3, limit_s=limit_s):
        pass
    assert [(event, facts["step"], facts["checkpoint_deadline_s"]) for event, facts in said] == (
        [("checkpoint_late", 3, limit_s)] if late else []
    )
