"""Share of the time in which this replica was idle: one of the two measures of which side to scale."""

import math

MEMORY_S = 10.0
"""Time constant of the smoothing: after this time a reading has 1/e of its weight."""


class WaitingDial:
    """Measures the idle time. Clock values (monotonic seconds) are passed in."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._idle_since: float | None = now
        self._waited = 0.0
        self._share: float | None = None

    def observe(self, busy: bool, now: float) -> None:
        """Records that there is work from `now` on, or that there is none."""
        if busy and self._idle_since is not None:
            self._waited += now - self._idle_since
            self._idle_since = None
        elif not busy and self._idle_since is None:
            self._idle_since = now

    def read(self, now: float) -> float:
        """Exponentially smoothed share of idle time, in [0, 1].

        Smoothed over `MEMORY_S`, because readings coincide with changes of state, and an update is a short idle time.
        """
        if self._idle_since is not None:
            self._waited += now - self._idle_since
            self._idle_since = now
        seconds = now - self._since
        if seconds > 0:
            share = min(max(self._waited / seconds, 0.0), 1.0)
            old = math.exp(-seconds / MEMORY_S) if self._share is not None else 0.0
            self._share = old * (self._share or 0.0) + (1 - old) * share
        self._since, self._waited = now, 0.0
        return self._share or 0.0
