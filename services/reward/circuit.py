"""When a scorer is down, and when it is only one group that it cannot score. Pure: the clock is given.

A *whole failure* is a group of which the scorer could score nothing. `failures_in_row` different groups that fail
whole, with no success between them, mean that the scorer is down: its circuit opens, and groups stay where they are.
From time to time a few are let through; if one of them gets a score, the circuit closes. A group that fails whole
while others are scored has had its chances after `TRIES`: then it is the group, not the scorer.

Values that were refused (NaN, out of range) come of the scorer's judgement, not of its health: such a group is given up
at once, and only `REFUSED_ROW` times as many groups in a row mean that the scorer itself is broken.
"""

from enum import StrEnum

from wire.errors import HeadraceError, TransientError

TRIES = 3
"""Whole failures of one group before it is given up, the circuit closed."""
REFUSED_ROW = 10
"""See above."""
_FIRST_PROBE_S = 1.0
_LONGEST_PROBE_S = 30.0
_FEWEST_PROBES = 2
"""An outage is never declared before so many probes have failed, however long ago the circuit opened."""


class CircuitOpenError(TransientError):
    """The scorer is down; the group is to be tried again later."""

    def __init__(self, scorer: str, reason: str, retry_s: float) -> None:
        super().__init__(f"the scorer {scorer} is down: {reason}")
        self.scorer, self.reason, self.retry_s = scorer, reason, retry_s


class ScorerOutageError(HeadraceError):
    """A scorer has been down for longer than the run waits."""

    final = True


class Failure(StrEnum):
    """Why nothing of a group was scored."""

    FAILED = "failed"
    REFUSED = "refused"
    """Every value was one that no scorer may give."""
    DOWN = "down"
    """The scorer says that it can score nothing at all."""


class State(StrEnum):
    """Of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Circuit:
    """One scorer's. Times are seconds on one clock."""

    def __init__(self, scorer: str, *, failures_in_row: int, outage_s: float) -> None:
        self._scorer, self._failures_in_row, self._outage_s = scorer, failures_in_row, outage_s
        self.state = State.CLOSED
        self.reason = ""
        """Of the last failure; empty while closed."""
        self._row: set[str] = set()
        self._tries: dict[str, int] = {}
        self._opened = 0.0
        self._next_probe = 0.0
        self._wait = _FIRST_PROBE_S
        self._probes = 0
        self._admitted = 0

    def room(self, now: float) -> int | None:
        """How many groups may be tried now; None = any number."""
        if self.state is State.CLOSED:
            return None
        if self.state is State.OPEN and now < self._next_probe:
            return 0
        return max(0, self._failures_in_row + 1 - self._admitted)

    def admit(self, now: float) -> None:
        """A group is about to be tried; one of `succeed`, `fail` and `abandon` must follow.

        Raises CircuitOpenError if it must wait.
        """
        room = self.room(now)
        if room == 0:
            raise CircuitOpenError(self._scorer, self.reason, max(0.1, self._next_probe - now))
        if room is not None:
            self.state = State.PROBING
        self._admitted += 1

    def abandon(self) -> None:
        """The try came to no end: it says nothing."""
        self._admitted -= 1
        if self.state is State.PROBING and self._admitted <= 0:
            self.state = State.OPEN

    def succeed(self, group: str) -> None:
        """Something of the group was scored: the scorer works."""
        self._admitted -= 1
        self.state, self.reason, self._wait, self._probes = State.CLOSED, "", _FIRST_PROBE_S, 0
        self._row.clear()
        self._tries.pop(group, None)

    def fail(self, group: str, reason: str, now: float, why: Failure = Failure.FAILED) -> bool:
        """Nothing of the group was scored.

        Returns True if the group is to be given up: it abstains. Raises CircuitOpenError if it is to be tried again,
        ScorerOutageError if the scorer has been down for too long.
        """
        self._admitted -= 1
        self.reason = reason
        if self.state is State.OPEN:  # It was let through before the circuit opened.
            raise CircuitOpenError(self._scorer, reason, max(0.1, self._next_probe - now))
        if self.state is State.PROBING:
            return self._fail_probe(now)
        self._row.add(group)
        longest_row = self._failures_in_row * (REFUSED_ROW if why is Failure.REFUSED else 1)
        if why is Failure.DOWN or len(self._row) >= longest_row:
            self._open(now)
            raise CircuitOpenError(self._scorer, reason, self._wait)
        if why is Failure.REFUSED:
            return True
        tries = self._tries[group] = self._tries.get(group, 0) + 1
        if tries >= TRIES:
            self._tries.pop(group)
            return True
        raise CircuitOpenError(self._scorer, reason, 0.1 * 2**tries)

    def _open(self, now: float) -> None:
        self.state, self._opened, self._next_probe = State.OPEN, now, now + self._wait
        self._row.clear()
        self._tries.clear()

    def _fail_probe(self, now: float) -> bool:
        if self._admitted <= 0:
            self._probes += 1
            self._wait = min(self._wait * 2, _LONGEST_PROBE_S, max(_FIRST_PROBE_S, self._outage_s / 4))
            self.state, self._next_probe = State.OPEN, now + self._wait
        if now - self._opened >= self._outage_s and self._probes >= _FEWEST_PROBES:
            raise ScorerOutageError(
                f"the scorer {self._scorer} has been down for {now - self._opened:.0f} s (reward.outage_s = "
                f"{self._outage_s:g}): {self.reason}. Nothing was lost: mend it, then continue with --resume"
            )
        raise CircuitOpenError(self._scorer, self.reason, max(0.1, self._next_probe - now))
