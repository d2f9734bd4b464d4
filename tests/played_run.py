"""The rollouts of a step that played episodes, as the trainer writes them: for pages and commands that show them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.records.rollout_log import write_rollouts
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import (
    Episode,
    FinishReason,
    Message,
    PolicyVersion,
    Rollout,
    Score,
    ScoredGroup,
    Turn,
    VersionSpan,
    encode,
    played_turns,
)
from tests import builders
from tests.dashboard_run import _ids

CALL = {"name": "find", "arguments": {"who": "Ada"}}
_SPAN = VersionSpan(start=0, end=1, version=PolicyVersion(incarnation=1, version=2), weights_digest="d1")
_MESSAGES = [
    {"role": "user", "content": "When was Ada born?"},
    {"role": "assistant", "content": "I look.", "turn": 0, "seconds": 0.5, "replica": "rollout-1",
     "versions": ["1.2"], "tool_calls": [CALL]},
    {"role": "tool", "name": "find", "content": "1815", "outcome": "returned", "seconds": 0.25, "cut": 0},
]  # fmt: skip
_LAST = {"role": "assistant", "content": "In 1815.", "turn": 1, "seconds": 1.5, "replica": "rollout-1"}


def episode(member: int, *, hangs: bool) -> Rollout:
    """Two turns with a call between them, or one whose call hangs until its time is over."""
    said = ["I look."] if hangs else ["I look.", "In 1815."]
    context, turns = _ids("user:When was Ada born?"), []
    for text in said:
        ids = _ids(text)
        turns.append(
            Turn(
                context_ids=context, completion_ids=ids, logprobs=-0.1 * np.arange(1, len(ids) + 1, dtype=np.float32),
                finish_reason=FinishReason.STOP, spans=(replace(_SPAN, end=len(ids)),),
            )
        )  # fmt: skip
        context = np.concatenate([context, ids, _ids("tool:1815")])
    played = played_turns(turns)
    messages = _MESSAGES[:2] if hangs else [*_MESSAGES, {**_LAST, "versions": ["1.2"]}]
    return Rollout(
        rollout_id=builders.rollout(0, member).rollout_id,
        token_ids=played.token_ids,
        logprobs=played.logprobs,
        finish_reason=FinishReason.TIME if hangs else FinishReason.STOP,
        spans=played.spans,
        text=said[-1],
        loss_mask=played.loss_mask,
        episode=Episode(
            segments=played.segments,
            turn_ends=played.turn_ends,
            messages_json=json.dumps(messages),
            reward=None if hangs else builders.EnvironmentReward(value=1.0, components={"found": 1.0}),
            error="step of the environment took longer than environment.tool_s = 30 s" if hangs else "",
        ),
    )


def write_played_step(folder: Path, step: int) -> Path:
    """One group: an episode to its end, and one whose tool hangs."""
    prompt = replace(builders.played_group().prompt, text="When was Ada born?")
    rollouts = (episode(0, hangs=False), episode(1, hangs=True))
    group = replace(builders.played_group(), prompt=prompt, rollouts=rollouts)
    scores = tuple(
        Score(rollout_id=one.rollout_id, value=None if one.must_abstain else 1.0, components={"environment": 1.0})
        for one in rollouts
    )
    scored = ScoredGroup(group=group, scores=scores)
    data = encode(Message(header=builders.header(0), body=scored))
    name = builders.header(0).group_id
    ready = ReadyGroup(
        group_index=0, group_id=name, min_version=2, sources=frozenset(), scored=scored, data=data
    )  # fmt: skip
    outcome = StepOutcome(metrics={}, advantages=(0.5,), token_advantages=())
    return write_rollouts(folder / "rollouts", step, [ready], outcome)
