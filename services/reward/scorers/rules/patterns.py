"""Regular expressions of users on texts of a policy: each match ends."""

import functools
import time
from collections.abc import Callable

import regex

MATCH_S = 0.5
"""For one match of a pattern."""
_TRIES = 3


class PatternTimeoutError(ValueError):
    """A pattern did not end on a text."""


@functools.lru_cache(maxsize=64)
def compiled(pattern: str) -> "regex.Pattern[str]":
    """A pattern whose `.` matches line ends. Raises ValueError for one that is none."""
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


def in_time(match: Callable[..., object], text: str) -> bool:
    """Whether a compiled pattern's method matches. Lets other work go on meanwhile.

    Raises PatternTimeoutError for a text that keeps it busy, TimeoutError if the machine gave it no time.
    """
    for _ in range(_TRIES):
        begin = time.thread_time()
        try:
            return match(text, timeout=MATCH_S, concurrent=True) is not None
        except TimeoutError:
            if time.thread_time() - begin > MATCH_S / 2:
                raise PatternTimeoutError(f"a pattern did not end within {MATCH_S:g} s on this text") from None
    raise TimeoutError("the machine is too busy for a pattern")
