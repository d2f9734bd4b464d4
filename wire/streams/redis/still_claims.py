"""Finds claims whose idle time stands still: the broker's clock was set back.

The server measures idle time by its wall clock. Set back by an hour, it takes every claim for one of the future, shows
0 as its idle time, and lets no other consumer claim it for an hour. A live owner's next renewal gives its claims the
new time; what stays at 0 for a lease, by this process's monotonic clock, has no live owner.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One pending entry, as the server lists it."""

    entry_id: str
    owner: str
    deliveries: int
    idle_ms: int


class StillClaims:
    """What one consumer has seen of the stream's claims; pure."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._looked = float("-inf")
        self._since: dict[Claim, float] = {}

    def is_due(self, now: float) -> bool:
        """Whether a third of a lease has passed since the last look; `now` is in monotonic seconds."""
        return now - self._looked >= self._lease_s / 3

    def look(self, claims: Iterable[Claim], now: float) -> list[str]:
        """Ids of entries whose claim has stood at an idle time of 0 for a lease, in the order of `claims`."""
        still = [claim for claim in claims if not claim.idle_ms]
        self._looked = now
        self._since = {claim: self._since.get(claim, now) for claim in still}
        return [claim.entry_id for claim in still if now - self._since[claim] >= self._lease_s]
