"""Reads the reward of an episode from the file that a program or a reward command has written. Pure."""

import json
import math

from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.wire.contracts import EnvironmentReward


def reward_of(name: str, text: str) -> EnvironmentReward:
    """A number, or in a file `*.json` an object: `reward` and components, each a number; without `reward` their sum.

    Raises EnvironmentFailedError for anything else.
    """
    try:
        found = json.loads(text)
    except ValueError:
        raise EnvironmentFailedError(f"{name}: {text[:100]!r} is no number, and no JSON") from None
    if not (isinstance(found, dict) and name.endswith(".json")):
        return EnvironmentReward(value=_number(name, found))
    numbers = {str(key): _number(f"{name}: {key}", value) for key, value in found.items()}
    if not numbers:
        raise EnvironmentFailedError(f"{name}: it holds no number")
    value = numbers.pop("reward", None)
    return EnvironmentReward(value=sum(numbers.values()) if value is None else value, components=numbers)


def _number(place: str, value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise EnvironmentFailedError(f"{place}: {str(value)[:100]} is no finite number")
    return float(value)
