"""Contract messages to samples, and results to scores. Pure."""

from collections.abc import Sequence

from headrace.services.reward.rubric.rubric import Result
from headrace.services.reward.scorers import Sample
from headrace.wire.contracts import FinishReason, RolloutGroup, Score

_REASON_LENGTH = 500


def samples_of(group: RolloutGroup, name: str) -> list[Sample]:
    """All rollouts of a group as samples; `name` identifies the group."""
    prompt = group.prompt
    return [
        Sample(
            prompt=prompt.text,
            completion=rollout.text,
            columns=prompt.columns,
            group=name,
            name=rollout.rollout_id,
            prompt_ids=prompt.token_ids,
            completion_ids=rollout.token_ids,
            loss_mask=rollout.loss_mask,
            truncated=rollout.finish_reason is FinishReason.LENGTH,
        )
        for rollout in group.rollouts
    ]


def scores_of(group: RolloutGroup, results: Sequence[Result]) -> tuple[Score, ...]:
    """One score a rollout, in order."""
    return tuple(
        Score(
            rollout_id=rollout.rollout_id,
            value=result.value,
            components=result.components,
            reason=result.reason[:_REASON_LENGTH],
            seconds=result.seconds,
            token_scores=result.token_scores,
        )
        for rollout, result in zip(group.rollouts, results, strict=True)
    )
