"""Small valid messages for tests; every argument has a default."""

import math
from dataclasses import replace

import numpy as np

from headrace.wire.contracts import (
    ColumnFile,
    EnvironmentReward,
    EnvironmentTask,
    Episode,
    FinishReason,
    Header,
    IdLists,
    Message,
    PolicyVersion,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    Segment,
    VersionSpan,
    group_id,
    rollout_id,
)


def header(index: int = 0, *, run_id: str = "test", attempt: int = 0, purpose: Purpose = Purpose.TRAIN) -> Header:
    return Header(run_id=run_id, purpose=purpose, group_index=index, group_id=group_id(run_id, index), attempt=attempt)


def prompt(*, size: int = 2, min_version: int = 0, greedy_last: int = 0, **columns: object) -> PromptGroup:
    return PromptGroup(
        sample_id="s0",
        token_ids=np.array([5, 6, 7], np.int32),
        group_size=size,
        sampling=Sampling(max_tokens=8, stop_token_ids=(1,), greedy_last=greedy_last),
        min_version=min_version,
        columns=dict(columns),
        text="1+2=",
    )


def rollout(index: int = 0, member: int = 0, *, version: int = 0, incarnation: int = 1, text: str = "3") -> Rollout:
    return Rollout(
        rollout_id=rollout_id(group_id("test", index), member),
        token_ids=np.array([3, 1], np.int32),
        logprobs=np.array([-0.5, -0.25], np.float32),
        finish_reason=FinishReason.STOP,
        spans=(
            VersionSpan(
                start=0, end=2, version=PolicyVersion(incarnation=incarnation, version=version), weights_digest="d"
            ),
        ),
        text=text,
    )


def group(index: int = 0, *, size: int = 2, version: int = 0, **columns: object) -> RolloutGroup:
    return RolloutGroup(
        prompt=prompt(size=size, **columns),
        rollouts=tuple(rollout(index, member, version=version) for member in range(size)),
        replica_id="rollout-0",
    )


def masked_group(index: int = 0) -> RolloutGroup:
    """A whole rollout, and one whose last token a tool wrote."""
    whole, other = rollout(index, 0), rollout(index, 1)
    masked = replace(
        other,
        token_ids=np.array([3, 1, 9], np.int32),
        logprobs=np.array([-0.5, -0.25, 0], np.float32),
        spans=(replace(other.spans[0], end=3),),
        loss_mask=np.array([True, True, False]),
    )
    return RolloutGroup(prompt=prompt(), rollouts=(whole, masked))


def cut_rollouts(index: int = 0) -> tuple[Rollout, Rollout]:
    """A whole rollout, and one whose second token a tool wrote, with the ids that their tokens were drawn from."""
    whole, other = masked_group(index).rollouts
    mask, tokens = np.array([True, False, True]), np.array([3, 9, 1], np.int32)
    return (
        replace(whole, kept=IdLists.of([np.array([3, 4], np.int32), np.array([1], np.int32)])),
        replace(
            other,
            token_ids=tokens,
            logprobs=np.array([-0.5, 0, -0.25], np.float32),
            loss_mask=mask,
            kept=IdLists(counts=np.array([1, 0, 2], np.int32), ids=np.array([3, 1, 8], np.int32)),
        ),
    )


def cut_group(index: int = 0) -> RolloutGroup:
    """Drawn from a cut-off distribution; the file with the ids is named, not written."""
    asked = replace(prompt(), sampling=Sampling(top_p=0.9, min_p=0.125, max_tokens=8, keeps_ids=True))
    file = ColumnFile(name=f"{index:09d}-0-{'a' * 16}.ids", bytes=40, sha256="b" * 64)
    rollouts = tuple(replace(one, kept=None) for one in cut_rollouts(index))
    return RolloutGroup(prompt=asked, rollouts=rollouts, kept=file)


def scored(index: int = 0, *, size: int = 2, version: int = 0) -> ScoredGroup:
    body = group(index, size=size, version=version)
    scores = tuple(Score(rollout_id=r.rollout_id, value=float(i)) for i, r in enumerate(body.rollouts))
    return ScoredGroup(group=body, scores=scores)


def prompt_message(index: int = 0, **options: object) -> Message:
    return Message(header=header(index), body=prompt(**options))  # type: ignore[arg-type]


def played_rollout(index: int = 0, member: int = 0, *, version: int = 0) -> Rollout:
    """An episode of three turns: two in one segment, a tool's token between them, and one behind a shorter context."""
    at = PolicyVersion(incarnation=1, version=version)
    return Rollout(
        rollout_id=rollout_id(group_id("test", index), member),
        token_ids=np.array([3, 9, 4, 5, 1], np.int32),
        logprobs=np.array([-0.5, 0, -0.25, -0.75, -1], np.float32),
        finish_reason=FinishReason.STOP,
        spans=(VersionSpan(start=0, end=5, version=at, weights_digest="d"),),
        text="5",
        loss_mask=np.array([True, False, True, True, True]),
        episode=Episode(
            segments=(
                Segment(start=0, context_ids=np.array([5, 6], np.int32)),
                Segment(start=3, context_ids=np.array([5, 7, 8], np.int32)),
            ),
            turn_ends=(1, 3, 5),
            turn_rewards=(0.5, math.nan, 1.0),
            reward=EnvironmentReward(value=0.75, components={"found": 1.0}, metrics={"calls": 2.0}),
            messages_json='[{"role": "user", "content": "1+2="}]',
        ),
    )


def lost_rollout(index: int = 0, member: int = 1) -> Rollout:
    """An episode whose environment failed before its first turn."""
    return Rollout(
        rollout_id=rollout_id(group_id("test", index), member),
        token_ids=np.empty(0, np.int32),
        logprobs=np.empty(0, np.float32),
        finish_reason=FinishReason.ENVIRONMENT_ERROR,
        spans=(),
        episode=Episode(error="ValueError: no such file (game.py:12)"),
    )


def played_group(index: int = 0) -> RolloutGroup:
    """An episode that was played to its end, and one that failed."""
    task = EnvironmentTask(name="calc", digest="e1", task_json='{"a": 1, "b": 2}')
    played = replace(prompt(), token_ids=np.empty(0, np.int32), environment=task)
    return RolloutGroup(prompt=played, rollouts=(played_rollout(index), lost_rollout(index)))
