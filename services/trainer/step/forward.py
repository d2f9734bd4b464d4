"""Forward passes over rollouts: of one micro-batch, and of a whole batch without gradients."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headrace.services.trainer.algorithms.batching import Share, shared_micro_batches
from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.step.batch import MicroBatch, TrainRollout, micro_batch


def score_tokens(policy: Callable[..., object], micro: MicroBatch, *, chunk: int) -> TokenScores:
    """Logprobs and entropy of the micro-batch's trained tokens; `policy` is a Policy or the backend that holds it."""
    cut = () if micro.kept is None else (None, None, micro.kept)
    scores = policy(micro.token_ids, micro.rows, micro.places, micro.targets, micro.temperature, chunk, *cut)
    assert isinstance(scores, TokenScores)
    return scores


def shares_of(rollouts: Sequence[TrainRollout], backend: Backend, *, token_budget: int) -> list[Share]:
    """Micro-batches of the rollouts for this rank; every rank has equally many."""
    return shared_micro_batches(
        [max(rollout.row_lengths) for rollout in rollouts],
        ranks=backend.ranks.data_size,
        token_budget=token_budget * backend.ranks.context_size,
        overhead_tokens=backend.overhead_tokens,
        parts=[len(rollout.row_lengths) for rollout in rollouts],
    )[backend.ranks.data_rank]


def starts_of(rollouts: Sequence[TrainRollout]) -> list[int]:
    """Where each rollout's trained tokens begin in the flat arrays of a batch; one more for their end."""
    starts = [0]
    for rollout in rollouts:
        starts.append(starts[-1] + len(rollout.trained))
    return starts


def sweep(
    forward: Callable[[MicroBatch], Float[Tensor, "..."]],
    rollouts: Sequence[TrainRollout],
    backend: Backend,
    *,
    token_budget: int,
) -> Float[Tensor, "..."]:
    """Results of `forward` for the trained tokens of all rollouts, [tokens, ...] float64 on the CPU, on every rank.

    The rollouts are shared between the ranks; every rank runs equally many passes.
    """
    starts = starts_of(rollouts)
    whole: Tensor | None = None
    with torch.no_grad():
        for share in shares_of(rollouts, backend, token_budget=token_budget):
            micro = micro_batch([rollouts[row] for row in share.rows], backend.device)
            found = forward(micro).detach().double().cpu()
            if whole is None:
                whole = torch.zeros(starts[-1], *found.shape[1:], dtype=torch.float64)
            if share.counts:
                for row, part in zip(share.rows, torch.split(found, micro.lengths.tolist()), strict=True):
                    whole[starts[row] : starts[row + 1]] = part
    assert whole is not None
    return backend.ranks.sum_data(whole)
