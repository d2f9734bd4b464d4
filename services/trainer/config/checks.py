"""What cannot work in `[algorithm]` and `[critic]`: each check gives the reason and the way out, or None."""

from pathlib import Path

from headrace.services.trainer.algorithms.own import is_own
from headrace.services.trainer.algorithms.parts import ADVANTAGES, Need
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.services.trainer.config.keys import AlgorithmKeys, CriticTable

LARGEST_SEQUENCE_CLIP = 0.05
"""The mean log-ratio of a sequence moves by thousandths: a clip beyond this never acts."""


def _correction(table: AlgorithmKeys) -> str | None:
    if table.correction.on and table.anchor == "behaviour":
        return (
            "correction together with anchor = 'behaviour' (bypass) would correct the same gap twice: the ratio is "
            "taken to the engine's logprobs already. Set anchor = 'proximal', or correction.preset = 'none'"
        )
    return None


def _sequence_clip(table: AlgorithmKeys) -> str | None:
    """A PPO-sized clip is the trap of GSPO: most libraries' default, and it never fires."""
    largest = max(table.clip_low, table.clip_high)
    if table.policy_loss not in ("gspo", "gspo_token") or largest <= LARGEST_SEQUENCE_CLIP:
        return None
    return (
        f"clip_low = {table.clip_low:g} and clip_high = {table.clip_high:g} are of PPO's size: the ratio of whole "
        f"sequences moves by thousandths, so they would never clip; the paper's are 0.0003 and 0.0004 "
        f"(at most {LARGEST_SEQUENCE_CLIP:g} is accepted)"
    )


def _own(table: AlgorithmKeys) -> str | None:
    if table.needs and not is_own(table.advantage):
        return f"needs is for an advantage of your own: {table.advantage!r} declares what it needs; leave it out"
    if table.path is not None and not table.own_functions:
        return "path has no effect: neither advantage nor policy_loss is a module:function; leave it out"
    return None


def _reference(table: AlgorithmKeys) -> str | None:
    if table.reference_reset_every and table.reference == "adapters_off":
        return (
            "reference_reset_every needs reference = 'frozen': adapters switched off are always the model of the start"
        )
    if table.reference_reset_every and not table.needs_reference:
        return "reference_reset_every needs a reference: set kl_coef above 0"
    if table.reference_mix < 1 and not table.reference_reset_every:
        return "reference_mix is how far reference_reset_every moves the reference: set that, 1 for every step"
    return None


def _kl(table: AlgorithmKeys) -> str | None:
    if not table.kl_coef:
        return None
    if table.kl_in == "reward" and not table.estimator.penalties:
        others = ", ".join(name for name, part in ADVANTAGES.items() if part.penalties)
        declare = ", or needs = ['token_rewards'] if it subtracts signals.penalties" if is_own(table.advantage) else ""
        return (
            f"kl_in = 'reward' has no effect on advantage = {table.advantage!r}, which takes no KL off its rewards: "
            f"set kl_in = 'loss', or advantage to one of {others}{declare}"
        )
    if table.kl_in == "reward" and table.kl_unbiased:
        return "kl_unbiased is of kl_in = 'loss': a KL in the reward has no gradient to be unbiased"
    if table.kl_in == "loss" and table.kl_estimator == "k1" and not table.kl_unbiased:
        return "kl_estimator = 'k1' has no gradient in expectation as a loss: use k2, k3 or k1+, or kl_in = 'reward'"
    return None


def _adaptive(table: AlgorithmKeys) -> str | None:
    if table.kl_target and not table.kl_coef:
        return "kl_target adapts kl_coef, which is 0: give it a first value, such as 0.01"
    if table.entropy_target and table.entropy_coef > table.entropy_max:
        return f"entropy_coef = {table.entropy_coef:g} is above entropy_max = {table.entropy_max:g}"
    return None


def _of_critic(table: AlgorithmKeys) -> str | None:
    if table.lam_alpha and "lam_alpha" not in table.estimator.keys:
        return f"lam_alpha is of advantage = {_with_key('lam_alpha')}, not {table.advantage!r}"
    if table.bootstrap_truncated and "bootstrap_truncated" not in table.estimator.keys:
        return (
            f"bootstrap_truncated needs a critic's value (advantage = {_with_key('bootstrap_truncated')}), "
            f"not {table.advantage!r}"
        )
    return None


def _with_key(key: str) -> str:
    return " or ".join(repr(name) for name, part in ADVANTAGES.items() if key in part.keys)


def _ptx(table: AlgorithmKeys) -> str | None:
    if table.ptx_coef and table.ptx_data == Path():
        return "ptx_coef needs ptx_data: a parquet with prompt_ids and completion_ids"
    return None


def _online_dpo(table: AlgorithmKeys) -> str | None:
    if table.advantage == "online_dpo" and (table.policy_loss != "policy_gradient" or table.whiten):
        return "advantage = 'online_dpo' has DPO's gradient only under policy_loss = 'policy_gradient', not whitened"
    return None


def _old_logprobs(table: AlgorithmKeys) -> str | None:
    if Need.OLD_LOGPROBS in table.estimator.needs and table.anchor != "proximal":
        return f"advantage = {table.advantage!r} needs the policy's own logprobs at batch time: set anchor = 'proximal'"
    return None


def _trust_region(table: AlgorithmKeys) -> str | None:
    if table.policy_loss != "trpo":
        return None
    needs = {
        "epochs = 1 and minibatches = 1: the region is that of one step": table.epochs * table.minibatches == 1,
        "kl_in = 'reward' or kl_coef = 0": table.kl_coef == 0 or table.kl_in == "reward",
        "entropy_coef, entropy_target, positive_nll_coef and ptx_coef of 0": not (
            table.entropy_coef or table.entropy_target or table.positive_nll_coef or table.ptx_coef
        ),
    }
    lacks = [what for what, holds in needs.items() if not holds]
    return f"policy_loss = 'trpo' needs {lacks[0]}" if lacks else None


CHECKS = (
    _trust_region,
    _own,
    _correction,
    _sequence_clip,
    _reference,
    _kl,
    _adaptive,
    _of_critic,
    _ptx,
    _online_dpo,
    _old_logprobs,
)
"""Run in this order; the first reason found is reported."""


def group_problem(algorithm: AlgorithmKeys, group_size: int) -> str | None:
    """Why groups of this size cannot be trained on."""
    if Need.GROUP not in algorithm.estimator.needs or group_size > 1:
        return None
    others = ", ".join(name for name in recipes() if Need.GROUP not in _needs(name))
    return (
        f"a group of one has no advantage under algorithm {algorithm.name!r} (advantage = {algorithm.advantage!r}); "
        f"use 2 or more, or an algorithm that needs no group ({others})"
    )


def _needs(recipe: str) -> Need:
    return ADVANTAGES[recipes()[recipe].settings.get("advantage", "group")].needs


def critic_problem(algorithm: AlgorithmKeys, critic: CriticTable) -> str | None:
    """Why the two tables cannot work together."""
    if algorithm.needs_critic and not critic.enabled:
        others = ", ".join(name for name, part in ADVANTAGES.items() if Need.CRITIC not in part.needs)
        return (
            f"{algorithm.name}: advantage = {algorithm.advantage!r} needs a critic: set critic.enabled = true, or an "
            f"advantage without one: {others}"
        )
    if critic.spread_weight and critic.quantiles < 2:
        return "critic.spread_weight needs critic.quantiles of 2 or more: one value has no spread"
    return None
