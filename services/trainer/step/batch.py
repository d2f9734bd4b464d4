"""Converts scored groups, as received over the wire, to the arrays of one optimizer step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from headrace.services.trainer.algorithms.logprobs import KeptIds
from headrace.services.trainer.durability.staleness import (
    UNBOUNDED,
    lags,
    length_metrics,
    oldest_trained,
    scored_rollouts,
    statistics,
    trained_lags,
)
from headrace.wire.contracts import IdLists, Rollout, Score, ScoredGroup, Segment
from headrace.wire.telemetry.reward_components import Components, RewardRow, batch_numbers, components_of, token_total


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRollout:
    """One rollout to train on. Axes: completion = its tokens, tokens = those of them that the policy sampled.

    An episode of several segments is several rows of a forward pass, and one rollout everywhere else.
    """

    prompt_ids: NDArray[np.int32]
    """Context of the first segment."""
    completion_ids: NDArray[np.int32]
    behaviour_logprobs: NDArray[np.float32]
    """[completion]"""
    current: NDArray[np.bool_]
    """[completion] Sampled by the version now in training: there trainer and engine must agree."""
    temperature: float
    loss_mask: NDArray[np.bool_] | None = None
    """[completion] Sampled by the policy; the others (tool output) are context. None = all."""
    lag: NDArray[np.int32] | None = None
    """[completion] Versions between sampling and training."""
    truncated: bool = False
    """Cut at the longest length."""
    token_scores: NDArray[np.float32] | None = None
    """[completion] Rewards of single tokens, beside the rollout's own; NaN = the token has none. None = none has."""
    kept: IdLists | None = None
    """The ids that each token was drawn from; None = the whole vocabulary."""
    further_segments: tuple[Segment, ...] = ()
    """All but the first, which begins at 0 after `prompt_ids`."""

    @property
    def segments(self) -> list[tuple[NDArray[np.int32], int, int]]:
        """Context, start and end of each segment: a row of the forward pass each."""
        starts = [0, *(segment.start for segment in self.further_segments)]
        contexts = [self.prompt_ids, *(segment.context_ids for segment in self.further_segments)]
        return list(zip(contexts, starts, [*starts[1:], len(self.completion_ids)], strict=True))

    @property
    def row_lengths(self) -> list[int]:
        """[segments] Tokens of each row: the last token is left out, as it predicts nothing."""
        return [len(context) + end - start - 1 for context, start, end in self.segments]

    @property
    def row_tokens(self) -> int:
        """Tokens of all its rows."""
        return sum(self.row_lengths)

    @property
    def work(self) -> list[tuple[int, int]]:
        """[segments] Tokens of each row, and how many of them are scored."""
        borders = np.searchsorted(self.trained, [0, *(end for _, _, end in self.segments)])
        return list(zip(self.row_lengths, np.diff(borders).tolist(), strict=True))

    @property
    def trained(self) -> NDArray[np.int64]:
        """[tokens] Places in the completion."""
        if self.loss_mask is None:
            return np.arange(len(self.completion_ids), dtype=np.int64)
        return np.flatnonzero(self.loss_mask).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """All trained rollouts of a step, group after group; groups may differ in size: what abstained is not here."""

    rollouts: tuple[TrainRollout, ...]
    rewards: tuple[Float[Tensor, " rollouts"], ...]
    """float64, one tensor a group."""
    max_tokens: int
    """Longest completion that the sampling allowed."""
    baselines: Float[Tensor, " groups"] | None = None
    """Reward of each group's greedy rollout, where there is one; with the sum of its token scores."""
    baseline_lengths: Int[Tensor, " groups"] | None = None
    """Sampled tokens of that rollout."""
    columns: tuple[Mapping[str, Any], ...] = ()
    """[groups] The other columns of each prompt's row in the data."""
    components: tuple[Components, ...] = ()
    """[rollouts] What each reward was made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Rows of one forward pass, padded at their ends, and the trained tokens of all rollouts in one run."""

    token_ids: Int[Tensor, "rows seq"]
    rows: Int[Tensor, " tokens"]
    places: Int[Tensor, " tokens"]
    """Position of the hidden state that predicts the token."""
    targets: Int[Tensor, " tokens"]
    behaviour_logprobs: Float[Tensor, " tokens"]
    temperature: Float[Tensor, " tokens"]
    current: Bool[Tensor, " tokens"]
    lengths: Int[Tensor, " rollouts"]
    kept: KeptIds | None
    """None if no rollout has any."""


def assemble(groups: Sequence[ScoredGroup], *, version: int) -> StepBatch:
    """The step's batch from its groups, in their order; `version` is the version of the weights before the step."""
    # Greedy baselines and abstentions are not among them: the step ignores them.
    members = [scored_rollouts(scored) for scored in groups]
    rollouts = tuple(
        _train_rollout(scored, rollout, score, version)
        for scored, own in zip(groups, members, strict=True)
        for rollout, score in own
    )
    rewards = tuple(torch.tensor([score.value for _, score in own], dtype=torch.float64) for own in members)
    greedy = [found for scored in groups if (found := _baseline(scored)) is not None]
    has_baselines = len(greedy) == len(groups)
    max_tokens = max(scored.group.prompt.sampling.max_tokens for scored in groups)
    return StepBatch(
        rollouts=rollouts,
        rewards=rewards,
        max_tokens=max_tokens,
        baselines=torch.tensor([value for value, _ in greedy], dtype=torch.float64) if has_baselines else None,
        baseline_lengths=torch.tensor([length for _, length in greedy]) if has_baselines else None,
        columns=tuple(scored.group.prompt.columns for scored in groups),
        components=tuple(components_of(score) for own in members for _, score in own),
    )


def _baseline(scored: ScoredGroup) -> tuple[float, int] | None:
    """Reward and tokens of the greedy rollout: the group's last."""
    value = scored.scores[-1].value
    if scored.group.prompt.trained == len(scored.scores) or value is None:
        return None
    return value + token_total(scored.scores[-1]), scored.group.rollouts[-1].trained_tokens


def step_scores(rollouts: Sequence[TrainRollout]) -> list[NDArray[np.float32]]:
    """[tokens] each: what the trained tokens of rollouts earned; NaN = the token has no score."""
    return [
        np.full(len(rollout.trained), np.nan, np.float32)
        if rollout.token_scores is None
        else rollout.token_scores[rollout.trained]
        for rollout in rollouts
    ]


def _train_rollout(scored: ScoredGroup, rollout: Rollout, score: Score, version: int) -> TrainRollout:
    prompt = scored.group.prompt
    first, *further = rollout.segments(prompt)
    lag = lags(rollout, version)
    return TrainRollout(
        prompt_ids=first.context_ids,
        completion_ids=rollout.token_ids,
        behaviour_logprobs=rollout.logprobs,
        current=lag == 0,
        temperature=prompt.sampling.temperature,
        loss_mask=rollout.loss_mask,
        lag=lag,
        truncated=rollout.finish_reason.is_limit,
        token_scores=score.token_scores,
        kept=rollout.kept,
        further_segments=tuple(further),
    )


def micro_batch(rollouts: Sequence[TrainRollout], device: torch.device) -> MicroBatch:
    """The tensors of one forward pass over `rollouts`."""
    row_lengths = [length for rollout in rollouts for length in rollout.row_lengths]
    token_ids = np.zeros((len(row_lengths), max(row_lengths)), dtype=np.int64)
    segments = [(rollout, *segment) for rollout in rollouts for segment in rollout.segments]
    for row, (rollout, context, start, end) in enumerate(segments):
        token_ids[row, : row_lengths[row]] = np.concatenate([context, rollout.completion_ids[start : end - 1]])
    trained = [rollout.trained for rollout in rollouts]
    lengths = np.array([len(places) for places in trained], dtype=np.int64)
    scored = [of_row for rollout in rollouts for _, of_row in rollout.work]
    # A segment's token stands in its row as far after the segment's context as it stands after the segment's start.
    shifts = np.repeat([len(context) - 1 - start for _, context, start, _ in segments], scored)
    pairs = list(zip(rollouts, trained, strict=True))
    temperatures = np.array([rollout.temperature for rollout in rollouts], dtype=np.float32)

    def on_device(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        token_ids=on_device(token_ids),
        rows=on_device(np.repeat(np.arange(len(segments)), scored)),
        places=on_device(np.concatenate(trained) + shifts),
        targets=on_device(np.concatenate([r.completion_ids[places] for r, places in pairs]).astype(np.int64)),
        behaviour_logprobs=on_device(np.concatenate([r.behaviour_logprobs[places] for r, places in pairs])),
        temperature=on_device(np.repeat(temperatures, lengths)),
        current=on_device(np.concatenate([r.current[places] for r, places in pairs])),
        lengths=on_device(lengths),
        kept=_kept_ids(pairs, on_device) if any(rollout.kept is not None for rollout in rollouts) else None,
    )


def _kept_ids(
    pairs: Sequence[tuple[TrainRollout, NDArray[np.int64]]], on_device: Callable[[NDArray[np.generic]], Tensor]
) -> KeptIds:
    """What the trained tokens were drawn from. Tokens of a context have no ids: those of a rollout stay whole."""
    counts = [
        np.zeros(len(places), np.int64) if rollout.kept is None else rollout.kept.counts[places].astype(np.int64)
        for rollout, places in pairs
    ]
    ids = [rollout.kept.ids.astype(np.int64) for rollout, _ in pairs if rollout.kept is not None]
    flat = np.concatenate(counts)
    return KeptIds(on_device(flat), on_device(np.concatenate(ids)), int(flat.max(initial=0)))


def kept_metrics(batch: StepBatch) -> dict[str, float]:
    """How many ids the trained tokens were drawn from; empty where nothing was cut off."""
    parts = [rollout.kept.counts[rollout.trained] for rollout in batch.rollouts if rollout.kept is not None]
    counts = np.concatenate([np.empty(0, np.int32), *parts])
    if not len(counts):
        return {}
    return {
        "kept_ids_mean": float(counts.mean()),
        "kept_ids_single_share": float((counts == 1).mean()),
        "kept_ids_token_bytes": counts.itemsize * (1 + float(counts.mean())),
    }


def batch_metrics(
    groups: Sequence[ScoredGroup],
    *,
    version: int,
    most_lag: int = UNBOUNDED,
    shaping: Mapping[str, Sequence[float]] | None = None,
    source_column: str = "",
) -> dict[str, float]:
    """What is known of a batch besides its update; greedy baselines and what abstained are left out.

    `version`: the weights before the step; tokens of a lag above `most_lag` are not trained. Lengths count
    sampled tokens. `shaping`: as in StepOutcome. `source_column`: the column of a row that names its data source.
    """
    members = [scored_rollouts(scored) for scored in groups]
    trained = [member for own in members for member in own]
    rollouts = [rollout for rollout, _ in trained]
    lengths = [rollout.trained_tokens for rollout in rollouts]
    contexts = [
        len(segment.context_ids)
        for scored, own in zip(groups, members, strict=True)
        for rollout, _ in own
        for segment in rollout.segments(scored.group.prompt)
    ]
    lag = [most for one in groups if (most := oldest_trained(one, version, most_lag)) is not None] or [0]
    truncated = sum(rollout.finish_reason.is_limit for rollout in rollouts)
    return {
        "groups": len(groups),
        "rollouts": len(rollouts),
        "abstained": sum(scored.group.prompt.trained for scored in groups) - len(rollouts),
        **batch_numbers(reward_rows(groups, shaping or {}, source_column)),
        "prompt_tokens": sum(contexts),
        "completion_tokens": sum(lengths),
        **statistics("completion_length", lengths),
        "truncated_share": truncated / len(rollouts),
        "reward_no_answer_share": sum(_has_no_answer(score) for _, score in trained) / len(rollouts),
        "staleness_mean": float(np.mean(lag)),
        "staleness_max": max(lag),
        **statistics("token_lag", trained_lags(groups, version=version, bound=most_lag)),
        **length_metrics(groups, version=version, bound=most_lag),
    }


def reward_rows(
    groups: Sequence[ScoredGroup], shaping: Mapping[str, Sequence[float]], source_column: str = ""
) -> list[RewardRow]:
    """The rewards of all rollouts of a batch, in its order; of greedy baselines none."""
    added = {name: iter(values) for name, values in shaping.items()}
    rows = []
    for scored in groups:
        source = scored.group.prompt.columns.get(source_column)
        for score in scored.scores[: scored.group.prompt.trained]:
            own = {} if score.value is None else {name: next(values) for name, values in added.items()}
            is_scored = score.value is not None
            rows.append(RewardRow(components_of(score, own), is_scored, source if isinstance(source, str) else ""))
    return rows


def _has_no_answer(score: Score) -> bool:
    """Whether a scorer that reads answers found none where it looks for them."""
    return score.answer_start is None or any(name.endswith(".no_answer") for name in score.components)
