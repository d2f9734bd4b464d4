"""What the policy cannot compute is found before it is journaled: it would end the trainer, and its replay again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.runtime.token_limits import TokenLimits
from headrace.wire.contracts import Score, ScoredGroup
from headrace.wire.errors import ContractError
from tests.builders import group, played_group
from tests.unit.services.trainer.builders import tiny_model


def scored(body):
    return ScoredGroup(group=body, scores=tuple(Score(rollout_id=one.rollout_id, value=None) for one in body.rollouts))


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"vocab": 10, "context_length": 5}, None),
        # The completion's highest id, of a masked token, is 9; that of the second segment's context 8.
        ({"vocab": 9, "context_length": 5}, "bad_tokens"),
        ({"vocab": 10, "context_length": 4}, "context_overflow"),
        ({}, None),
    ],
)
def test_each_segment_of_an_episode_must_fit_vocabulary_and_context(limits, code):
    check(scored(played_group()), code, **limits)


def check(body, code, **limits):
    if code is None:
        TokenLimits(**limits).check(body)
        return
    with pytest.raises(ContractError) as refused:
        TokenLimits(**limits).check(body)
    assert refused.value.code == code


@pytest.mark.parametrize("where", ["prompt", "first segment", "second segment"])
def test_an_id_beyond_the_vocabulary_is_found_in_a_context_too(where):
    if where == "prompt":
        body = group()
        body = replace(body, prompt=replace(body.prompt, token_ids=np.array([3, 99], np.int32)))
    else:
        body = played_group()
        first = body.rollouts[0]
        segments = list(first.episode.segments)
        number = 0 if where == "first segment" else 1
        segments[number] = replace(segments[number], context_ids=np.array([99, 3], np.int32))
        first = replace(first, episode=replace(first.episode, segments=tuple(segments)))
        body = replace(body, rollouts=(first, *body.rollouts[1:]))
    check(scored(body), "bad_tokens", vocab=99)
    check(scored(body), None, vocab=100)


def test_token_limits_come_from_the_model_unless_the_engines_set_a_context():
    policy = Policy(tiny_model(), forward_dtype=torch.float32)
    own = policy.model.config.max_position_embeddings
    assert TokenLimits.of(policy, 0) == TokenLimits(vocab=policy.vocab, context_length=own)
    assert TokenLimits.of(policy, 7).context_length == 7
