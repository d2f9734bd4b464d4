"""What a worker has in hand: each episode with what it waits for. On one event loop only."""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.services.environment.player.state import EpisodeState, WaitKind


class EpisodesInHand:
    """Episodes from the moment their group was taken until they have ended."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[EpisodeState, int]] = {}
        self._next = 0

    @contextmanager
    def episode(self, name: str, group_index: int, kind: WaitKind, waits_for: str) -> Iterator[EpisodeState]:
        """An episode (or a whole group, by its id) that waits for something; `group_index` is -1 in an evaluation."""
        state, key = EpisodeState(rollout_id=name), self._next
        state.wait(kind, waits_for)
        self._next += 1
        self._states[key] = (state, group_index)
        try:
            yield state
        finally:
            del self._states[key]

    @property
    def all(self) -> list[tuple[EpisodeState, int]]:
        """Each episode's state and group index."""
        return list(self._states.values())
