"""The parts of algorithms: their options, keys of `[algorithm]` with bounds, default and meaning, and their tables.

Imports no torch: a part's function, which does, is imported when an algorithm is built.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.services.trainer.algorithms.names import CorrectionOutside, CorrectionWeight
from headrace.services.trainer.algorithms.recipes.corrections import CORRECTIONS
from headrace.wire.config.nearest import unknown


class PartOptions(BaseModel):
    """The hyper-parameters of a part; of this class itself: none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Divisor(PartOptions):
    """What is added to a divisor."""

    std_eps: float = Field(1e-6, gt=0)
    """Added to a standard deviation that advantages are divided by."""


class Normalization(Divisor):
    """The scale of a group's advantages."""

    normalize_std: bool = True
    """For `group` and `group_process`: divide by the group's standard deviation (off: Dr. GRPO)."""
    batch_std: bool = False
    """With `normalize_std`: the standard deviation of the whole batch (TRL's `scale_rewards = "batch"`)."""

    @model_validator(mode="after")
    def _has_a_divisor(self) -> "Normalization":
        if self.batch_std and not self.normalize_std:
            raise ValueError(
                "batch_std selects what normalize_std divides by: set normalize_std = true, or leave it out"
            )
        return self


class PreferenceStrength(PartOptions):
    """The strength of a preference."""

    beta: float = Field(0.1, gt=0)
    """For `online_dpo`: strength of the pull to the reference."""


class Discount(PartOptions):
    """The discount of rewards."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount factor for each token; 0 = a token has its own reward alone."""


class Bootstrap(Discount):
    """The stand-in for the rewards after a truncation."""

    bootstrap_truncated: bool = False
    """Continue a rollout cut at max_tokens with the critic's last value, as if it had not ended."""


class GaeOptions(Bootstrap):
    """The lambdas of GAE."""

    lam: float = Field(1.0, ge=0, le=1)
    """For `gae`: lambda of the policy's advantages; 0 is one-step TD, 1 is Monte-Carlo minus value."""
    lam_critic: float = Field(-1.0, ge=-1, le=1)
    """For `gae`: lambda of the critic's returns (VAPO: 1); negative = the value of `lam`."""
    lam_alpha: float = Field(0.0, ge=0)
    """Length-adaptive `lam = 1 - 1 / (lam_alpha x length)` (VAPO: 0.05); 0 = off."""


class KSteps(Bootstrap):
    """The number of rewards before a value."""

    k_steps: int = Field(1, ge=1)
    """For `k_step`: number of rewards before the value."""


class ClipRange(PartOptions):
    """The range of a ratio."""

    clip_low: float = Field(0.2, gt=0, le=1)
    """The ratio's floor is `1 - clip_low`; for `gmpo` the log-ratio's is `-clip_low`."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio's ceiling is `1 + clip_high`; a value above `clip_low` (DAPO: 0.28) preserves exploration.

    For `gmpo` it is the log-ratio's ceiling.
    """


class PpoClip(ClipRange):
    """PPO's range, and the bounds of a bad token."""

    dual_clip: float = Field(0.0, ge=0)
    """For `ppo_clip`: limit of the loss of a negative advantage, as a multiple of it (verl: 3); 0 = off."""
    ratio_cap: float = Field(0.0, ge=0)
    """For `ppo_clip`: upper limit of the ratio for a negative advantage (INTELLECT-2's delta); 0 = off."""

    @model_validator(mode="after")
    def _bounds_act(self) -> "PpoClip":
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(
                f"dual_clip = {self.dual_clip:g} would also cap tokens that have not moved: above 1 (3 is usual), or 0"
            )
        if self.ratio_cap and self.ratio_cap <= 1 + self.clip_high:
            raise ValueError(
                f"ratio_cap = {self.ratio_cap:g} must be above 1 + clip_high = {1 + self.clip_high:g}, or 0"
            )
        return self


class KlPenalty(PartOptions):
    """The weight of a penalty."""

    penalty_coef: float = Field(0.1, ge=0)
    """For `ppo_kl`: weight of the KL to the old policy, which replaces the clip."""


class SoftGate(PartOptions):
    """The temperatures of SAPO."""

    tau_positive: float = Field(1.0, gt=0)
    """For `sapo`: temperature for positive advantages."""
    tau_negative: float = Field(1.05, gt=0)
    """For `sapo`: temperature for negative advantages."""


class ProbabilityBounds(PartOptions):
    """The trust region of DPPO and of prime-rl's IPO."""

    bound_low: float = Field(0.2, gt=0, le=1)
    """For `dppo` and `ipo_mask`: how far a probability may fall before its token is left out."""
    bound_high: float = Field(0.2, gt=0, le=1)
    """For `dppo` and `ipo_mask`: how far a probability may rise before its token is left out."""
    divergence_coef: float = Field(1e-3, ge=0)
    """For `dppo` and `ipo_mask`: weight of the squared log-ratio."""


class TrustRegion(PartOptions):
    """The trust region of TRPO."""

    trust_kl: float = Field(0.01, gt=0)
    """For `trpo`: the largest KL of the old policy to the new one, nats a token."""
    trust_cg_steps: int = Field(10, ge=1)
    """For `trpo`: steps of conjugate gradients, each a pass and a gradient of a gradient."""
    trust_damping: float = Field(0.1, ge=0)
    """For `trpo`: added to the diagonal of the KL's Hessian."""
    trust_line_steps: int = Field(10, ge=1)
    """For `trpo`: how often a step is tried, each half of the one before."""


class EveryOption(
    TrustRegion, ProbabilityBounds, SoftGate, KlPenalty, PpoClip, KSteps, GaeOptions, PreferenceStrength, Normalization
):
    """The options of all parts: keys of `[algorithm]`. A part reads its own as attributes."""


class Need(Flag):
    """An input that an advantage requires; a run that does not provide it is refused at its start."""

    NOTHING = 0
    GROUP = auto()
    """Two or more rollouts of a prompt: the others are the baseline."""
    CRITIC = auto()
    """`Signals.values`: a critic is trained beside the policy."""
    REFERENCE = auto()
    """`Signals.reference`: a reference model is loaded regardless of `kl_coef`."""
    GREEDY = auto()
    """`Signals.baselines`: a greedy rollout is generated beside each group."""
    OLD_LOGPROBS = auto()
    """`Signals.old`: the policy's own logprobs at batch time."""


@dataclass(frozen=True, slots=True)
class Part:
    """An estimator of advantages, a function of (Signals, options), or a policy loss, of (PolicyTokens, options)."""

    name: str
    options: type[PartOptions]
    function: str
    """`module:function`, the module below this package. Its docstring is a row of docs/algorithms.md."""
    needs: Need = Need.NOTHING
    penalties: bool = False
    """Whether an estimator takes `Signals.penalties` off rewards: `kl_in = "reward"` needs one that does."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of `[algorithm]` that it reads."""
        return tuple(self.options.model_fields)

    def load(self) -> Callable[..., Any]:
        """Imports its function."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return function

    def bind(self, table: PartOptions) -> Callable[[Any], Any]:
        """Its function with the options of a table, which inherits from the options of all parts."""
        function = self.load()
        return lambda argument: function(argument, table)


_GROUP, _CRITIC = Need.GROUP, Need.CRITIC
_PAIRS = Need.GROUP | Need.REFERENCE | Need.OLD_LOGPROBS

ADVANTAGES = {
    part.name: part
    for part in (
        Part("group", Normalization, "advantages.baselines:group", _GROUP, penalties=True),
        Part("group_process", Normalization, "advantages.baselines:group_process", _GROUP, penalties=True),
        Part("gdpo", Divisor, "advantages.baselines:gdpo", _GROUP),
        Part("mean_baseline", PartOptions, "advantages.baselines:mean_baseline", _GROUP, penalties=True),
        Part("rloo", PartOptions, "advantages.baselines:rloo", _GROUP, penalties=True),
        Part("opo", PartOptions, "advantages.baselines:opo", _GROUP, penalties=True),
        Part("remax", PartOptions, "advantages.baselines:remax", Need.GREEDY),
        Part("online_dpo", PreferenceStrength, "advantages.baselines:online_dpo", _PAIRS),
        Part("return", Discount, "advantages.returns:discounted", penalties=True),
        Part("gae", GaeOptions, "advantages.returns:gae", _CRITIC, penalties=True),
        Part("k_step", KSteps, "advantages.returns:k_step", _CRITIC, penalties=True),
        Part("monte_carlo", Discount, "advantages.returns:monte_carlo", _CRITIC, penalties=True),
    )
}
POLICY_LOSSES = {
    part.name: part
    for part in (
        Part("policy_gradient", PartOptions, "losses.policy:policy_gradient"),
        Part("ppo_clip", PpoClip, "losses.policy:ppo_clip"),
        Part("ppo_kl", KlPenalty, "losses.policy:ppo_kl"),
        Part("trpo", TrustRegion, "losses.policy:trpo"),
        Part("sapo", SoftGate, "losses.token:sapo"),
        Part("cispo", ClipRange, "losses.token:cispo"),
        Part("dppo", ProbabilityBounds, "losses.token:dppo"),
        Part("ipo_mask", ProbabilityBounds, "losses.token:ipo_mask"),
        Part("gspo", ClipRange, "losses.sequence:gspo"),
        Part("gspo_token", ClipRange, "losses.sequence:gspo_token"),
        Part("gmpo", ClipRange, "losses.sequence:gmpo"),
    )
}


class CorrectionTable(PartOptions):
    """`[algorithm.correction]`: weights and masks for the gap between the policy that sampled and `old`.

    Weights are constants of the gradient. They need `algorithm.anchor = "proximal"`.
    """

    preset: str = Field("none", json_schema_extra={"enum": list(CORRECTIONS)})
    """A named correction; its values are the defaults of the keys below."""
    weight: CorrectionWeight = "none"
    """Weight each token by its own old / behaviour, or by the product or geometric mean over its sequence."""
    cap: float = Field(2.0, gt=0)
    """Largest weight."""
    floor: float = Field(0.0, ge=0)
    """Smallest weight."""
    outside: CorrectionOutside = "truncate"
    """Clip a weight outside [floor, cap], or set it to 0."""
    reject: Literal["none", "geometric", "k2", "k3"] = "none"
    """Leave out whole sequences whose mean ratio (or mean k2 or k3) is outside [reject_low, reject_high]."""
    reject_low: float = Field(0.0, ge=0)
    """Lower bound for `reject`."""
    reject_high: float = Field(2.0, ge=0)
    """Upper bound for `reject`."""
    opsm_delta: float = Field(0.0, ge=0)
    """Leave out sequences of negative advantage whose mean log behaviour / old is above it; 0 = off."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        name = values.get("preset", "none")
        if name not in CORRECTIONS:
            raise ValueError(f"preset {unknown(str(name), CORRECTIONS)}")
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
