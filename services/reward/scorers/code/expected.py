"""What a test expects of a program, and whether its output is that. Pure, and outside the sandbox."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.services.reward.scorers.code.values import close, frozen, read_value, same, truth

_REAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d{1,4})?")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
_LONGEST_NUMBER = 64


class ExpectedOutput(Protocol):
    """What a test expects."""

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Whether the output is right; raises ValueError if it cannot even be read."""
        ...


@dataclass(frozen=True, slots=True)
class Printed:
    """Text on standard output, compared as people do: white space at the ends of lines and of the text is nothing, and
    numbers with a point are equal within the tolerance, relative or absolute.
    """

    text: str

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Line by line, then word by word."""
        found, wanted = _lines(output.decode(errors="replace")), _lines(self.text)
        if found == wanted:
            return True
        if len(found) != len(wanted):
            return False
        return all(
            one == other or _same_words(one.split(), other.split(), tolerance)
            for one, other in zip(found, wanted, strict=True)
        )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_words(found: Sequence[str], wanted: Sequence[str], tolerance: float) -> bool:
    if len(found) != len(wanted):
        return False
    return all(one == other or _near(one, other, tolerance) for one, other in zip(found, wanted, strict=True))


def _near(found: str, wanted: str, tolerance: float) -> bool:
    if max(len(found), len(wanted)) > _LONGEST_NUMBER or not (_REAL.fullmatch(wanted) and _NUMBER.fullmatch(found)):
        return False
    return close(float(found), float(wanted), tolerance)


@dataclass(frozen=True, slots=True)
class Equals:
    """A returned value, equal to this one as Python has it; where this one is a real, within the tolerance."""

    value: object
    loosely: bool = False
    """It comes from JSON: a tuple, or what gives items in order, may stand for a list, a key that is not text for its
    text."""
    wrapped: bool = False
    """It comes from APPS: a list of one value may stand for that value."""
    shape: Callable[[object], object] | None = None
    """Is applied to the returned value first, e.g. `sorted`."""

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Raises ValueError for an output that no value was encoded to."""
        found = read_value(output)
        if self.shape is not None:
            found = self.shape(found)
        wanted = frozen(self.value)
        if same(found, wanted, tolerance, loosely=self.loosely):
            return True
        if self.wrapped and isinstance(wanted, list) and len(wanted) == 1:
            return same(found, wanted[0], tolerance, loosely=self.loosely)
        return False


@dataclass(frozen=True, slots=True)
class Holds:
    """A returned value that is true, or false, as `bool` has it."""

    truth: bool

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Raises ValueError for an output that no value was encoded to."""
        return truth(read_value(output)) is self.truth


@dataclass(frozen=True, slots=True)
class Is:
    """A returned value that is this one, as `is` has it of None, a bool, and small numbers and texts: 1 is not True."""

    value: bool | int | float | str | None

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Raises ValueError for an output that no value was encoded to."""
        found = read_value(output)
        return type(found) is type(self.value) and bool(found == self.value)


@dataclass(frozen=True, slots=True)
class Differs:
    """A returned value that is not this one."""

    other: Equals | Is

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Raises ValueError for an output that no value was encoded to."""
        return not self.other.accepts(output, tolerance)


@dataclass(frozen=True, slots=True)
class Near:
    """A returned number within its assert's own tolerance."""

    value: float
    absolute: float
    relative: float

    def accepts(self, output: bytes, tolerance: float) -> bool:
        """Raises ValueError for an output that no value was encoded to."""
        found = read_value(output)
        if not isinstance(found, int | float):
            return False
        try:
            return math.isclose(found, self.value, rel_tol=self.relative, abs_tol=self.absolute)
        except OverflowError:
            return False
