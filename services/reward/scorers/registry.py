"""Finds a scorer by name. A module is imported when one of its scorers is asked for, not before."""

import functools
import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from services.reward.scorers.base import Build, Context, Scorer
from wire.errors import ConfigError

_RULES = "services.reward.scorers.rules"
BUILT_IN: dict[str, str] = {
    "exact_match": f"{_RULES}:exact_match",
    "numeric": f"{_RULES}:numeric",
    "boxed": f"{_RULES}:boxed",
    "format": f"{_RULES}:matches_format",
    "length": f"{_RULES}:length",
    "overlong": f"{_RULES}:overlong",
    "repetition": f"{_RULES}:repetition",
    "language": "services.reward.scorers.language:build",
    "json_schema": "services.reward.scorers.json_schema:build",
    "math": "services.reward.scorers.math:build",
    "code": "services.reward.scorers.code:build",
    "reward_model": "services.reward.scorers.reward_model:build",
    "reward_endpoint": "services.reward.scorers.reward_endpoint:build",
    "judge": "services.reward.judge.single:build",
    "pairwise_judge": "services.reward.judge.pairwise:build",
    "discriminator": "services.reward.scorers.discriminator:build",
}
"""Name -> `module:build`."""
USER = {
    "": "services.reward.user.plain:build",
    "trl": "services.reward.user.trl:build",
    "verl": "services.reward.user.verl:build",
    "verifiers": "services.reward.user.verifiers:build",
}
"""Prefix of the user's own scorers -> `module:build`, which takes the rest of the name first."""


def build_scorer(name: str, options: Mapping[str, Any], context: Context) -> Scorer:
    """Makes the scorer `name`; raises ConfigError naming what is wrong and the way out. Loads nothing yet."""
    return _find(name)(options, context)


def _find(name: str) -> Build:
    if name in BUILT_IN:
        return cast(Build, _attribute(BUILT_IN[name]))
    prefix, colon, rest = name.partition(":")
    if colon:
        is_known = prefix in USER
        target = USER[prefix] if is_known else USER[""]
        return functools.partial(_attribute(target), rest if is_known else name)
    near = get_close_matches(name, [*BUILT_IN, "ensemble"], 1)
    known = ", ".join(BUILT_IN)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {known}, ensemble, or your own module:function"
    raise ConfigError(f"no scorer {name!r}; {hint}")


def _attribute(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
