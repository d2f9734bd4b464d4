"""When a scorer is down, and when it is only one group that it cannot score. Pure: the clock is given.

A *whole failure* is a group of which the scorer could score nothing. `failures_in_row` different groups that fail
whole, with no success between them, mean that the scorer is down: its circuit opens, and groups stay where they are.
From time to time a few are let through; if one of them gets a score, the circuit closes. A group that fails whole
while others are scored has had its chances after `TRIES`: then it is the group, not the scorer.

Values that were refused (NaN, out of range) come of the scorer's judgement, not of its health: such a group is given up
at once, and only `REFUSED_ROW` times as many groups in a row mean that the scorer itself is broken.
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.wire.errors import HeadraceError, TransientError

TRIES = 3
"""Whole failures of one group before it is dropped: in a row, or, for failures that reported the scorer down, with
successes of other groups between them."""
REFUSED_ROW = 10
"""Factor on `failures_in_row` where values were refused: a scorer that returns values is healthy."""
_TRY_AGAIN_S = 1.0
"""Pause before a group's second try; doubled before its third. In an outage other groups fail meanwhile, even if they
are generated slowly, and open the circuit; else the scorer's fault would cost this group."""
_FIRST_PROBE_S = 1.0
_LONGEST_PROBE_S = 30.0
_FEWEST_PROBES = 2
"""An outage is never declared before so many probes have failed, however long ago the circuit opened."""


class CircuitOpenError(TransientError):
    """The scorer is down, or has failed this group: it is to be tried again later."""

    def __init__(self, scorer: str, reason: str, retry_s: float, *, is_down: bool = True) -> None:
        super().__init__(f"the scorer {scorer} {'is down' if is_down else 'failed this group'}: {reason}")
        self.scorer, self.reason, self.retry_s = scorer, reason, retry_s


class ScorerOutageError(HeadraceError):
    """A scorer has been down for longer than the run waits."""

    final = True


class ScorerBrokenError(ScorerOutageError):
    """A scorer's own code raises the same error for every sample: waiting cures nothing."""


class Failure(StrEnum):
    """Why nothing of a group was scored."""

    FAILED = "failed"
    REFUSED = "refused"
    """Every value was one that no scorer may give."""
    DOWN = "down"
    """The scorer reports that it can score nothing at all."""


class State(StrEnum):
    """State of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


@dataclass(slots=True)
class _Record:
    """Failures of a group that failed whole."""

    tries: int = 0
    successes: int = -1
    """Successes of other groups up to its last failure."""


class Circuit:
    """One scorer's. Times are seconds on one clock."""

    def __init__(self, scorer: str, *, failures_in_row: int, outage_s: float) -> None:
        self._scorer, self._failures_in_row, self._outage_s = scorer, failures_in_row, outage_s
        self.state = State.CLOSED
        self.reason = ""
        """Reason of the last failure since the last success."""
        self._rows: dict[Failure, set[str]] = {why: set() for why in Failure}
        """Groups that failed whole since the last success."""
        self._records: dict[str, _Record] = {}
        self._successes = 0
        self._opened_by = Failure.FAILED
        self._opened = 0.0
        self._next_probe = 0.0
        self._wait = _FIRST_PROBE_S
        self._probes = 0
        self._admitted = 0
        self._round = 0
        """Groups of this round of probes. None take the places of those that have failed: it must come to its end."""

    @property
    def trouble(self) -> str:
        """Why it is not closed; empty if it is."""
        return "" if self.state is State.CLOSED else self.reason

    def room(self, now: float) -> int | None:
        """How many groups may be tried now; None = any number."""
        if self.state is State.CLOSED:
            return None
        if self.state is State.OPEN and now < self._next_probe:
            return 0
        tried = self._round if self.state is State.PROBING else self._admitted
        return max(0, self._failures_in_row + 1 - tried)

    def admit(self, now: float) -> None:
        """A group is about to be tried; one of `succeed`, `fail` and `abandon` must follow.

        Raises CircuitOpenError if it must wait.
        """
        room = self.room(now)
        if room == 0:
            raise CircuitOpenError(self._scorer, self.reason, max(0.1, self._next_probe - now))
        if self.state is State.OPEN:
            self.state, self._round = State.PROBING, self._admitted
        self._admitted += 1
        self._round += 1

    def abandon(self) -> None:
        """The try gives no evidence about the scorer."""
        self._admitted -= 1
        self._round -= 1
        if self.state is State.PROBING and self._admitted <= 0:
            self.state = State.OPEN

    def succeed(self, group: str) -> None:
        """Something of the group was scored: the scorer works."""
        self._admitted -= 1
        self._successes += 1
        self._records.pop(group, None)
        self._close()

    def fail(self, group: str, reason: str, now: float, why: Failure = Failure.FAILED) -> bool:
        """Nothing of the group was scored.

        Returns True if the group is to be given up: it abstains. Raises CircuitOpenError if it is to be tried again,
        ScorerOutageError if the scorer has been down for too long.
        """
        self._admitted -= 1
        self.reason = reason
        if why is Failure.REFUSED and self._opened_by is not Failure.REFUSED and self.state is not State.CLOSED:
            self._close()  # It answers again.
        self._rows[why].add(group)
        if self.state is State.PROBING:
            return self._is_at_fault(group) or self._fail_probe(now)
        if self.state is State.OPEN:  # It was let through before the circuit opened.
            raise CircuitOpenError(self._scorer, reason, max(0.1, self._next_probe - now))
        longest_row = self._failures_in_row * (REFUSED_ROW if why is Failure.REFUSED else 1)
        if why is not Failure.DOWN and len(self._rows[why]) < longest_row:
            return why is Failure.REFUSED or self._is_spent(group)
        if why is Failure.DOWN and self._is_at_fault(group):
            return True
        self._open(now, why)
        raise CircuitOpenError(self._scorer, reason, self._wait)

    def _is_spent(self, group: str) -> bool:
        """Whether it has had its tries, regardless of other groups. Raises CircuitOpenError if not."""
        record = self._records.setdefault(group, _Record())
        record.tries, record.successes = record.tries + 1, self._successes
        if record.tries < TRIES:
            raise CircuitOpenError(self._scorer, self.reason, _TRY_AGAIN_S * 2 ** (record.tries - 1), is_down=False)
        self._records.pop(group)
        return True

    def _is_at_fault(self, group: str) -> bool:
        """Whether it failed `TRIES` times with successes of other groups between: then the group is at fault."""
        record = self._records.setdefault(group, _Record())
        if record.successes == self._successes:
            return False
        record.tries, record.successes = record.tries + 1, self._successes
        if record.tries < TRIES:
            return False
        self._records.pop(group)
        if self.state is State.PROBING and self._admitted <= 0:
            self.state = State.OPEN
        return True

    def _open(self, now: float, why: Failure) -> None:
        self.state, self._opened_by = State.OPEN, why
        self._opened, self._next_probe = now, now + self._wait

    def _close(self) -> None:
        self.state, self.reason, self._wait, self._probes = State.CLOSED, "", _FIRST_PROBE_S, 0
        for row in self._rows.values():
            row.clear()

    def _fail_probe(self, now: float) -> bool:
        if self._admitted <= 0:
            self._probes += 1
            self._wait = min(self._wait * 2, _LONGEST_PROBE_S, max(_FIRST_PROBE_S, self._outage_s / 4))
            self.state, self._next_probe = State.OPEN, now + self._wait
        if now - self._opened >= self._outage_s and self._probes >= _FEWEST_PROBES:
            raise ScorerOutageError(
                f"the scorer {self._scorer} has been down for {now - self._opened:.0f} s (reward.outage_s = "
                f"{self._outage_s:g}): {self.reason}"
            )
        raise CircuitOpenError(self._scorer, self.reason, max(0.1, self._next_probe - now))
