"""JSON that comes from elsewhere: requests, and files that may be torn or odd. Pure.

Python's own reader takes NaN and numbers without an end, which no JSON has, and raises RecursionError for what is
nested too deeply.
"""

import json
import math
from typing import Any


def read_strict(text: str | bytes) -> Any:
    """For requests. Raises ValueError for anything but JSON, and for what is nested too deeply."""
    return _read(text, parse_constant=_refuse)


def read_lenient(text: str | bytes) -> Any:
    """For files: NaN and what is too large for a double are None. Raises ValueError for anything else but JSON."""
    return _read(text, parse_constant=_nothing, parse_float=_finite)


def _read(text: str | bytes, **how: Any) -> Any:
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number in JSON")


def _nothing(_: str) -> None:
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
