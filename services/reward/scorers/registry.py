"""Finds a scorer by name: a built-in, or the user's own function by `module:function`.

A scorer is given one rollout, or a whole group at once where it can do more with it (`GROUP_BUILT_IN`).
"""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import numpy as np

from services.reward.scorers import rules
from services.reward.scorers.reward_model import RewardModel
from wire.contracts import FinishReason, PolicyVersion, Rollout, RolloutGroup, VersionSpan
from wire.errors import ConfigError, DataError

Scorer = Callable[[Rollout, Mapping[str, Any]], float]
GroupScorer = Callable[[RolloutGroup], Sequence[float]]
"""One score a rollout, in order."""

BUILT_IN: dict[str, Callable[..., float]] = {
    "exact_match": rules.exact_match,
    "numeric": rules.numeric,
    "format": rules.matches_format,
    "length": rules.length,
}
GROUP_BUILT_IN: dict[str, Callable[..., GroupScorer]] = {"reward_model": RewardModel}
"""Called with the options once, then with each group. One with a method `load` is loaded before the first.

One with a true `exclusive` is given one group at a time.
"""

_PROBE = Rollout(
    rollout_id="probe",
    token_ids=np.zeros(1, np.int32),
    logprobs=np.zeros(1, np.float32),
    finish_reason=FinishReason.STOP,
    spans=(VersionSpan(start=0, end=1, version=PolicyVersion(incarnation=0, version=0)),),
)


def load_group_scorer(name: str, options: Mapping[str, Any]) -> GroupScorer:
    """The scorer `name` for whole groups; raises ConfigError naming what is wrong and the way out."""
    if name in GROUP_BUILT_IN:
        build = GROUP_BUILT_IN[name]
        try:
            inspect.signature(build).bind(**options)
        except TypeError as error:
            raise ConfigError(f"{name}: {error}") from error
        return build(**options)
    scorer = load_scorer(name, options)
    return lambda group: [float(scorer(rollout, group.prompt.columns)) for rollout in group.rollouts]


def load_scorer(name: str, options: Mapping[str, Any]) -> Scorer:
    """Binds `options` to the scorer `name`; raises ConfigError naming what is wrong and the way out.

    A user's function is called as `function(completion, **columns, **options)` with the completion's text.
    """
    if ":" in name:
        return _user_scorer(name, dict(options))
    if name not in BUILT_IN:
        known = [*BUILT_IN, *GROUP_BUILT_IN]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}, or module:function"
        raise ConfigError(f"no scorer {name!r}; {hint}")
    function = BUILT_IN[name]
    try:
        inspect.signature(function).bind(None, {}, **options)
        re.compile(options.get("pattern", ""))
    except (TypeError, re.error) as error:
        raise ConfigError(f"{name}: {error}") from error
    return lambda rollout, columns: function(rollout, columns, **options)


def check_columns(name: str, options: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
    """Raises what the scorer would raise for a row with these columns, whatever was said.

    A user's function is not called: only whether it takes the columns is looked at. One that scores whole groups
    takes no columns.
    """
    if name in GROUP_BUILT_IN:
        return
    if ":" not in name:
        load_scorer(name, options)(_PROBE, columns)
        return
    try:
        inspect.signature(_user_function(name)).bind("", **{**columns, **options})
    except TypeError as error:
        raise DataError(
            f"{name} is called with the data's columns as keywords: {error}; let it take **columns"
        ) from error


def _user_function(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name}: {error}; put the module's folder into reward.path") from error
    except Exception as error:  # Importing runs the user's code: it may raise anything.
        raise ConfigError(f"{name}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"{name} is not a function")
    return cast(Callable[..., Any], function)


def _user_scorer(name: str, options: dict[str, Any]) -> Scorer:
    function = _user_function(name)
    return lambda rollout, columns: float(function(rollout.text, **{**columns, **options}))
