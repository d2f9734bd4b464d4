"""Finds a scorer by name. A module is imported when one of its scorers is asked for, not before."""

import functools
import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from headrace.services.reward.scorer import Build, Context, Scorer
from headrace.wire.errors import ConfigError

_RULES = "headrace.services.reward.scorers.rules.builtin"
BUILT_IN: dict[str, str] = {
    "exact_match": f"{_RULES}:exact_match",
    "numeric": f"{_RULES}:numeric",
    "boxed": f"{_RULES}:boxed",
    "format": f"{_RULES}:matches_format",
    "length": f"{_RULES}:length",
    "environment": "headrace.services.reward.scorers.rules.environment:environment",
    "overlong": f"{_RULES}:overlong",
    "repetition": f"{_RULES}:repetition",
    "language": "headrace.services.reward.scorers.rules.language:build",
    "json_schema": "headrace.services.reward.scorers.json.scorer:build",
    "math": "headrace.services.reward.scorers.math.scorer:build",
    "code": "headrace.services.reward.scorers.code.scorer:build",
    "reward_model": "headrace.services.reward.scorers.models.reward_model:RewardModel",
    "reward_endpoint": "headrace.services.reward.scorers.models.reward_endpoint:RewardEndpoint",
    "teacher": "headrace.services.reward.scorers.models.teacher:build",
    "judge": "headrace.services.reward.judge.single:Judge",
    "pairwise_judge": "headrace.services.reward.judge.pairwise:PairwiseJudge",
    "discriminator": "headrace.services.reward.scorers.models.discriminator:DiscriminatorScorer",
}
"""Name -> `module:build`, or a scorer's class with its `Options`."""
USER = {
    "": "headrace.services.reward.user.plain:PlainScorer",
    "trl": "headrace.services.reward.user.trl:TrlScorer",
    "verl": "headrace.services.reward.user.verl:VerlScorer",
    "verifiers": "headrace.services.reward.user.verifiers:build",
}
"""Prefix of the user's own scorers -> what makes them, which takes the rest of the name first."""


def build_scorer(name: str, options: Mapping[str, object], context: Context) -> Scorer:
    """Makes the scorer `name`; raises ConfigError naming what is wrong and the way out. Loads nothing yet."""
    return _find(name)(options, context)


def _find(name: str) -> Build:
    if name in BUILT_IN:
        found = _attribute(BUILT_IN[name])
        return cast(Build, found if not isinstance(found, type) else functools.partial(_made, found))
    prefix, colon, rest = name.partition(":")
    if colon:
        is_known = prefix in USER
        target = USER[prefix] if is_known else USER[""]
        return functools.partial(_attribute(target), rest if is_known else name)
    near = get_close_matches(name, [*BUILT_IN, "ensemble"], 1)
    known = ", ".join(BUILT_IN)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {known}, ensemble, or your own module:function"
    raise ConfigError(f"no scorer {name!r}; {hint}")


def _made(kind: Any, options: Mapping[str, object], context: Context) -> Scorer:
    return cast(Scorer, kind(context.options(kind.Options, options), context))


def _attribute(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
