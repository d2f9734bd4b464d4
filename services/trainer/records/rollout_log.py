"""The rows of `RUN/rollouts/step-000001.parquet`: what a step was trained on, for people."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UNBOUNDED, fresh
from headrace.services.trainer.step.batch import token_total
from headrace.wire.contracts import decode_header
from headrace.wire.contracts.messages import Rollout, TokenMask
from headrace.wire.contracts.scores import Score
from headrace.wire.rundir import rollouts
from headrace.wire.telemetry.logs import trace_id


def write_rollouts(
    folder: Path,
    step: int,
    batch: Sequence[ReadyGroup],
    advantages: Sequence[float],
    token_advantages: Sequence[NDArray[np.float32]] = (),
    *,
    most_lag: int = UNBOUNDED,
) -> Path:
    """Writes the step's rollouts; `advantages` has one entry for each trained rollout, in the batch's order.

    Greedy baselines and abstentions have none; they are marked by `trained_tokens = 0`. Tokens of a lag above
    `most_lag` were not trained. An abstention has no reward. `token_score` is the sum of a rollout's token scores,
    `reason` the scorers' words, `scorers` their versions. `logprobs` are the engine's, null for tokens that were not
    sampled. `token_advantages` are present if they differ within a rollout, null for tokens that were not trained.
    Raises OSError.
    """
    return rollouts.write(folder, step, _rows(step, batch, iter(advantages), iter(token_advantages), most_lag))


def _rows(
    step: int,
    batch: Sequence[ReadyGroup],
    advantages: Iterator[float],
    token_advantages: Iterator[NDArray[np.float32]],
    most_lag: int,
) -> Iterator[dict[str, object]]:
    for group in batch:
        scored = group.scored
        of_group = {
            "step": step,
            "group_index": group.group_index,
            "group_id": group.group_id,
            "sample_id": scored.group.prompt.sample_id,
            "prompt": scored.group.prompt.text,
            "scorers": json.dumps(scored.versions, sort_keys=True),
            "replica_id": scored.group.replica_id,
            "trace_id": trace_id(decode_header(group.data).traceparent),
        }
        pairs = zip(scored.group.rollouts, scored.scores, strict=True)
        for number, (rollout, score) in enumerate(pairs):
            is_trained = number < scored.group.prompt.trained and score.value is not None
            of_tokens = next(token_advantages, None) if is_trained else None
            trained = rollout.trained_mask & fresh(rollout, step - 1, most_lag)
            yield {
                **of_group,
                **_row(rollout, score, of_tokens, trained),
                "rollout_index": number,
                "advantage": next(advantages) if is_trained else None,
                "trained_tokens": int(trained.sum()) if is_trained else 0,
            }


def _row(
    rollout: Rollout, score: Score, token_advantages: NDArray[np.float32] | None, trained: TokenMask
) -> dict[str, object]:
    shown = token_advantages
    if shown is not None and _is_flat(shown) and bool((trained == rollout.trained_mask).all()):
        shown = None
    return {
        **rollouts.row_of(rollout, score),
        "token_score": None if score.token_scores is None else token_total(score),
        "token_advantages": None if shown is None else rollouts.where(trained, shown[trained[rollout.trained_mask]]),
    }


def _is_flat(values: NDArray[np.float32]) -> bool:
    return not len(values) or bool(np.all(values == values[0]))
