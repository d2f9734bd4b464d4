"""What cannot work in `[algorithm]` and `[critic]`: each check gives the reason and the way out, or None."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.services.trainer.config.algorithm import AlgorithmTable, CriticTable

NEEDS_CRITIC = ("gae", "k_step", "monte_carlo")
"""Advantages that are taken against a value."""
NEEDS_GROUP = ("group", "group_process", "mean_baseline", "rloo", "opo", "online_dpo")
"""Advantages whose baseline is the rest of the group."""
LARGEST_SEQUENCE_CLIP = 0.05
"""The mean log-ratio of a sequence moves by thousandths: a clip beyond this never acts."""


def _correction(table: "AlgorithmTable") -> str | None:
    if table.correction.on and table.anchor == "behaviour":
        return (
            "correction together with anchor = 'behaviour' (bypass) would correct the same gap twice: the ratio is "
            "taken to the engine's logprobs already. Set anchor = 'proximal', or correction.preset = 'none'"
        )
    return None


def _sequence_clip(table: "AlgorithmTable") -> str | None:
    """A PPO-sized clip is the trap of GSPO: most libraries' default, and it never fires."""
    if not table.policy_loss.startswith("gspo") or max(table.clip_low, table.clip_high) <= LARGEST_SEQUENCE_CLIP:
        return None
    return (
        f"clip_low = {table.clip_low:g} and clip_high = {table.clip_high:g} are of PPO's size: the ratio of whole "
        f"sequences moves by thousandths, so they would never clip; the paper's are 0.0003 and 0.0004 "
        f"(at most {LARGEST_SEQUENCE_CLIP:g} is accepted)"
    )


def _bounds(table: "AlgorithmTable") -> str | None:
    if table.dual_clip and table.dual_clip <= 1:
        return f"dual_clip = {table.dual_clip:g} would also cap tokens that have not moved: above 1 (3 is usual), or 0"
    if table.ratio_cap and table.ratio_cap <= 1 + table.clip_high:
        return f"ratio_cap = {table.ratio_cap:g} must be above 1 + clip_high = {1 + table.clip_high:g}, or 0"
    return None


def _reference(table: "AlgorithmTable") -> str | None:
    if table.reference_reset_every and table.reference == "adapters_off":
        return (
            "reference_reset_every needs reference = 'frozen': adapters switched off are always the model of the start"
        )
    if table.reference_reset_every and not table.needs_reference:
        return "reference_reset_every needs a reference: set kl_coef above 0"
    return None


def _kl(table: "AlgorithmTable") -> str | None:
    if not table.kl_coef:
        return None
    if table.kl_in == "reward" and table.advantage not in (*NEEDS_CRITIC, "return"):
        return (
            f"kl_in = 'reward' needs rewards on tokens, but advantage = {table.advantage!r} takes one reward a "
            "rollout: set kl_in = 'loss', or an advantage of return, gae, k_step, monte_carlo"
        )
    if table.kl_in == "reward" and table.kl_unbiased:
        return "kl_unbiased is of kl_in = 'loss': a KL in the reward has no gradient to be unbiased"
    if table.kl_in == "loss" and table.kl_estimator == "k1" and not table.kl_unbiased:
        return "kl_estimator = 'k1' has no gradient in expectation as a loss: use k2, k3 or k1+, or kl_in = 'reward'"
    return None


def _adaptive(table: "AlgorithmTable") -> str | None:
    if table.kl_target and not table.kl_coef:
        return "kl_target adapts kl_coef, which is 0: give it a first value, such as 0.01"
    if table.entropy_target and table.entropy_coef > table.entropy_max:
        return f"entropy_coef = {table.entropy_coef:g} is above entropy_max = {table.entropy_max:g}"
    return None


def _of_critic(table: "AlgorithmTable") -> str | None:
    if table.lam_alpha and table.advantage != "gae":
        return f"lam_alpha is of advantage = 'gae', not {table.advantage!r}"
    if table.bootstrap_truncated and table.advantage not in ("gae", "k_step"):
        return f"bootstrap_truncated needs a critic's value (advantage gae or k_step), not {table.advantage!r}"
    return None


def _ptx(table: "AlgorithmTable") -> str | None:
    if table.ptx_coef and table.ptx_data == Path():
        return "ptx_coef needs ptx_data: a parquet with prompt_ids and completion_ids"
    return None


def _online_dpo(table: "AlgorithmTable") -> str | None:
    if table.advantage != "online_dpo":
        return None
    if table.policy_loss != "policy_gradient" or table.whiten:
        return "advantage = 'online_dpo' has DPO's gradient only under policy_loss = 'policy_gradient', not whitened"
    if table.anchor != "proximal":
        return "advantage = 'online_dpo' needs the policy's own logprobs at batch time: set anchor = 'proximal'"
    return None


CHECKS = (_correction, _sequence_clip, _bounds, _reference, _kl, _adaptive, _of_critic, _ptx, _online_dpo)
"""Run in this order; the first reason found is reported."""


def critic_problem(algorithm: "AlgorithmTable", critic: "CriticTable") -> str | None:
    """Why the two tables cannot work together."""
    if algorithm.needs_critic and not critic.enabled:
        return (
            f"{algorithm.name}: advantage = {algorithm.advantage!r} needs a critic: set critic.enabled = true, or an "
            f"advantage without one: {', '.join((*NEEDS_GROUP, 'remax', 'return'))}"
        )
    if critic.spread_weight and critic.quantiles < 2:
        return "critic.spread_weight needs critic.quantiles of 2 or more: one value has no spread"
    return None
