"""The parts of algorithms by name, the keys of `[algorithm]` that choose among them, and how they are put together.

Imports no torch: a part's function, which does, is imported when an algorithm is built.
"""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic.config import JsonDict

from headrace.services.trainer.algorithms import options
from headrace.services.trainer.algorithms.algorithm import Algorithm, Estimate, Signals
from headrace.services.trainer.algorithms.options import PartOptions
from headrace.services.trainer.algorithms.own import checked_estimator, checked_loss, is_own
from headrace.services.trainer.algorithms.recipes import recipes


class Need(Flag):
    """An input that an advantage requires; a run that does not provide it is refused at its start."""

    NOTHING = 0
    GROUP = auto()
    """Two or more rollouts of a prompt: the others are the baseline."""
    CRITIC = auto()
    """`Signals.values`: a critic is trained beside the policy."""
    REFERENCE = auto()
    """`Signals.reference`: a reference model is loaded whatever `kl_coef` is."""
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
    token_rewards: bool = False
    """Whether an estimator takes rewards at their tokens, so that a KL may be subtracted from them."""

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
        Part("group", options.Normalization, "advantages.baselines:group", _GROUP),
        Part("group_process", options.Normalization, "advantages.baselines:group_process", _GROUP),
        Part("mean_baseline", PartOptions, "advantages.baselines:mean_baseline", _GROUP),
        Part("rloo", PartOptions, "advantages.baselines:rloo", _GROUP),
        Part("opo", PartOptions, "advantages.baselines:opo", _GROUP),
        Part("remax", PartOptions, "advantages.baselines:remax", Need.GREEDY),
        Part("online_dpo", options.PreferenceStrength, "advantages.baselines:online_dpo", _PAIRS),
        Part("return", options.Discount, "advantages.returns:discounted", token_rewards=True),
        Part("gae", options.GaeOptions, "advantages.returns:gae", _CRITIC, token_rewards=True),
        Part("k_step", options.KSteps, "advantages.returns:k_step", _CRITIC, token_rewards=True),
        Part("monte_carlo", options.Discount, "advantages.returns:monte_carlo", _CRITIC, token_rewards=True),
    )
}
POLICY_LOSSES = {
    part.name: part
    for part in (
        Part("policy_gradient", PartOptions, "losses.policy:policy_gradient"),
        Part("ppo_clip", options.PpoClip, "losses.policy:ppo_clip"),
        Part("ppo_kl", options.KlPenalty, "losses.policy:ppo_kl"),
        Part("sapo", options.SoftGate, "losses.token:sapo"),
        Part("cispo", options.ClipRange, "losses.token:cispo"),
        Part("dppo", options.ProbabilityBounds, "losses.token:dppo"),
        Part("gspo", options.ClipRange, "losses.sequence:gspo"),
        Part("gspo_token", options.ClipRange, "losses.sequence:gspo_token"),
    )
}


def _part_or_own(declared: Iterable[str]) -> JsonDict:
    """The schema of a key that names a part or a function of the user's own."""
    return {"anyOf": [{"enum": [*declared]}, {"pattern": "^[^:]+:[^:]+$"}]}


OwnNeed = Literal["group", "critic", "reference", "greedy", "old_logprobs", "token_rewards"]


class Composition(PartOptions):
    """A recipe and its parts."""

    name: str = Field("grpo", json_schema_extra={"enum": list(recipes())})
    """A recipe; `headrace algorithms` lists them with their defaults."""
    advantage: str = Field("group", json_schema_extra=_part_or_own(ADVANTAGES))
    """How good a token was: against the group, the greedy rollout (remax), nothing (return) or the critic.

    Scores of single tokens count in all of them; `group_process` compares the steps of a group with each other.
    docs/algorithms.md has all; `module:function` is one of your own.
    """
    policy_loss: str = Field("ppo_clip", json_schema_extra=_part_or_own(POLICY_LOSSES))
    """Loss of a token from advantage and ratio. docs/algorithms.md lists all; `module:function` is your own."""
    needs: tuple[OwnNeed, ...] = ()
    """For your own `advantage`: the inputs that it requires. The run provides them or is refused.

    `token_rewards`: it takes rewards at their tokens, so `kl_in = "reward"` may subtract a KL from them.
    """
    whiten: bool = False
    """Scale advantages to mean 0 and variance 1 over all tokens of the batch."""

    @field_validator("needs", mode="before")
    @classmethod
    def _array(cls, value: object) -> object:
        # A file has arrays: strictly they are no tuples.
        return tuple(value) if isinstance(value, list) else value

    @field_validator("advantage")
    @classmethod
    def _known_advantage(cls, value: str) -> str:
        return _known("advantage", value, ADVANTAGES)

    @field_validator("policy_loss")
    @classmethod
    def _known_loss(cls, value: str) -> str:
        return _known("policy_loss", value, POLICY_LOSSES)

    @property
    def estimator(self) -> Part:
        """The declaration of its advantage; that of a function of the user's own is `needs`."""
        if not is_own(self.advantage):
            return ADVANTAGES[self.advantage]
        needs = Need.NOTHING
        for name in self.needs:
            if name != "token_rewards":
                needs |= Need[name.upper()]
        return Part(self.advantage, PartOptions, self.advantage, needs, token_rewards="token_rewards" in self.needs)

    @property
    def own_functions(self) -> tuple[str, ...]:
        """Those of its parts that are functions of the user's own, as `module:function`."""
        return tuple(name for name in (self.advantage, self.policy_loss) if is_own(name))


def build_algorithm(table: Composition) -> Algorithm:
    """The algorithm of a resolved `[algorithm]` table; raises ConfigError for a function that cannot be imported."""
    from headrace.services.trainer.algorithms.advantages.estimates import whitened

    part, name, loss = table.estimator, table.advantage, table.policy_loss
    estimator = checked_estimator(name, returns=Need.CRITIC in part.needs) if is_own(name) else part.bind(table)

    def estimate(signals: Signals) -> Estimate:
        return whitened(estimator(signals), signals)

    return Algorithm(
        estimate=estimate if table.whiten else estimator,
        policy_loss=checked_loss(loss) if is_own(loss) else POLICY_LOSSES[loss].bind(table),
    )


def _known(key: str, name: str, declared: dict[str, Part]) -> str:
    if not is_own(name) and name not in declared:
        raise ValueError(f"{key} {name!r} is not one of {', '.join(declared)}")
    return name
