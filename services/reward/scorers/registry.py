"""Finds a scorer by name: a built-in, or the user's own function by `module:function`."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from services.reward.scorers import rules
from wire.contracts import Rollout
from wire.errors import ConfigError

Scorer = Callable[[Rollout, Mapping[str, Any]], float]

BUILT_IN: dict[str, Callable[..., float]] = {
    "exact_match": rules.exact_match,
    "numeric": rules.numeric,
    "format": rules.matches_format,
    "length": rules.length,
}


def load_scorer(name: str, options: Mapping[str, Any]) -> Scorer:
    """Binds `options` to the scorer `name`; raises ConfigError naming what is wrong and the way out.

    A user's function is called as `function(completion, **columns, **options)` with the completion's text.
    """
    if ":" in name:
        return _user_scorer(name, dict(options))
    if name not in BUILT_IN:
        near = get_close_matches(name, BUILT_IN, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BUILT_IN)}, or module:function"
        raise ConfigError(f"reward.scorers: no scorer {name!r}; {hint}")
    function = BUILT_IN[name]
    try:
        inspect.signature(function).bind(None, {}, **options)
    except TypeError as error:
        raise ConfigError(f"reward.scorers: {name}: {error}") from error
    return lambda rollout, columns: function(rollout, columns, **options)


def _user_scorer(name: str, options: dict[str, Any]) -> Scorer:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"reward.scorers: {name}: {error}; put the module's folder into reward.path") from error
    if not callable(function):
        raise ConfigError(f"reward.scorers: {name} is not a function")
    return lambda rollout, columns: float(function(rollout.text, **{**columns, **options}))
