"""The JSON that a completion is: the whole of it, or its last fenced block. Pure."""

import itertools
import json
import math

_FENCE = "```"
_LONGEST = 1 << 20


def read_json(completion: str) -> object:
    """The value; raises ValueError or RecursionError for invalid JSON, and for numbers that are not finite."""
    text = completion.strip()
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    try:
        return _loads(text)
    except ValueError:
        fenced = _last_fenced(text)
        if fenced is None:
            raise
    return _loads(fenced)


def _loads(text: str) -> object:
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


def _last_fenced(text: str) -> str | None:
    """What stands between the last two fences, if the opening one is marked `json` or not marked at all."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.lstrip().startswith(_FENCE)]
    for begin, end in reversed(list(itertools.pairwise(fences))):
        if lines[begin].strip(" \t`").lower() in ("json", "") and lines[end].strip() == _FENCE:
            return "\n".join(lines[begin + 1 : end])
    return None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is no finite number")
    return value
