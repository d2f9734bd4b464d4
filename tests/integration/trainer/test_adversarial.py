"""The whole circle in one process: a policy samples, the published discriminator scores, both learn; and again."""

import dataclasses

import numpy as np
import torch

from headrace.model.tiny_models import character_tokenizer, write_model
from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorer import Context
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import load_learner
from headrace.wire.contracts import Rollout, Score, VersionSpan
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.discriminator.test_discriminator import CHARACTERS, END, SHAPE, with_reference

REFERENCE = "c"
STEPS, PROMPTS, SIZE, LONGEST = 60, 2, 16, 3


def sample(policy, prompt, draw):
    """Tokens and their logprobs, up to the end token or the longest length."""
    ids, logprobs = prompt.tolist(), []
    with torch.no_grad():
        while len(logprobs) < LONGEST and (not logprobs or ids[-1] != END):
            found = torch.log_softmax(policy.module.model(torch.tensor([ids])).logits[0, -1], -1)
            token = int(torch.multinomial(found.exp(), 1, generator=draw))
            ids.append(token)
            logprobs.append(float(found[token]))
    return np.array(ids[len(prompt) :], np.int32), np.array(logprobs, np.float32)


def sampled_group(policy, index, draw):
    """A group that the policy has just sampled, without scores."""
    blank = with_reference(scored_group(index, size=SIZE, longest=LONGEST), REFERENCE)
    rollouts = []
    for old in blank.group.rollouts:
        tokens, logprobs = sample(policy, blank.group.prompt.token_ids, draw)
        span = VersionSpan(start=0, end=len(tokens), version=old.spans[0].version)
        rollouts.append(
            Rollout(
                rollout_id=old.rollout_id,
                token_ids=tokens,
                logprobs=logprobs,
                finish_reason=old.finish_reason,
                spans=(span,),
            )
        )
    return dataclasses.replace(blank, group=dataclasses.replace(blank.group, rollouts=tuple(rollouts)))


async def scored_by(scorer, group):
    verdicts = await scorer.score(samples_of(group.group, group.group.prompt.sample_id))
    pairs = zip(group.group.rollouts, verdicts, strict=True)
    scores = tuple(Score(rollout_id=rollout.rollout_id, value=verdict.value) for rollout, verdict in pairs)
    return dataclasses.replace(group, scores=scores, versions={"discriminator": scorer.version})


def likelihood(learner, group):
    """How likely the policy says exactly the reference."""
    said = [*(2 + CHARACTERS.index(letter) for letter in REFERENCE), END]
    ids = torch.tensor([[*group.group.prompt.token_ids.tolist(), *said]])
    with torch.no_grad():
        found = torch.log_softmax(learner.policy.module.model(ids).logits[0], -1)
    places = range(ids.shape[1] - len(said) - 1, ids.shape[1] - 1)
    return float(sum(found[place, ids[0, place + 1]] for place in places))


async def test_the_policy_moves_towards_the_references_and_every_group_is_scored_by_the_version_of_its_step(tmp_path):
    write_model(tmp_path / "model", character_tokenizer(CHARACTERS), SHAPE, seed=1)
    settings = TrainerSettings.model_validate(
        {
            "model": {"path": tmp_path / "model"},
            "algorithm": {"name": "grpo"},
            "discriminator": {"every": 1, "learning_rate": 1e-3, "label_smoothing": 0.1},
            "trainer": {"learning_rate": 1e-2},
            "run_dir": tmp_path / "run",
        }
    )
    learner = load_learner(settings, Ranks.alone(), torch.device("cpu"))
    scorer = build_scorer("discriminator", {}, Context(component="discriminator", run_dir=tmp_path / "run"))
    await scorer.load()
    draw = torch.Generator().manual_seed(0)
    learner.publish_discriminator()
    begin = [likelihood(learner, scored_group(index)) for index in range(PROMPTS)]
    told = []
    for step in range(1, STEPS + 1):
        groups = [await scored_by(scorer, sampled_group(learner.policy, index, draw)) for index in range(PROMPTS)]
        assert {group.versions["discriminator"].split("-")[0] for group in groups} == {str(step - 1)}
        told.append(learner.train(step, groups).metrics)
        learner.publish_discriminator()
    end = [likelihood(learner, scored_group(index)) for index in range(PROMPTS)]
    await scorer.close()
    assert max(begin) < np.log(1e-2) and min(end) > np.log(0.5), (begin, end)
    assert max(line["discriminator_accuracy_rollouts"] for line in told[:20]) > 0.9
    # What the policy says is what the data says: no discriminator tells them apart any more. One step says nothing:
    # a batch of one answer is all right or all wrong.
    assert np.mean([line["discriminator_accuracy_rollouts"] for line in told[-20:]]) < 0.75
