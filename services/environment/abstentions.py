"""Which share of the episodes abstains, by reason and by length. Pure.

A time limit ends the long episodes: what remains to be trained is the short ones, and the policy learns to be short.
"""

from collections import Counter, deque
from dataclasses import dataclass

from headrace.wire.contracts import FinishReason

LIMIT = 0.05
"""Share above which people are warned."""
WINDOW = 200
"""Episodes that the share is of."""
_ENOUGH = 40
"""Fewer episodes say nothing about a share of 5%."""
_BOUNDS = (0, 64, 256, 1024, 4096, 16384)


def length_bucket(tokens: int) -> str:
    """The bucket of an episode in which so many tokens were sampled, by its upper bound: `0`, `64`, ..., `more`."""
    return next((str(bound) for bound in _BOUNDS if tokens <= bound), "more")


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionShare:
    """The abstentions of a window."""

    episodes: int
    abstained: int
    reasons: dict[str, int]
    """Finish reason -> episodes that abstained by it."""
    lengths: dict[str, tuple[int, int]]
    """Bucket of sampled tokens -> episodes, and those of them that abstained."""

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.abstained / self.episodes

    def in_words(self) -> str:
        """For people, such as `7.5% of the last 200 episodes abstained (15 time): up to 64 tokens 1 of 120, ...`."""
        reasons = ", ".join(f"{count} {name}" for name, count in sorted(self.reasons.items()))
        lengths = ", ".join(
            f"{'more' if name == 'more' else f'up to {name}'} tokens {lost} of {all_}"
            for name, (all_, lost) in self.lengths.items()
        )
        return f"{self.share:.1%} of the last {self.episodes} episodes abstained ({reasons}): {lengths}"


class AbstentionWatch:
    """Follows the last episodes."""

    def __init__(self) -> None:
        self._last: deque[tuple[str, bool, str]] = deque(maxlen=WINDOW)
        """Finish reason, whether it abstains, bucket."""
        self._since_warned = WINDOW

    def take(self, reason: FinishReason, tokens: int, *, abstains: bool) -> AbstentionShare | None:
        """Takes an episode into account; returns the share when it has come to be too high, and once a window then."""
        self._last.append((reason.value, abstains, length_bucket(tokens)))
        self._since_warned += 1
        now = self.now
        if len(self._last) < _ENOUGH or now.share <= LIMIT or self._since_warned <= WINDOW:
            return None
        self._since_warned = 0
        return now

    @property
    def is_high(self) -> bool:
        """Whether the share is above the limit."""
        return len(self._last) >= _ENOUGH and self.now.share > LIMIT

    @property
    def now(self) -> AbstentionShare:
        """The window as it is; needs an episode."""
        lost = [one for one in self._last if one[1]]
        all_, of_lost = Counter(one[2] for one in self._last), Counter(one[2] for one in lost)
        return AbstentionShare(
            episodes=len(self._last),
            abstained=len(lost),
            reasons=dict(Counter(one[0] for one in lost)),
            lengths={name: (all_[name], of_lost[name]) for name in (*map(str, _BOUNDS), "more") if all_[name]},
        )
