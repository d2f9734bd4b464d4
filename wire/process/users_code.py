"""Errors of the user's own code, a scorer's or an environment's: where it is, and when it is broken for good. Pure."""

import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

FIRST_GROUPS = 3
"""Different groups that fail whole with one and the same error, before anything has worked."""
_LONGEST_TRACE = 16_000
_SHOWN = 300


class FirstFailures:
    """Separates broken code from inputs that it cannot take: the first groups fail whole, all in the same way."""

    def __init__(self) -> None:
        self._has_worked = False
        self._last: list[tuple[str, object]] = []
        """Group and error of the last whole failures, one a group."""

    def worked(self) -> None:
        """Some of a group did not fail: from now on no failure is one of the code alone."""
        self._has_worked = True

    def failed(self, group: str, error: object) -> bool:
        """Takes a group that failed whole; True if the first `FIRST_GROUPS` groups have, with equal errors."""
        if self._has_worked:
            return False
        self._last = [*(one for one in self._last if one[0] != group), (group, error)][-FIRST_GROUPS:]
        return len(self._last) == FIRST_GROUPS and all(one[1] == error for one in self._last)


@dataclass(frozen=True, slots=True)
class Bug:
    """An exception of Python's own classes that the user's code raised; equal if class and place are."""

    kind: str
    """Name of its class."""
    place: str
    """`path/file.py:line`."""
    trace: str = field(default="", compare=False)
    """The whole traceback."""


def bug_of(error: BaseException, own: Path) -> Bug | None:
    """The bug that `error` shows; None for what may pass: errors of the system, of networks and of other packages.

    `own`: the folder of our code that called the user's.
    """
    passing = isinstance(error, OSError | MemoryError | SystemExit)
    if passing or type(error).__module__ != "builtins" or not (place := place_of(error, own)):
        return None
    trace = "".join(traceback.format_exception(error))
    return Bug(type(error).__name__, place, trace[-_LONGEST_TRACE:])


def place_of(error: BaseException, own: Path) -> str:
    """`path/file.py:line` of the innermost frame of the user's own files; empty if there is none.

    `own`: the folder of our code that called the user's.
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not Path(one.filename).is_relative_to(own)]
    users = [one for one in frames if not one.filename.startswith(("<frozen", sys.base_prefix, sys.prefix))] or frames
    return f"{users[-1].filename}:{users[-1].lineno}" if users else ""


def shown(text: str, longest: int = _SHOWN) -> str:
    """The text as a terminal gets it: each of its lines cut to `longest` characters, with the number left out."""
    return "\n".join(
        line if len(line) <= longest else f"{line[:longest]}... ({len(line) - longest} more characters in the log)"
        for line in text.splitlines()
    )
