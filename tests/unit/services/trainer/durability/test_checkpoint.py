import random

import numpy as np
import pytest
import torch

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.durability.checkpoint import (
    CheckpointDamagedError,
    CheckpointState,
    CheckpointStore,
    load_checkpoint,
)
from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.random_states import random_states, restore_random_states
from headrace.services.trainer.model.model import Policy
from tests.unit.services.trainer.builders import tiny_model


def state(step):
    return CheckpointState(
        step=step,
        incarnation=1,
        frontier=3,
        fates=(GroupFate(group_index=5, group_id="run/g5", step=step), GroupFate(group_index=4, group_id="g4")),
        coefficients={"kl_coef": 0.1},
        config_digest="c",
    )


def save(store, step, value=1.0, **options):
    weights = {"a": torch.full((3, 2), value), "b": torch.arange(4.0)}
    files = {"model": weights, "optimizer": {"a/step": torch.tensor(float(step))}, "random": random_states()}
    return store.save(state(step), files, **options)


def test_a_saved_checkpoint_loads_unchanged(tmp_path):
    loaded = load_checkpoint(save(CheckpointStore(tmp_path, keep=2), 7))
    assert loaded.state == state(7)
    torch.testing.assert_close(loaded.weights, {"a": torch.ones(3, 2), "b": torch.arange(4.0)})
    assert loaded.optimizer == {"a/step": torch.tensor(7.0)}


def test_any_flipped_byte_of_any_file_is_noticed_and_the_one_before_is_taken(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    save(store, 1)
    newest = save(store, 2)
    for path in sorted(newest.iterdir()):
        original = path.read_bytes()
        for place in (0, len(original) // 2, len(original) - 1):
            data = bytearray(original)
            data[place] ^= 4
            path.write_bytes(data)
            with pytest.raises(CheckpointDamagedError):
                load_checkpoint(newest)
        assert CheckpointStore(tmp_path, keep=3).newest().state.step == 1
        path.write_bytes(original)
    assert CheckpointStore(tmp_path, keep=3).newest().state.step == 2


def test_a_torn_or_missing_file_is_noticed(tmp_path):
    path = save(CheckpointStore(tmp_path, keep=1), 1)
    (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(CheckpointDamagedError):
        load_checkpoint(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(CheckpointDamagedError):
        load_checkpoint(path)
    assert CheckpointStore(tmp_path, keep=1).newest() is None


class Killed(Exception):
    pass


def test_a_death_before_the_rename_leaves_the_one_before(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    save(store, 1)

    def die():
        raise Killed

    with pytest.raises(Killed):
        save(store, 2, midway=die)
    again = CheckpointStore(tmp_path, keep=2)
    assert again.newest().state.step == 1
    save(again, 2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000001", "step-000002"]


def test_only_the_newest_are_kept_and_never_a_damaged_one_in_place_of_a_whole_one(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3):
        save(store, step)
    assert [step for step, _ in store.published()] == [2, 3]
    assert store.covered_step() == 2
    (tmp_path / "step-000003" / "manifest.json").write_text("{")
    later = CheckpointStore(tmp_path, keep=2)
    assert later.newest().state.step == 2
    save(later, 4)
    assert [step for step, _ in later.published()] == [2, 4]
    assert later.covered_step() == 2


def test_a_damaged_one_of_the_same_step_is_replaced(tmp_path):
    save(CheckpointStore(tmp_path, keep=2), 1)
    (tmp_path / "step-000001" / "state.json").write_text("{}")
    store = CheckpointStore(tmp_path, keep=2)
    assert store.newest() is None
    save(store, 1, value=2.0)
    assert CheckpointStore(tmp_path, keep=2).newest().weights["a"][0, 0] == 2.0


def test_random_states_go_on_where_they_were():
    states = random_states()
    first = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())
    restore_random_states(states)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()) == first


def backend(seed):
    return SingleDevice(
        Policy(tiny_model(seed), forward_dtype=torch.float32), betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1
    )


def push(used, times):
    for number in range(times):
        for index, (_, weight) in enumerate(used.module.named_weights()):
            weight.grad = torch.full_like(weight, 0.01 * (index + number + 1))
        used.apply(learning_rate=1e-2, grad_clip=1.0)


def test_a_loaded_backend_steps_on_bit_by_bit(tmp_path):
    whole, first, second = backend(0), backend(0), backend(1)
    push(whole, 2)
    push(first, 2)
    store = CheckpointStore(tmp_path, keep=1)
    files = {"model": dict(first.named_weights()), "optimizer": dict(first.optimizer_rows()), "random": random_states()}
    store.save(state(2), files)
    loaded = store.newest()
    second.load(loaded.weights, loaded.optimizer)
    push(whole, 3)
    push(second, 3)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(whole.named_weights(), second.named_weights(), strict=True))
