"""Parses untrusted JSON: requests, and files that may be truncated or malformed. Pure.

Python's own parser accepts NaN and infinities, which are not JSON, and raises RecursionError for deeply nested input.
"""

import json
import math
from typing import Any


def read_strict(text: str | bytes) -> Any:
    """Parses a request. Raises ValueError for invalid JSON and for too deep nesting."""
    return _read(text, parse_constant=_refuse)


def read_lenient(text: str | bytes) -> Any:
    """Parses a file: NaN, infinities and overflowing numbers become None. Raises ValueError for invalid JSON."""
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
