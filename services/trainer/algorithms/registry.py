"""The parts of algorithms by name, and how one is built from the values of its table: data, so that settings choose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from services.trainer.algorithms import estimates
from services.trainer.algorithms.algorithm import Algorithm, Estimate, PolicyTokens, Signals
from services.trainer.algorithms.policy_loss import (
    PolicyLoss,
    clipped_policy_loss,
    kl_penalty_policy_loss,
    policy_gradient_loss,
)
from services.trainer.algorithms.sequence_loss import gspo_loss, gspo_token_loss
from services.trainer.algorithms.token_loss import cispo_loss, dppo_loss, sapo_loss


@dataclass(frozen=True, slots=True)
class Part:
    """A function, and the values of the table that it takes: its argument -> the table's key."""

    function: Callable[..., Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    on_sequences: bool = False
    """A loss that needs to know where rollouts begin and end."""

    def bound(self, values: Mapping[str, Any]) -> Callable[..., Any]:
        """The function with its hyper-parameters."""
        return partial(self.function, **{argument: values[key] for argument, key in self.takes.items()})


def _same(*keys: str) -> dict[str, str]:
    return {key: key for key in keys}


ADVANTAGES: Mapping[str, Part] = MappingProxyType(
    {
        "group": Part(estimates.group, _same("normalize_std", "std_eps")),
        "group_process": Part(estimates.group_process, _same("normalize_std", "std_eps")),
        "mean_baseline": Part(estimates.mean_baseline),
        "rloo": Part(estimates.rloo),
        "opo": Part(estimates.opo),
        "remax": Part(estimates.remax),
        "return": Part(estimates.discounted, _same("gamma")),
        "gae": Part(estimates.generalized, _same("gamma", "lam", "lam_critic", "lam_alpha", "bootstrap_truncated")),
        "k_step": Part(estimates.k_step, _same("gamma", "k_steps", "bootstrap_truncated")),
        "monte_carlo": Part(estimates.monte_carlo, _same("gamma")),
        "online_dpo": Part(estimates.online_dpo, _same("beta")),
    }
)
POLICY_LOSSES: Mapping[str, Part] = MappingProxyType(
    {
        "ppo_clip": Part(clipped_policy_loss, _same("clip_low", "clip_high", "dual_clip", "ratio_cap")),
        "ppo_kl": Part(kl_penalty_policy_loss, {"coef": "penalty_coef"}),
        "policy_gradient": Part(policy_gradient_loss),
        "gspo": Part(gspo_loss, _same("clip_low", "clip_high"), on_sequences=True),
        "gspo_token": Part(gspo_token_loss, _same("clip_low", "clip_high"), on_sequences=True),
        "sapo": Part(sapo_loss, _same("tau_positive", "tau_negative")),
        "cispo": Part(cispo_loss, _same("clip_low", "clip_high")),
        "dppo": Part(dppo_loss, _same("bound_low", "bound_high") | {"kl_coef": "divergence_coef"}),
    }
)


def build_algorithm(values: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a resolved `[algorithm]` table; raises ValueError for a part that there is not."""
    advantage = _part(ADVANTAGES, "advantage", values)
    loss = _part(POLICY_LOSSES, "policy_loss", values)
    estimator, loss_of = advantage.bound(values), loss.bound(values)
    whiten = bool(values["whiten"])

    def estimate(signals: Signals) -> Estimate:
        made: Estimate = estimator(signals)
        return estimates.whitened(made, signals) if whiten else made

    def policy_loss(tokens: PolicyTokens) -> PolicyLoss:
        lengths = (tokens.lengths,) if loss.on_sequences else ()
        made: PolicyLoss = loss_of(tokens.logprobs, tokens.old, tokens.advantages, *lengths)
        return made

    return Algorithm(estimate=estimate, policy_loss=policy_loss)


def _part(parts: Mapping[str, Part], key: str, values: Mapping[str, Any]) -> Part:
    if values[key] not in parts:
        raise ValueError(f"{key} {values[key]!r} is not one of {', '.join(parts)}")
    return parts[values[key]]
