"""`[algorithm]` and `[critic]`. Imports no torch. An algorithm's recipe gives the defaults of its keys.

Every key can be overridden; what cannot work together is refused with the reason.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from services.trainer.algorithms.recipes import find_recipe, recipes
from services.trainer.algorithms.recipes.corrections import CORRECTIONS
from wire.settings import Table

NEEDS_CRITIC = ("gae", "k_step", "monte_carlo")
"""Advantages that are taken against a value."""
NEEDS_GROUP = ("group", "mean_baseline", "rloo", "opo", "online_dpo")
"""Advantages whose baseline is the rest of the group."""


class CorrectionTable(Table):
    """`[algorithm.correction]`: weights and masks for the gap between the policy that sampled and `old`.

    Weights are constants of the gradient. They need `algorithm.anchor = "proximal"`.
    """

    preset: str = Field("none", json_schema_extra={"enum": list(CORRECTIONS)})
    """A named correction; its values are the defaults of the keys below."""
    weight: Literal["none", "token", "sequence", "geometric"] = "none"
    """What is weighted by old / behaviour: each token, or all tokens by their sequence's product or geometric mean."""
    cap: float = Field(2.0, gt=0)
    """Largest weight."""
    floor: float = Field(0.0, ge=0)
    """Smallest weight."""
    outside: Literal["truncate", "mask"] = "truncate"
    """What becomes of a weight outside of [floor, cap]: cut to it, or 0."""
    reject: Literal["none", "geometric", "k2", "k3"] = "none"
    """Leave out whole sequences whose mean ratio (or mean k2 or k3) is outside of [reject_low, reject_high]."""
    reject_low: float = Field(0.0, ge=0)
    """See `reject`."""
    reject_high: float = Field(2.0, ge=0)
    """See `reject`."""
    opsm_delta: float = Field(0.0, ge=0)
    """Leave out sequences of negative advantage whose mean log behaviour / old is above it; 0 = off."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        name = values.get("preset", "none")
        if name not in CORRECTIONS:
            raise ValueError(f"preset {name!r} is not one of {', '.join(CORRECTIONS)}")
        return {**CORRECTIONS[name], **values}

    @model_validator(mode="after")
    def _ordered(self) -> "CorrectionTable":
        if self.floor > self.cap:
            raise ValueError(f"floor = {self.floor:g} is above cap = {self.cap:g}: no weight would be within both")
        if self.reject != "none" and self.reject_low > self.reject_high:
            raise ValueError(
                f"reject_low = {self.reject_low:g} is above reject_high = {self.reject_high:g}: every rollout would be "
                "rejected"
            )
        return self

    @property
    def on(self) -> bool:
        """Whether it does anything."""
        return self.weight != "none" or self.reject != "none" or self.opsm_delta > 0


class AlgorithmTable(Table):
    """`[algorithm]`: how rewards become a gradient. Defaults are those of the recipe `name`."""

    name: str = Field("grpo", json_schema_extra={"enum": list(recipes())})
    """A recipe; `headrace algorithms` lists them with their defaults."""
    advantage: Literal[
        "group",
        "mean_baseline",
        "rloo",
        "opo",
        "remax",
        "return",
        "gae",
        "k_step",
        "monte_carlo",
        "online_dpo",
    ] = "group"
    """How good a token was: against the group, the greedy rollout (remax), nothing (return) or the critic."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount a token."""
    lam: float = Field(1.0, ge=0, le=1)
    """Of `gae`, for the policy's advantages; 0 is one-step TD, 1 is Monte-Carlo minus value."""
    lam_critic: float = Field(-1.0, ge=-1, le=1)
    """Of `gae`, for the critic's returns (VAPO: 1); negative = as `lam`."""
    lam_alpha: float = Field(0.0, ge=0)
    """Length-adaptive `lam = 1 - 1 / (lam_alpha x length)` (VAPO: 0.05); 0 = off."""
    k_steps: int = Field(1, ge=1)
    """Of `k_step`: rewards before the value takes over."""
    bootstrap_truncated: bool = False
    """A rollout cut at max_tokens goes on with the critic's last value, as if it had not ended."""
    normalize_std: bool = True
    """Of `group`: divide by the group's standard deviation (off: Dr. GRPO)."""
    std_eps: float = Field(1e-6, gt=0)
    """Added to that standard deviation."""
    whiten: bool = False
    """Advantages of the whole batch to mean 0 and variance 1, over its tokens."""
    policy_loss: Literal["ppo_clip", "ppo_kl", "policy_gradient", "gspo", "gspo_token", "sapo", "cispo", "dppo"] = (
        "ppo_clip"
    )
    """From advantages and ratios to a loss."""
    clip_low: float = Field(0.2, gt=0, le=1)
    """The ratio's floor is `1 - clip_low`."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio's ceiling is `1 + clip_high`; above `clip_low` (DAPO: 0.28) it keeps exploration alive."""
    dual_clip: float = Field(0.0, ge=0)
    """Of `ppo_clip`: loss of a negative advantage is at most so many times it (verl: 3); 0 = off."""
    ratio_cap: float = Field(0.0, ge=0)
    """Of `ppo_clip`: largest ratio of all (INTELLECT-2's delta); 0 = off."""
    penalty_coef: float = Field(0.1, ge=0)
    """Of `ppo_kl`: weight of the KL to the old policy, in place of a clip."""
    tau_positive: float = Field(1.0, gt=0)
    """Of `sapo`: temperature for positive advantages."""
    tau_negative: float = Field(1.05, gt=0)
    """Of `sapo`: temperature for negative advantages."""
    bound_low: float = Field(0.2, gt=0, le=1)
    """Of `dppo`: how far a probability may fall before its token is left out."""
    bound_high: float = Field(0.2, gt=0, le=1)
    """Of `dppo`: how far a probability may rise before its token is left out."""
    divergence_coef: float = Field(1e-3, ge=0)
    """Of `dppo`: weight of the squared log-ratio."""
    beta: float = Field(0.1, gt=0)
    """Of `online_dpo`: how far from the reference a preference may lead."""
    aggregation: Literal[
        "token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"
    ] = "seq-mean-token-mean"
    """From per-token losses to one number; counts are those of the whole optimizer step."""
    norm_length: int = Field(0, ge=0)
    """Divisor of `seq-mean-token-sum-norm`; 0 = the sampling's max_tokens."""
    anchor: Literal["behaviour", "proximal"] = "behaviour"
    """What ratios are taken to: the engine's logprobs (bypass: no further forward), or the trainer's at batch time."""
    epochs: int = Field(1, ge=1)
    """How often a batch is trained."""
    minibatches: int = Field(1, ge=1)
    """Optimizer steps an epoch; groups stay together."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus; with a target, its first value."""
    entropy_target: float = Field(0.0, ge=0)
    """Nats: the coefficient rises while the batch's mean entropy is below, and falls above; 0 = fixed."""
    entropy_step: float = Field(0.005, gt=0)
    """By so much a step, with a target."""
    entropy_max: float = Field(0.1, gt=0)
    """Largest coefficient, with a target."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the reference; 0 loads no reference. With a target, its first value."""
    kl_estimator: Literal["k1", "k2", "k3", "abs", "k1+", "k3+"] = "k3"
    """Per token; those with a plus have the unbiased gradient of k2 under their own value."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where it acts: in the loss with a gradient, or taken off each token's reward."""
    kl_target: float = Field(0.0, ge=0)
    """Nats: kl_coef is adapted to hold the KL there (arXiv 1909.08593); 0 = fixed."""
    kl_horizon: int = Field(10_000, ge=1)
    """Rollouts in which it is adapted."""
    kl_unbiased: bool = False
    """Of `kl_in = "loss"`: multiplied by the ratio, which makes it unbiased for off-policy tokens."""
    reference: Literal["frozen", "adapters_off"] = "frozen"
    """A copy of the model that the run began with, or the model with its adapters switched off (LoRA; no copy)."""
    reference_reset_every: int = Field(0, ge=0)
    """The frozen reference becomes the policy of now every so many steps; 0 = never."""
    positive_nll_coef: float = Field(0.0, ge=0)
    """Weight of the likelihood of rollouts with a reward above 0 (VAPO: 0.1)."""
    ptx_coef: float = Field(0.0, ge=0)
    """Weight of next-token loss on `ptx_data` (PPO-ptx, arXiv 2203.02155)."""
    ptx_data: Path = Path()
    """Parquet with `prompt_ids` and `completion_ids`, as the supervised stage reads."""
    ptx_rows: int = Field(16, ge=1)
    """Of that data, each optimizer step."""
    dynamic_sampling: bool = False
    """Drop groups whose scores are all equal, and sample others (DAPO)."""
    discard_limit: int = Field(10, ge=1)
    """So many times the batch may be dropped for one batch; then the run ends with an error."""
    overlong_buffer: int = Field(0, ge=0)
    """Soft punishment of the last so many tokens before max_tokens (DAPO); 0 = off."""
    overlong_factor: float = Field(1.0, gt=0)
    """Punishment of a rollout of max_tokens."""
    mask_truncated: bool = False
    """Rollouts that were cut at max_tokens count for the baseline but are not trained (overlong filtering)."""
    max_token_age: int = Field(-1, ge=-1)
    """Tokens sampled by weights more versions old count for rewards but are not trained; -1 = off."""
    correction: CorrectionTable = CorrectionTable()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """The recipe's values, where none is given."""
        if not isinstance(values, dict):
            return values
        settings = find_recipe(str(values.get("name", "grpo"))).settings
        merged = {**settings, **values}
        if isinstance(values.get("correction"), dict) and "correction" in settings:
            merged["correction"] = {**settings["correction"], **values["correction"]}
        return merged

    @model_validator(mode="after")
    def _works(self) -> "AlgorithmTable":
        for check in (*_CHECKS, *find_recipe(self.name).checks):
            reason = check(self)
            if reason is not None:
                raise ValueError(f"{self.name}: {reason}")
        return self

    @property
    def needs_critic(self) -> bool:
        """Whether advantages are taken against a value."""
        return self.advantage in NEEDS_CRITIC

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model's logprobs are used."""
        return self.kl_coef > 0 or self.advantage == "online_dpo"

    @property
    def greedy_last(self) -> int:
        """Greedy rollouts wanted beside each group."""
        return int(self.advantage == "remax")


class CriticTable(Table):
    """`[critic]`: the value model of algorithms whose advantage needs one."""

    enabled: bool = True
    """Off refuses such algorithms."""
    path: Path = Path()
    """Folder it begins with: a language model or a reward model; empty = `model.path`."""
    learning_rate: float = Field(1e-5, gt=0)
    """Constant after the warmup."""
    learning_rate_warmup: int = Field(0, ge=0)
    """Steps in which the learning rate rises."""
    weight_decay: float = Field(0.0, ge=0)
    """Of matrices only."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of its gradient; 0 = no clipping."""
    value_clip: float = Field(0.2, ge=0)
    """How far a value may move from what it was at batch time before its loss is clipped; 0 = plain squares.

    Of a critic of one output: quantiles have no clip.
    """
    epochs: int = Field(1, ge=1)
    """How often a batch is trained; optimizer steps an epoch are `algorithm.minibatches`."""
    pretrain_steps: int = Field(0, ge=0)
    """First steps in which only the critic is trained, on Monte-Carlo returns (VAPO's value pretraining)."""
    warmup_steps: int = Field(0, ge=0)
    """Further steps in which only the critic is trained, on the returns of the algorithm."""
    quantiles: int = Field(1, ge=1)
    """Above 1 the critic learns so many quantiles of the return (arXiv 1710.10044)."""
    spread_weight: float = Field(0.0, ge=0)
    """Advantages shrink where the quantiles are far apart, by this strength; 0 = off, needs `quantiles`."""


LARGEST_SEQUENCE_CLIP = 0.05
"""The mean log-ratio of a sequence moves by thousandths: a clip beyond this never acts."""


def _correction(table: AlgorithmTable) -> str | None:
    if table.correction.on and table.anchor == "behaviour":
        return (
            "correction together with anchor = 'behaviour' (bypass) would correct the same gap twice: the ratio is "
            "taken to the engine's logprobs already. Set anchor = 'proximal', or correction.preset = 'none'"
        )
    return None


def _sequence_clip(table: AlgorithmTable) -> str | None:
    """A PPO-sized clip is the trap of GSPO: most libraries' default, and it never fires."""
    if not table.policy_loss.startswith("gspo") or max(table.clip_low, table.clip_high) <= LARGEST_SEQUENCE_CLIP:
        return None
    return (
        f"clip_low = {table.clip_low:g} and clip_high = {table.clip_high:g} are of PPO's size: the ratio of whole "
        f"sequences moves by thousandths, so they would never clip; the paper's are 0.0003 and 0.0004 "
        f"(at most {LARGEST_SEQUENCE_CLIP:g} is accepted)"
    )


def _bounds(table: AlgorithmTable) -> str | None:
    if table.dual_clip and table.dual_clip <= 1:
        return f"dual_clip = {table.dual_clip:g} would also cap tokens that have not moved: above 1 (3 is usual), or 0"
    if table.ratio_cap and table.ratio_cap <= 1 + table.clip_high:
        return f"ratio_cap = {table.ratio_cap:g} must be above 1 + clip_high = {1 + table.clip_high:g}, or 0"
    return None


def _reference(table: AlgorithmTable) -> str | None:
    if table.reference_reset_every and table.reference == "adapters_off":
        return (
            "reference_reset_every needs reference = 'frozen': adapters switched off are always the model of the start"
        )
    if table.reference_reset_every and not table.needs_reference:
        return "reference_reset_every needs a reference: set kl_coef above 0"
    return None


def _kl(table: AlgorithmTable) -> str | None:
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


def _adaptive(table: AlgorithmTable) -> str | None:
    if table.kl_target and not table.kl_coef:
        return "kl_target adapts kl_coef, which is 0: give it a first value, such as 0.01"
    if table.entropy_target and table.entropy_coef > table.entropy_max:
        return f"entropy_coef = {table.entropy_coef:g} is above entropy_max = {table.entropy_max:g}"
    return None


def _of_critic(table: AlgorithmTable) -> str | None:
    if table.lam_alpha and table.advantage != "gae":
        return f"lam_alpha is of advantage = 'gae', not {table.advantage!r}"
    if table.bootstrap_truncated and table.advantage not in ("gae", "k_step"):
        return f"bootstrap_truncated needs a critic's value (advantage gae or k_step), not {table.advantage!r}"
    return None


def _ptx(table: AlgorithmTable) -> str | None:
    if table.ptx_coef and table.ptx_data == Path():
        return "ptx_coef needs ptx_data: a parquet with prompt_ids and completion_ids"
    return None


def _online_dpo(table: AlgorithmTable) -> str | None:
    if table.advantage != "online_dpo":
        return None
    if table.policy_loss != "policy_gradient" or table.whiten:
        return "advantage = 'online_dpo' has DPO's gradient only under policy_loss = 'policy_gradient', not whitened"
    if table.anchor != "proximal":
        return "advantage = 'online_dpo' needs the policy's own logprobs at batch time: set anchor = 'proximal'"
    return None


_CHECKS = (_correction, _sequence_clip, _bounds, _reference, _kl, _adaptive, _of_critic, _ptx, _online_dpo)


def critic_problem(algorithm: AlgorithmTable, critic: CriticTable) -> str | None:
    """Why the two tables cannot work together."""
    if algorithm.needs_critic and not critic.enabled:
        return (
            f"{algorithm.name}: advantage = {algorithm.advantage!r} needs a critic: set critic.enabled = true, or an "
            f"advantage without one: {', '.join((*NEEDS_GROUP, 'remax', 'return'))}"
        )
    if critic.spread_weight and critic.quantiles < 2:
        return "critic.spread_weight needs critic.quantiles of 2 or more: one value has no spread"
    return None
