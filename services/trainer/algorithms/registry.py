"""The parts of algorithms by name, and how an algorithm is built from the values of its table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from headrace.services.trainer.algorithms.advantages import estimates
from headrace.services.trainer.algorithms.algorithm import Algorithm, Estimate, PolicyTokens, Signals
from headrace.services.trainer.algorithms.losses.policy import (
    PolicyLoss,
    clipped_policy_loss,
    kl_penalty_policy_loss,
    policy_gradient_loss,
)
from headrace.services.trainer.algorithms.losses.sequence import gspo_loss, gspo_token_loss
from headrace.services.trainer.algorithms.losses.token import cispo_loss, dppo_loss, sapo_loss


@dataclass(frozen=True, slots=True)
class AlgorithmPart:
    """A function and its hyper-parameters: argument -> key of the table."""

    function: Callable[..., Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    on_sequences: bool = False
    """Whether it is a loss that needs the bounds of rollouts."""

    def bound(self, values: Mapping[str, Any]) -> Callable[..., Any]:
        """The function with its hyper-parameters."""
        return partial(self.function, **{argument: values[key] for argument, key in self.takes.items()})


def _same(*keys: str) -> dict[str, str]:
    return {key: key for key in keys}


ADVANTAGES: Mapping[str, AlgorithmPart] = MappingProxyType(
    {
        "group": AlgorithmPart(estimates.group, _same("normalize_std", "std_eps")),
        "group_process": AlgorithmPart(estimates.group_process, _same("normalize_std", "std_eps")),
        "mean_baseline": AlgorithmPart(estimates.mean_baseline),
        "rloo": AlgorithmPart(estimates.rloo),
        "opo": AlgorithmPart(estimates.opo),
        "remax": AlgorithmPart(estimates.remax),
        "return": AlgorithmPart(estimates.discounted, _same("gamma")),
        "gae": AlgorithmPart(
            estimates.generalized, _same("gamma", "lam", "lam_critic", "lam_alpha", "bootstrap_truncated")
        ),
        "k_step": AlgorithmPart(estimates.k_step, _same("gamma", "k_steps", "bootstrap_truncated")),
        "monte_carlo": AlgorithmPart(estimates.monte_carlo, _same("gamma")),
        "online_dpo": AlgorithmPart(estimates.online_dpo, _same("beta")),
    }
)
POLICY_LOSSES: Mapping[str, AlgorithmPart] = MappingProxyType(
    {
        "ppo_clip": AlgorithmPart(clipped_policy_loss, _same("clip_low", "clip_high", "dual_clip", "ratio_cap")),
        "ppo_kl": AlgorithmPart(kl_penalty_policy_loss, {"coef": "penalty_coef"}),
        "policy_gradient": AlgorithmPart(policy_gradient_loss),
        "gspo": AlgorithmPart(gspo_loss, _same("clip_low", "clip_high"), on_sequences=True),
        "gspo_token": AlgorithmPart(gspo_token_loss, _same("clip_low", "clip_high"), on_sequences=True),
        "sapo": AlgorithmPart(sapo_loss, _same("tau_positive", "tau_negative")),
        "cispo": AlgorithmPart(cispo_loss, _same("clip_low", "clip_high")),
        "dppo": AlgorithmPart(dppo_loss, _same("bound_low", "bound_high") | {"kl_coef": "divergence_coef"}),
    }
)


def build_algorithm(values: Mapping[str, Any]) -> Algorithm:
    """Builds the algorithm of a resolved `[algorithm]` table; raises ValueError for an unknown part."""
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


def _part(parts: Mapping[str, AlgorithmPart], key: str, values: Mapping[str, Any]) -> AlgorithmPart:
    if values[key] not in parts:
        raise ValueError(f"{key} {values[key]!r} is not one of {', '.join(parts)}")
    return parts[values[key]]
