"""How a part is declared: a decorator takes its name, its typed options and what it needs.

`[algorithm]` has the keys of all options, and everything else that names parts is derived from the declarations. They
are read where there is no torch: a function imports torch, and what needs it, inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from headrace.services.trainer.algorithms.algorithm import Estimate, PolicyLoss, PolicyTokens, Signals

    Estimator = Callable[[Signals], Estimate]
    LossFunction = Callable[[PolicyTokens], PolicyLoss]


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


NOTHING, GROUP, CRITIC = Need.NOTHING, Need.GROUP, Need.CRITIC
REFERENCE, GREEDY, OLD_LOGPROBS = Need.REFERENCE, Need.GREEDY, Need.OLD_LOGPROBS


class PartOptions(BaseModel):
    """Hyper-parameters of a part: keys of `[algorithm]` with bounds, default and meaning."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


OptionsT = TypeVar("OptionsT", bound=PartOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The declaration of a part, without its function."""

    name: str
    options: type[PartOptions]
    what: str
    """What it computes, in one line."""
    notes: str
    """Where libraries differ, and the choice made here."""
    problem: Callable[[PartOptions], str | None]
    """The reason why the values of a table cannot work with it, with the fix; None if they can."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of `[algorithm]` that it reads."""
        return tuple(self.options.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantagePart(Part):
    """An estimator of advantages."""

    bind: Callable[[PartOptions], Estimator]
    """The estimator with the options of a table."""
    needs: Need
    token_rewards: bool
    """Whether it takes rewards at their tokens, so that a KL may be subtracted from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLossPart(Part):
    """A policy loss."""

    bind: Callable[[PartOptions], LossFunction]
    """The loss with the options of a table."""


ADVANTAGES: dict[str, AdvantagePart] = {}
"""By name, in the order of declaration; filled when `registry` is imported."""
POLICY_LOSSES: dict[str, PolicyLossPart] = {}


def no_problem(_options: PartOptions) -> None:
    """The check of a part that works with all values of its keys."""


def advantage(
    name: str,
    options: type[OptionsT],
    *,
    needs: Need = NOTHING,
    token_rewards: bool = False,
    problem: Callable[[OptionsT], str | None] = no_problem,
) -> Callable[[Callable[[Signals, OptionsT], Estimate]], Callable[[Signals, OptionsT], Estimate]]:
    """Declares an estimator of advantages; its docstring's first line is `what`, the others `notes`."""

    def declare(function: Callable[[Signals, OptionsT], Estimate]) -> Callable[[Signals, OptionsT], Estimate]:
        def bind(values: PartOptions) -> Estimator:
            own = _own(values, options)
            return lambda signals: function(signals, own)

        what, notes = _documented(function)
        ADVANTAGES[_free(name, ADVANTAGES)] = AdvantagePart(
            name=name,
            options=options,
            what=what,
            notes=notes,
            bind=bind,
            needs=needs,
            token_rewards=token_rewards,
            problem=lambda values: problem(_own(values, options)),
        )
        return function

    return declare


def policy_loss(
    name: str, options: type[OptionsT], *, problem: Callable[[OptionsT], str | None] = no_problem
) -> Callable[[Callable[[PolicyTokens, OptionsT], PolicyLoss]], Callable[[PolicyTokens, OptionsT], PolicyLoss]]:
    """Declares a policy loss; its docstring's first line is `what`, the others `notes`."""

    def declare(
        function: Callable[[PolicyTokens, OptionsT], PolicyLoss],
    ) -> Callable[[PolicyTokens, OptionsT], PolicyLoss]:
        def bind(values: PartOptions) -> LossFunction:
            own = _own(values, options)
            return lambda tokens: function(tokens, own)

        what, notes = _documented(function)
        POLICY_LOSSES[_free(name, POLICY_LOSSES)] = PolicyLossPart(
            name=name,
            options=options,
            what=what,
            notes=notes,
            bind=bind,
            problem=lambda values: problem(_own(values, options)),
        )
        return function

    return declare


def _own(values: PartOptions, options: type[OptionsT]) -> OptionsT:
    """The table as the options of one part: the table inherits from the options of all of them."""
    if not isinstance(values, options):
        raise TypeError(f"{type(values).__name__} has not the keys of {options.__name__}")
    return values


def _free(name: str, declared: dict[str, AdvantagePart] | dict[str, PolicyLossPart]) -> str:
    if name in declared:
        raise ValueError(f"the part {name!r} is declared twice")
    return name


def _documented(function: Callable[..., object]) -> tuple[str, str]:
    what, _, notes = inspect.cleandoc(function.__doc__ or "").partition("\n")
    if not what:
        raise ValueError(f"{function.__qualname__} needs a docstring: the tables of docs/algorithms.md are made of it")
    return what.rstrip("."), " ".join(notes.split())
