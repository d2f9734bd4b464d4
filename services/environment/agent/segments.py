"""Which share of agents' turns begins a segment though the program meant to go on. Pure.

Each such turn reads its whole conversation anew, and is trained after its own context: dear, and most often the
work of a small edit of the history that the program could leave out.
"""

from collections import Counter, deque
from dataclasses import dataclass

MOST_SHARE = 0.1
"""Share above which people are warned."""
EPISODES = 200
"""Episodes that the share is of."""
_ENOUGH = 20
"""Fewer turns say nothing about a share of 10%."""
_COUNTED = ("edited", "template")
"""Conversations that are opened or branched are meant to be segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShare:
    """The segments of a window."""

    turns: int
    reasons: dict[str, int]
    """Reason -> turns that began a segment by it."""
    last: str
    """The last episode that had one."""

    @property
    def share(self) -> float:
        """0 to 1."""
        return sum(self.reasons.values()) / self.turns if self.turns else 0.0

    def in_words(self) -> str:
        """For people, such as `25.0% of the last 40 turns of agents begin a segment (10 edited), the last in g1/0`."""
        reasons = ", ".join(f"{count} {name}" for name, count in sorted(self.reasons.items()))
        share = f"{self.share:.1%} of the last {self.turns} turns of agents"
        return f"{share} begin a segment ({reasons}), the last in {self.last}"


class SegmentWatch:
    """Follows the last episodes of agents."""

    def __init__(self) -> None:
        self._last: deque[tuple[int, dict[str, int]]] = deque(maxlen=EPISODES)
        self._named = ""
        self._since_warned = EPISODES

    def take(self, name: str, turns: int, begun: Counter[str]) -> SegmentShare | None:
        """Takes an episode into account; returns the share when it has come to be too high, and once a window then."""
        found = {reason: begun[reason] for reason in _COUNTED if begun[reason]}
        self._last.append((turns, found))
        self._named = name if found else self._named
        self._since_warned += 1
        if not self.is_high or self._since_warned <= EPISODES:
            return None
        self._since_warned = 0
        return self.now

    @property
    def is_high(self) -> bool:
        """Whether the share is above the limit."""
        now = self.now
        return now.turns >= _ENOUGH and now.share > MOST_SHARE

    @property
    def now(self) -> SegmentShare:
        """The window as it is."""
        reasons: Counter[str] = Counter()
        for _, found in self._last:
            reasons.update(found)
        return SegmentShare(turns=sum(turns for turns, _ in self._last), reasons=dict(reasons), last=self._named)
