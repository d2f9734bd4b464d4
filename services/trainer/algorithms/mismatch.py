"""How far the engine's logprobs are from the trainer's: sums that add up over micro-batches and ranks, and metrics.

rho = old / behaviour. Axes: tokens = trained tokens of a micro-batch, rollouts = their owners. All float64.
"""

import math
from collections.abc import Mapping

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.losses.policy import LOG_RATIO_LIMIT, log_ratios
from headrace.services.trainer.algorithms.segments import segment_sum

LARGEST = "gap_max"
"""The one entry that is reduced by the maximum; all others are sums."""


@jaxtyped(typechecker=beartype)
def mismatch_sums(
    old: Float[Tensor, " tokens"],
    behaviour: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    counted: Bool[Tensor, " tokens"] | None = None,
) -> dict[str, Tensor]:
    """The sums of one micro-batch over the tokens `counted` (None: all), as scalars by name.

    `counted` selects one group of tokens, such as one version lag.
    """
    old, behaviour = old.detach().double(), behaviour.detach().double()
    if counted is not None:
        lengths = segment_sum(counted.double(), lengths).long()
        old, behaviour = old[counted], behaviour[counted]
    log_rho = log_ratios(old, behaviour)
    rho = log_rho.exp()
    of_rollouts = segment_sum(log_rho, lengths)[lengths > 0].clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    gap = (old - behaviour).abs()
    return {
        "tokens": _count(old),
        "rollouts": _count(of_rollouts),
        "log_rho": log_rho.sum(),
        "rho": rho.sum(),
        "rho_square": rho.square().sum(),
        "k3": (log_rho.expm1() - log_rho).sum(),
        "sequence_rho": of_rollouts.sum(),
        "sequence_rho_square": of_rollouts.square().sum(),
        "gap": gap.sum(),
        "old": old.sum(),
        "behaviour": behaviour.sum(),
        LARGEST: gap.max() if len(gap) else gap.sum(),
    }


def mismatch_metrics(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """The diagnostics of a step by name; empty where no token was counted.

    `kl_k1` and `kl_k3` estimate KL(behaviour || old), nats; `chi2_token` and `chi2_sequence` are E[rho^2] - 1;
    `ess` is the effective share of the tokens, 1 / mean(w^2) with w = rho / mean(rho); `gap_mean` and `gap_max` are of
    |old - behaviour|; `perplexity_gap` is the old policy's perplexity on these tokens minus the behaviour's.
    """
    total = {name: float(value) for name, value in sums.items()}
    tokens, rollouts = total.get("tokens", 0.0), total.get("rollouts", 0.0)
    if not tokens:
        return {}
    return {
        "kl_k1": -total["log_rho"] / tokens,
        "kl_k3": total["k3"] / tokens,
        "chi2_token": total["rho_square"] / tokens - 1,
        "chi2_sequence": total["sequence_rho_square"] / rollouts - 1,
        "ess": total["rho"] ** 2 / (tokens * total["rho_square"]),
        "gap_mean": total["gap"] / tokens,
        LARGEST: total[LARGEST],
        "perplexity_gap": _perplexity(total["old"] / tokens) - _perplexity(total["behaviour"] / tokens),
    }


def _perplexity(mean_logprob: float) -> float:
    return math.exp(min(-mean_logprob, 700.0))


def _count(values: Tensor) -> Tensor:
    return torch.tensor(float(len(values)), dtype=torch.float64, device=values.device)
