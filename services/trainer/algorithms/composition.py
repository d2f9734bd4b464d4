"""The keys of `[algorithm]` that choose the parts, and how these are put together. Imports no torch."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator
from pydantic.config import JsonDict

from headrace.services.trainer.algorithms.algorithm import Algorithm, Estimate, Signals
from headrace.services.trainer.algorithms.own import checked_estimator, checked_loss, is_own
from headrace.services.trainer.algorithms.parts import ADVANTAGES, POLICY_LOSSES, Need, Part, PartOptions
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.wire.config.nearest import unknown


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

    `token_rewards`: it takes rewards at their tokens, or `penalties` off its own, as `kl_in = "reward"` asks.
    """
    whiten: bool = False
    """Scale advantages to mean 0 and variance 1 over the trained tokens of the batch."""

    @field_validator("needs", mode="before")
    @classmethod
    def _array(cls, value: object) -> object:
        # A file has arrays, which are not tuples in strict mode.
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
        """The declaration of its advantage; a user's own function declares `needs`."""
        if not is_own(self.advantage):
            return ADVANTAGES[self.advantage]
        needs = Need.NOTHING
        for name in self.needs:
            if name != "token_rewards":
                needs |= Need[name.upper()]
        return Part(self.advantage, PartOptions, self.advantage, needs, penalties="token_rewards" in self.needs)

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
        raise ValueError(f"{key} {unknown(name, declared)}")
    return name
