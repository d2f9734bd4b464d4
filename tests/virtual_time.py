"""A loop whose time is its own: it passes only when nothing is left to do, and then at once.

What a test says of seconds is then said of the program, and not of the machine that it shares with others. For code
that uses neither threads nor sockets: nobody waits for them.
"""

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Passes the time that it is to wait for, in place of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if timeout is None:
            assert found, "all tasks wait, and nothing is left that could wake one"
        elif not found:
            self.now += max(timeout, 0.0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_in_own_time(main: Callable[[], Awaitable[T]], monkeypatch: pytest.MonkeyPatch) -> T:
    """Runs `main()` to its end; `time.monotonic` tells the loop's time meanwhile."""

    async def begun() -> T:
        return await main()

    with asyncio.Runner(loop_factory=_Loop) as runner, monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", runner.get_loop().time)
        return runner.run(begun())
