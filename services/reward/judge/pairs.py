"""Which answers are paired, and how many points wins give. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]


def round_robin(players: int, most: int) -> list[Pair]:
    """At most `most` different pairs of players, as evenly as can be (the circle method): no player meets two more
    others than another does. All pairs if `most` allows.
    """
    slots: list[int | None] = [*range(players), *([None] if players % 2 else [])]
    pairs: list[Pair] = []
    for _ in range(len(slots) - 1):
        for first, second in zip(slots[: len(slots) // 2], reversed(slots), strict=False):
            if first is not None and second is not None:
                pairs.append((min(first, second), max(first, second)))
        slots = [slots[0], slots[-1], *slots[1:-1]]
    return pairs[:most]


@dataclass(frozen=True, slots=True)
class Standing:
    """Result of one player, after all its pairs."""

    planned: int
    decided: int
    """Pairs with a result."""
    points: float
    """1 a win, 0.5 a tie."""

    @property
    def share(self) -> float | None:
        """Points a pair in 0..1; None unless more than half of the planned pairs had a result."""
        return self.points / self.decided if 2 * self.decided > self.planned else None


def standings(players: int, results: Mapping[Pair, float | None]) -> Sequence[Standing]:
    """`results`: pair -> points of its first player (1, 0.5 or 0); None = no verdict."""
    planned, decided, points = [0] * players, [0] * players, [0.0] * players
    for (first, second), result in results.items():
        for player in (first, second):
            planned[player] += 1
            decided[player] += result is not None
        if result is not None:
            points[first] += result
            points[second] += 1 - result
    return [Standing(*row) for row in zip(planned, decided, points, strict=True)]
