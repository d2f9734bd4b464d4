"""Which share of the time this replica had nothing to do: one of the two dials that say which side to scale."""


class WaitingDial:
    """Counts the time without work between two readings. The clock's value is passed in."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._idle_since: float | None = now
        self._waited = 0.0

    def observe(self, busy: bool, now: float) -> None:
        """There is work from now on, or there is none."""
        if busy and self._idle_since is not None:
            self._waited += now - self._idle_since
            self._idle_since = None
        elif not busy and self._idle_since is None:
            self._idle_since = now

    def read(self, now: float) -> float:
        """Share of the time since the last reading spent without work, in [0, 1]."""
        if self._idle_since is not None:
            self._waited += now - self._idle_since
            self._idle_since = now
        seconds = now - self._since
        share = self._waited / seconds if seconds > 0 else 0.0
        self._since, self._waited = now, 0.0
        return min(max(share, 0.0), 1.0)
