"""The discriminator: what it learns from, that it separates, and that checkpoint, ranks and replay change nothing."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.trainer.discriminator.examples import References, labelled_examples
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import load_learner
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.step.test_abstention import without_score

CHARACTERS = "abcdefghijklmnopqrstuv"
END = 1
SHAPE = Shape(hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, head_dim=16)


def with_reference(group, *texts, column="answer"):
    """The group, with a stop token, its rollouts of sampled length ended by it, and these references."""
    sampling = dataclasses.replace(group.group.prompt.sampling, stop_token_ids=(END,))
    value = list(texts) if len(texts) != 1 else texts[0]
    prompt = dataclasses.replace(group.group.prompt, columns={column: value}, sampling=sampling)
    return dataclasses.replace(group, group=dataclasses.replace(group.group, prompt=prompt))


GROUPS = [with_reference(scored_group(index, rewards=[1, 0, 0.5, 0]), "abca") for index in range(4)]


def write_tokenizer(folder):
    """One token a letter, for a model of `builders.VOCAB` tokens."""
    character_tokenizer(CHARACTERS).save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_model(folder, character_tokenizer(CHARACTERS), SHAPE, seed=1)
    return folder


def settings_for(model, *, run_dir=None, **table):
    return TrainerSettings.model_validate(
        {
            "model": {"path": model},
            "discriminator": {"every": 1, "learning_rate": 1e-2, **table},
            "trainer": {"learning_rate": 1e-3},
            "run_dir": run_dir or model.parent / "run",
        }
    )


def learner(model, **table):
    return load_learner(settings_for(model, **table), Ranks.alone(), torch.device("cpu"))


def weights(used):
    return {name: tensor.clone() for name, tensor in used.save().files["discriminator"].items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def references(**more):
    return References(column="answer", encode=lambda text: [2 + CHARACTERS.index(c) for c in text], end_id=END, **more)


def test_both_sides_are_whole_sequences_of_the_same_prompts_and_weigh_the_same():
    made = labelled_examples(
        [with_reference(scored_group(0), "ab"), with_reference(scored_group(1), "b", "c")], references()
    )
    ours, theirs = ([one for one in made if one.is_reference is side] for side in (False, True))
    assert len(ours) == 8 and len(theirs) == 3
    assert sum(one.share for one in ours) == sum(one.share for one in theirs) == pytest.approx(1)
    group = scored_group(0).group
    assert ours[0].example.token_ids.tolist() == [*group.prompt.token_ids, *group.rollouts[0].token_ids]
    assert theirs[0].example.token_ids.tolist() == [*group.prompt.token_ids, 2, 3, END]
    assert [one.example.token_ids[-2:].tolist() for one in theirs[1:]] == [[3, END], [4, END]]


def test_prompts_without_a_reference_and_rollouts_without_a_score_teach_nothing():
    groups = [
        with_reference(scored_group(0), "ab"),
        scored_group(1),
        without_score(with_reference(scored_group(2), "c"), 1),
    ]
    made = labelled_examples(groups, references())
    assert [one.is_reference for one in made] == [False] * 7 + [True] * 2
    assert labelled_examples([scored_group(1)], references()) == []


def test_a_batch_without_references_trains_the_policy_and_not_the_discriminator(model):
    """Ending the run would not help: the batch is in the journal, and a resumed run would train it again."""
    used, alone = learner(model), learner(model, every=0)
    begin = weights(used)
    groups = [scored_group(index, rewards=[1, 0, 0.5, 0]) for index in range(4)]
    told = used.train(1, groups).metrics
    alone.train(1, groups)
    assert same(dict(used.policy.whole_weights()), dict(alone.policy.whole_weights()))
    assert same(weights(used), begin)
    assert {name: value for name, value in told.items() if name.startswith("discriminator")} == {
        "discriminator_references": 0
    }
    assert used.save().coefficients["discriminator_version"] == 0
    assert used.train(2, GROUPS).metrics["discriminator_references"] == 4
    assert used.save().coefficients["discriminator_version"] == 2


def test_it_learns_to_tell_rollouts_from_references(model):
    used = learner(model)
    found = [used.train(step, GROUPS).metrics for step in range(1, 31)]
    assert found[0]["discriminator_loss"] == pytest.approx(np.log(2))
    assert found[0]["discriminator_accuracy_rollouts"] == found[0]["discriminator_accuracy_references"] == 0.5
    assert found[-1]["discriminator_loss"] < 0.1
    assert found[-1]["discriminator_accuracy_rollouts"] == found[-1]["discriminator_accuracy_references"] == 1.0


def test_the_discriminator_does_not_affect_the_policys_learning(model):
    with_it, without = learner(model), learner(model, every=0)
    for step in (1, 2):
        with_it.train(step, GROUPS)
        told = without.train(step, GROUPS).metrics
    assert same(dict(with_it.policy.whole_weights()), dict(without.policy.whole_weights()))
    assert not any(name.startswith("discriminator") for name in told)


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_from_a_checkpoint_it_goes_on_as_if_nothing_had_been(model, tmp_path, begun):
    """`every = 2`: at step 1 there is no state of its optimizer yet."""
    used = learner(model, every=2)
    for step in range(1, begun + 1):
        used.train(step, GROUPS)
    saved = used.save()
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    state = CheckpointState(
        step=begun, incarnation=1, frontier=0, fates=(), coefficients=saved.coefficients, config_digest=""
    )
    store.save(state, saved.files)
    again = learner(model, every=2)
    again.load(store.newest())
    again.publish_discriminator()
    named = (model.parent / "run" / "discriminator" / "current").read_text()
    assert named.startswith(f"version-{begun - begun % 2:06d} ")
    for step in range(begun + 1, 5):
        left, right = used.train(step, GROUPS), again.train(step, GROUPS)
    assert left.metrics == right.metrics
    assert same(weights(used), weights(again))
    assert used.save().coefficients["discriminator_version"] == again.save().coefficients["discriminator_version"] == 4


def test_each_version_is_published_whole_and_of_the_old_ones_one_stays(model):
    used = learner(model, every=2)
    folder = model.parent / "run" / "discriminator"
    digests = {}
    for step in range(7):
        if step:
            used.train(step, GROUPS)
        used.publish_discriminator()
        name, digest = (folder / "current").read_text().split()
        assert name == f"version-{step - step % 2:06d}"
        assert digests.setdefault(name, digest) == digest
        names = {path.name for path in (folder / name).iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert len(set(digests.values())) == 4
    assert sorted(path.name for path in folder.iterdir()) == ["current", "version-000004", "version-000006"]
