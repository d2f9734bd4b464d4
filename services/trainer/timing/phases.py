"""Where the time of a step goes: phases that do not overlap and add up to all of it.

The time of an inner phase is subtracted from the outer one; time outside all phases is `other`. These are the times of
rank 0, including its waits for the other ranks. Docs: docs/dashboard.md.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

OTHER = "other"
KEY = "phase_seconds_"
"""Prefix of a phase's key in metrics.jsonl."""
TRAIN = "train"
"""The phase around the optimizer step; the step's own phases replace it."""

Timed = Callable[[str], AbstractContextManager[object]]
"""`with timed("advantages"):` is a phase."""


def untimed(name: str) -> AbstractContextManager[object]:
    """Measures nothing."""
    return nullcontext()


class Clock(Protocol):
    """Takes marks in time."""

    def mark(self) -> Any:
        """Returns a mark for now."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Seconds between two of its marks."""
        ...


class HostClock:
    """Measures the process's own time."""

    def mark(self) -> float:
        """Reads the performance counter."""
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        """Subtracts the two readings."""
        return end - begin


class Phases:
    """A stopwatch of one thread: `with phases("snapshot"):`, then `lap`. An exception also ends a phase."""

    def __init__(self, clock: Clock | None = None, *, around: Timed = untimed) -> None:
        """`around`: another context that is opened for each phase, such as a span."""
        self._clock = clock if clock is not None else HostClock()
        self._around = around
        self._open: list[str] = []
        self._parts: list[tuple[str, Any, Any]] = []
        self._last = self._clock.mark()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times the phase `name`, which may occur repeatedly."""
        self._border()
        self._open.append(name)
        try:
            with self._around(name):
                yield
        finally:
            self._border()
            self._open.pop()

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the previous lap, or since the beginning; only phases that occurred."""
        self._border()
        seconds: dict[str, float] = {}
        for name, begin, end in self._parts:
            seconds[name] = seconds.get(name, 0.0) + self._clock.seconds(begin, end)
        self._parts.clear()
        return seconds

    def _border(self) -> None:
        mark = self._clock.mark()
        self._parts.append((self._open[-1] if self._open else OTHER, self._last, mark))
        self._last = mark


def joined(whole: Mapping[str, float], train: Mapping[str, float]) -> dict[str, float]:
    """Replaces TRAIN in a lap by its own phases; the rest of it is added to `other`.

    The two may use different clocks, so the rest is bounded below by 0.
    """
    seconds = {name: value for name, value in whole.items() if name != TRAIN}
    inner = {name: value for name, value in train.items() if name != OTHER}
    for name, value in inner.items():
        seconds[name] = seconds.get(name, 0.0) + value
    seconds[OTHER] = seconds.get(OTHER, 0.0) + max(whole.get(TRAIN, 0.0) - sum(inner.values()), 0.0)
    return seconds


def keyed(seconds: Mapping[str, float]) -> dict[str, float]:
    """Keys and values for metrics.jsonl, rounded to microseconds."""
    return {f"{KEY}{name}": round(value, 6) for name, value in seconds.items()}
