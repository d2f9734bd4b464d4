"""Operations that hold other work up, such as a synchronous checkpoint, as gauges: what is under way, and until when.

An alert on work that stands still must keep quiet meanwhile, and no longer: an operation that outlasts its deadline
alerts, and so does a process that died in one (its series end with it; the next life's begin at 0).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Operation:
    """One kind of operation of this process; used by one thread at a time."""

    def __init__(self, active: Callable[[float], object], until: Callable[[float], object]) -> None:
        """They set its two gauges: 1 while it is under way, and a unix time."""
        self._active, self._until = active, until

    @contextmanager
    def __call__(self, limit_s: float) -> Iterator[None]:
        """It is under way inside, and expected to last `limit_s` seconds at most; also an exception ends it."""
        self._until(time.time() + limit_s)
        self._active(1)
        try:
            yield
        finally:
            self._active(0)
            # Whatever it held up begins to count now, as after a pause.
            self._until(time.time())
