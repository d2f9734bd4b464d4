"""The rows of `RUN/rollouts/step-000001.parquet`: what a step was trained on, for people."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UNBOUNDED, fresh
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import decode_header
from headrace.wire.contracts.messages import Rollout, TokenMask
from headrace.wire.rundir import rollouts


def write_rollouts(
    folder: Path, step: int, batch: Sequence[ReadyGroup], outcome: StepOutcome, *, most_lag: int = UNBOUNDED
) -> Path:
    """Writes the step's rollouts, with the advantages and the shaping of its outcome.

    Greedy baselines and abstentions have none; they are marked by `trained_tokens = 0`. Tokens of a lag above
    `most_lag` were not trained. An abstention has no reward. `token_score` is the sum of a rollout's token scores,
    `reason` the scorers' words, `scorers` their versions. `logprobs` are the engine's, null for tokens that were not
    sampled. `token_advantages` are present if they differ within a rollout, null for tokens that were not trained.
    Raises OSError.
    """
    return rollouts.write(folder, step, _rows(step, batch, outcome, most_lag))


def _rows(step: int, batch: Sequence[ReadyGroup], outcome: StepOutcome, most_lag: int) -> Iterator[dict[str, object]]:
    advantages, token_advantages = iter(outcome.advantages), iter(outcome.token_advantages)
    kept = iter(outcome.kept_counts)
    added = {name: iter(values) for name, values in outcome.shaping.items()}
    for group in batch:
        scored = group.scored
        of_group = rollouts.of_group(step, decode_header(group.data), scored)
        pairs = zip(scored.group.rollouts, scored.scores, strict=True)
        for number, (rollout, score) in enumerate(pairs):
            is_trained = number < scored.group.prompt.trained and score.value is not None
            of_tokens = next(token_advantages, None) if is_trained else None
            shaping = {name: next(values) for name, values in added.items()} if is_trained else {}
            trained = rollout.trained_mask & fresh(rollout, step - 1, most_lag)
            yield {
                **of_group,
                **rollouts.row_of(rollout, score, shaping),
                "token_advantages": _shown(rollout, of_tokens, trained),
                "kept_ids": next(kept, None) if is_trained else None,
                "rollout_index": number,
                "advantage": next(advantages) if is_trained else None,
                "trained_tokens": int(trained.sum()) if is_trained else 0,
            }


def _shown(rollout: Rollout, token_advantages: NDArray[np.float32] | None, trained: TokenMask) -> object:
    """The advantages of the trained tokens, null for the others; None if they say no more than their mean."""
    if token_advantages is None:
        return None
    if _is_flat(token_advantages) and bool((trained == rollout.trained_mask).all()):
        return None
    return rollouts.where(trained, token_advantages[trained[rollout.trained_mask]])


def _is_flat(values: NDArray[np.float32]) -> bool:
    return not len(values) or bool(np.all(values == values[0]))
