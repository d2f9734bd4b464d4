"""Contract messages to samples, and results to scores. Pure."""

from collections.abc import Sequence

from headrace.services.reward.rubric.rubric import Result
from headrace.services.reward.scorer import Sample
from headrace.wire.contracts import PromptGroup, Rollout, RolloutGroup, Score

_REASON_LENGTH = 500


def samples_of(group: RolloutGroup, name: str) -> list[Sample]:
    """The rollouts of a group that may be scored, as samples; `name` identifies the group."""
    return [_sample(group.prompt, rollout, name) for rollout in group.rollouts if not rollout.must_abstain]


def _sample(prompt: PromptGroup, rollout: Rollout, name: str) -> Sample:
    segments, episode = rollout.segments(prompt), rollout.episode
    return Sample(
        prompt=prompt.text,
        completion=rollout.text,
        columns=prompt.columns,
        group=name,
        name=rollout.rollout_id,
        prompt_ids=segments[0].context_ids if len(segments) == 1 else None,
        completion_ids=rollout.token_ids,
        loss_mask=rollout.loss_mask,
        logprobs=rollout.logprobs,
        temperature=prompt.sampling.temperature,
        truncated=rollout.finish_reason.is_limit,
        episode=episode,
        task=prompt.task,
    )


def scores_of(group: RolloutGroup, results: Sequence[Result]) -> tuple[Score, ...]:
    """One score a rollout, in order; `results` are those of `samples_of`. The others abstain."""
    each = iter(results)
    return tuple(_ended(one) if one.must_abstain else _score(one, next(each)) for one in group.rollouts)


def _score(rollout: Rollout, result: Result) -> Score:
    return Score(
        rollout_id=rollout.rollout_id,
        value=result.value,
        components=result.components,
        reason=result.reason[:_REASON_LENGTH],
        seconds=result.seconds,
        token_scores=result.token_scores,
        answer_start=result.answer_start,
        weights=result.weights,
    )


def _ended(rollout: Rollout) -> Score:
    """The abstention of an episode that ended by an error or by time, or before its first turn did."""
    error = rollout.episode.error if rollout.episode is not None else ""
    reason = f"the episode ended: {rollout.finish_reason}{error and f': {error}'}"
    return Score(rollout_id=rollout.rollout_id, value=None, reason=reason[:_REASON_LENGTH])
