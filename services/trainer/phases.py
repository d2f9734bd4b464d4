"""Where the time of a step goes: phases that do not overlap and together are all of it.

What is open inside a phase is taken off that phase; what no phase was open for is `other`. Rank 0's time: in it are its
waits for the other ranks. Docs: docs/dashboard.md.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

OTHER = "other"
KEY = "phase_seconds_"
"""Before a phase's name it is the key of metrics.jsonl."""
TRAIN = "train"
"""Around the optimizer step; what the step tells by itself takes its place."""

Timed = Callable[[str], AbstractContextManager[object]]
"""`with timed("advantages"):` is a phase."""


def untimed(name: str) -> AbstractContextManager[object]:
    """Measures nothing."""
    return nullcontext()


class Clock(Protocol):
    """Marks in time."""

    def mark(self) -> Any:
        """Now."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two of its marks."""
        ...


class HostClock:
    """What the process does."""

    def mark(self) -> float:
        """See `Clock`."""
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        """See `Clock`."""
        return end - begin


class Phases:
    """A stopwatch of one thread: `with phases("snapshot"):`, then `lap`. Also an exception ends a phase."""

    def __init__(self, clock: Clock | None = None, *, around: Timed = untimed) -> None:
        """`around`: what else is opened for the time of a phase, such as a span."""
        self._clock = clock if clock is not None else HostClock()
        self._around = around
        self._open: list[str] = []
        self._parts: list[tuple[str, Any, Any]] = []
        self._last = self._clock.mark()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """The phase `name`; the same one may come often."""
        self._border()
        self._open.append(name)
        try:
            with self._around(name):
                yield
        finally:
            self._border()
            self._open.pop()

    def lap(self) -> dict[str, float]:
        """Seconds of each phase since the lap before, or since the beginning; only of those that there were."""
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
    """A lap in which TRAIN is replaced by its own phases; what they leave of it is `other`.

    The two may be of different clocks: what is left is never less than 0.
    """
    seconds = {name: value for name, value in whole.items() if name != TRAIN}
    inner = {name: value for name, value in train.items() if name != OTHER}
    for name, value in inner.items():
        seconds[name] = seconds.get(name, 0.0) + value
    seconds[OTHER] = seconds.get(OTHER, 0.0) + max(whole.get(TRAIN, 0.0) - sum(inner.values()), 0.0)
    return seconds


def keyed(seconds: Mapping[str, float]) -> dict[str, float]:
    """As metrics.jsonl has them: microseconds are enough."""
    return {f"{KEY}{name}": round(value, 6) for name, value in seconds.items()}
