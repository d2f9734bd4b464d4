"""What lasts from step to step: coefficients under control, a reference that moves, a critic; and their checkpoints."""

import threading

import torch

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import HostCopy
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import load_learner
from tests.unit.services.trainer.builders import scored_group, tiny_folder

GROUPS = [scored_group(index, rewards=[1, 0, 0.5, 0]) for index in range(4)]


def learner(tmp_path, *, lora=None, critic=None, **algorithm):
    folder = tmp_path / "model"
    if not folder.exists():
        tiny_folder(folder)
    settings = TrainerSettings.model_validate(
        {
            "model": {"path": folder, "lora": lora or {}},
            "algorithm": algorithm,
            "critic": critic or {},
            "trainer": {"learning_rate": 1e-2},
        }
    )
    return load_learner(settings, Ranks.alone(), torch.device("cpu"))


def saved(used, tmp_path, step):
    """Through a checkpoint on disk."""
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    state = used.save()
    described = CheckpointState(
        step=step, incarnation=1, frontier=0, fates=(), coefficients=state.coefficients, config_digest=""
    )
    store.save(described, state.files)
    found = CheckpointStore(tmp_path / "checkpoints", keep=2).newest()
    assert found is not None
    return found


def weights(used):
    return {name: weight.clone() for name, weight in used.policy.named_weights()}


def assert_equal(left, right):
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_kl_above_its_target_raises_the_coefficient_and_a_checkpoint_keeps_it(tmp_path):
    table = {"kl_coef": 0.1, "kl_target": 1e-6, "kl_horizon": 16, "kl_in": "loss"}
    used = learner(tmp_path, **table)
    for step in (1, 2, 3):
        outcome = used.train(step, GROUPS)
    assert used.coefficients["kl_coef"] > 0.1
    assert outcome.metrics["kl_coef"] <= used.coefficients["kl_coef"]
    again = learner(tmp_path, **table)
    again.load(saved(used, tmp_path, 3))
    assert again.coefficients == used.coefficients


def test_a_fixed_coefficient_follows_the_current_config(tmp_path):
    used = learner(tmp_path, kl_coef=0.1)
    used.train(1, GROUPS)
    again = learner(tmp_path, kl_coef=0.7)
    again.load(saved(used, tmp_path, 1))
    assert again.coefficients["kl_coef"] == 0.7


def test_the_entropy_bonus_follows_its_target(tmp_path):
    used = learner(tmp_path, entropy_target=10.0, entropy_coef=0.01, entropy_step=0.005)
    used.train(1, GROUPS)
    assert used.coefficients["entropy_coef"] == 0.015


def test_a_reference_that_is_reset_becomes_the_policy_and_survives_a_checkpoint(tmp_path):
    table = {"kl_coef": 0.1, "kl_estimator": "k2", "reference_reset_every": 2}
    used = learner(tmp_path, **table)
    apart = [used.train(step, GROUPS).metrics["kl"] for step in (1, 2)]
    assert apart[0] < 1e-9 < apart[1]
    checkpoint = saved(used, tmp_path, 2)
    third = used.train(3, GROUPS).metrics["kl"]
    assert third < 1e-9
    again = learner(tmp_path, **table)
    again.load(checkpoint)
    assert again.train(3, GROUPS).metrics["kl"] == third
    assert_equal(weights(again), weights(used))


def test_a_reference_that_follows_the_policy_is_its_exponential_mean_and_goes_on_bit_equal(tmp_path):
    table = {"kl_coef": 0.1, "kl_estimator": "k2", "reference_reset_every": 1, "reference_mix": 0.25}
    used, checkpoint = learner(tmp_path, **table), None
    mean = {name: one.numpy() for name, one in weights(used).items()}
    for step in (1, 2, 3):
        used.train(step, GROUPS)
        policy = weights(used)
        mean = {name: 0.75 * one + 0.25 * policy[name].numpy() for name, one in mean.items()}
        checkpoint = saved(used, tmp_path, 2) if step == 2 else checkpoint
    found = dict(used.save().files["reference"])
    for name, one in mean.items():
        torch.testing.assert_close(found[name], torch.from_numpy(one), rtol=1e-6, atol=1e-8)
    again = learner(tmp_path, **table)
    again.load(checkpoint)
    again.train(3, GROUPS)
    assert_equal(dict(again.save().files["reference"]), found)
    assert_equal(weights(again), weights(used))


def test_a_run_with_a_critic_continues_bit_equal_from_a_checkpoint(tmp_path):
    used = learner(tmp_path, name="ppo", critic={"learning_rate": 1e-2})
    for step in (1, 2):
        used.train(step, GROUPS)
    again = learner(tmp_path, name="ppo", critic={"learning_rate": 1e-2})
    again.load(saved(used, tmp_path, 2))
    left, right = used.train(3, GROUPS), again.train(3, GROUPS)
    assert left.metrics == right.metrics
    assert_equal(weights(again), weights(used))


def test_a_step_changes_nothing_that_is_still_being_copied(tmp_path, monkeypatch):
    used = learner(tmp_path, name="ppo", critic={"learning_rate": 1e-2})
    used.train(1, GROUPS)
    files = used.save().files
    expected = {file: {name: one.clone() for name, one in named.items()} for file, named in files.items()}
    opened, copy = threading.Event(), HostCopy._copy
    monkeypatch.setattr(HostCopy, "_copy", lambda self, tensor: opened.wait(20) and copy(self, tensor))
    saved = used.save()
    threading.Timer(1.0, opened.set).start()
    used.train(2, GROUPS)
    assert saved.files.keys() == expected.keys()
    for file in saved.files:
        assert_equal(saved.files[file], expected[file])
    assert any(not torch.equal(one, expected["model"][name]) for name, one in weights(used).items())


def test_the_policy_is_frozen_while_the_critic_is_pretrained_and_warmed_up(tmp_path):
    used = learner(tmp_path, name="vapo", critic={"learning_rate": 1e-2, "pretrain_steps": 1, "warmup_steps": 1})
    begin = weights(used)
    for step in (1, 2):
        outcome = used.train(step, GROUPS)
        assert outcome.metrics["learning_rate"] == 0.0
        assert outcome.metrics["value_loss"] > 0
    assert_equal(weights(used), begin)
    assert used.train(3, GROUPS).metrics["updates"] == 4
    assert any(not torch.equal(weight, begin[name]) for name, weight in weights(used).items())


def test_with_adapters_the_reference_is_the_model_without_them(tmp_path):
    used = learner(tmp_path, lora={"rank": 2}, kl_coef=0.1, kl_estimator="k2", reference="adapters_off")
    apart = [used.train(step, GROUPS).metrics["kl"] for step in (1, 2)]
    assert apart[0] < 1e-9 < apart[1]
