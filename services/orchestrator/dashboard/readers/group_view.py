"""One group with all its rollouts, as the dashboard shows them side by side. Pure."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Json, ValidationError

from headrace.services.orchestrator.dashboard.readers.rollout_index import number_or_none
from headrace.wire.api.rollouts import GroupView, RolloutView, TokenView, VersionSpanView
from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.episode_column import Decode, episode_view


class RolloutRecord(BaseModel):
    """One row of `RUN/rollouts/step-*.parquet`; older files lack some columns."""

    model_config = ConfigDict(frozen=True)

    group_id: str | None = None
    group_index: int | None = None
    rollout_index: int | None = None
    sample_id: str | None = None
    prompt: str | None = None
    columns: str | None = None
    completion: str | None = None
    answer_start: int | None = None
    reward: float | None = None
    components: Json[dict[str, float | None]] | None = None
    """Scorer -> score."""
    token_score: float | None = None
    reason: str | None = None
    scorers: Json[dict[str, str]] | None = None
    """Scorer -> its identity."""
    advantage: float | None = None
    min_version: int | None = None
    max_version: int | None = None
    finish_reason: str | None = None
    tokens: int | None = None
    trained_tokens: int | None = None
    replica_id: str | None = None
    spans: Json[list[tuple[int, int, str, str]]] | None = None
    """(start, end, version, digest of the weights)."""
    trace_id: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    token_advantages: list[float | None] | None = None
    episode: str | None = None
    """JSON: see `headrace.wire.rundir.episode_column`."""


COLUMNS = rollouts.columns(*RolloutRecord.model_fields)


def group_view(step: int, rows: Sequence[Mapping[str, object]], decode: Decode) -> GroupView:
    """The group, from at least one of the step's `rows`. `decode` returns the tokens' texts, or None.

    Raises DataError if a column of the file has another type.
    """
    try:
        records = [RolloutRecord.model_validate(row) for row in rows]
    except ValidationError as error:
        raise DataError(f"the rollouts of step {step} have columns of other types: {error}") from error
    first = records[0]
    columns = rollouts.columns_of(first.columns)
    return GroupView(
        step=step,
        group_index=first.group_index,
        group_id=first.group_id or "",
        sample_id=first.sample_id or "",
        prompt=first.prompt or "",
        answer=rollouts.answer_text(columns),
        columns=columns,
        trace_id=first.trace_id or "",
        rollouts=tuple(_rollout(record, decode) for record in records),
    )


def _rollout(row: RolloutRecord, decode: Decode) -> RolloutView:
    return RolloutView(
        rollout_index=row.rollout_index,
        completion=row.completion or "",
        answer_start=row.answer_start,
        reward=number_or_none(row.reward),
        advantage=number_or_none(row.advantage),
        token_score=number_or_none(row.token_score),
        components={name: number_or_none(score) for name, score in (row.components or {}).items()},
        reason=row.reason or "",
        scorers=row.scorers or {},
        finish_reason=row.finish_reason or "",
        num_tokens=row.tokens,
        trained_tokens=row.trained_tokens,
        min_version=row.min_version,
        max_version=row.max_version,
        replica_id=row.replica_id or "",
        spans=tuple(
            VersionSpanView(start=start, end=end, version=version, weights_digest=digest)
            for start, end, version, digest in row.spans or ()
        ),
        tokens=_tokens(row, decode),
        episode=episode_view(row.episode, [one is not None for one in row.logprobs or ()], decode),
    )


def _tokens(row: RolloutRecord, decode: Decode) -> tuple[TokenView, ...]:
    """Token entries; empty for files without token ids. A logprob of None means that the token was not sampled."""
    ids = row.token_ids or []
    nothing: list[str | None] = [None] * len(ids)
    texts = decode(ids) or nothing
    logprobs = row.logprobs or [None] * len(ids)
    # A token that was read has no advantage; older files do not say which those are.
    own = [row.logprobs is None or one is not None for one in logprobs]
    advantages = row.token_advantages or [row.advantage if is_own else None for is_own in own]
    return tuple(
        TokenView(id=token, text=text, logprob=number_or_none(logprob), advantage=number_or_none(advantage))
        for token, text, logprob, advantage in zip(ids, texts, logprobs, advantages, strict=False)
    )
