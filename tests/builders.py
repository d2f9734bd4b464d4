"""Small valid messages for tests; every argument has a default."""

from dataclasses import replace

import numpy as np

from headrace.wire.contracts import (
    FinishReason,
    Header,
    Message,
    PolicyVersion,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
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


def scored(index: int = 0, *, size: int = 2, version: int = 0) -> ScoredGroup:
    body = group(index, size=size, version=version)
    scores = tuple(Score(rollout_id=r.rollout_id, value=float(i)) for i, r in enumerate(body.rollouts))
    return ScoredGroup(group=body, scores=scores)


def prompt_message(index: int = 0, **options: object) -> Message:
    return Message(header=header(index), body=prompt(**options))  # type: ignore[arg-type]
