"""What operators have asked for. Durable through the store; asked twice is asked once.

A stop holds for the trainer that lives and, as long as this process lives, for whichever is started in its place. When
this process was started anew since, a trainer that registers with a new boot is taken for a new start of the run (such
as `--resume`), and the stop is over: nobody who starts a run wants it to stop at once. A drain is for one life of a
replica.
"""

import json
from collections.abc import Collection, Mapping

from services.orchestrator import metrics
from services.orchestrator.store import Store

_FORGOTTEN_S = 3600.0
"""A drained replica that has been away for so long does not come back."""


class Wishes:
    """Read by whoever issues prompts, answers the trainer or answers replicas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paused = bool(store.get_int("operator_paused"))
        self._stopping = bool(store.get_int("operator_stopping"))
        self._asked = store.get_int("operator_checkpoint_asked")
        self._done = store.get_int("operator_checkpoint_done")
        self._is_inherited = self._stopping
        self._drained: dict[str, str] = json.loads(store.get("operator_drained_boots") or b"{}")
        self._away_since: dict[str, float] = {}
        metrics.PAUSED.set(self._paused)

    @property
    def paused(self) -> bool:
        """No new prompt is issued."""
        return self._paused

    @property
    def stopping(self) -> bool:
        """The trainer is to end its step, write a checkpoint and leave."""
        return self._stopping

    @property
    def is_inherited(self) -> bool:
        """The stop was asked for in an earlier life of this process: the trainer may have heard of it."""
        return self._stopping and self._is_inherited

    @property
    def holds(self) -> bool:
        """No new prompt is issued, for either reason."""
        return self._paused or self._stopping

    @property
    def checkpoint(self) -> int:
        """Number of the checkpoint that is still to be written; 0 = none."""
        return self._asked if self._asked > self._done else 0

    @property
    def drained(self) -> frozenset[str]:
        """Ids of replicas that are to take no prompt."""
        return frozenset(self._drained)

    def pause(self, paused: bool) -> None:
        """Holds new prompts back, or no more."""
        self._paused = paused
        self._store.set_int("operator_paused", paused)
        metrics.PAUSED.set(paused)

    def stop(self, stopping: bool) -> None:
        """Asks for the end, or no more."""
        self.stop_with(stopping, {})

    def stop_with(self, stopping: bool, values: Mapping[str, bytes | int]) -> None:
        """The same; `values` of the store are written with it or not at all."""
        self._store.set_all({**values, "operator_stopping": stopping})
        self._stopping, self._is_inherited = stopping, False

    def ask_checkpoint(self) -> None:
        """One more, unless one is still to come."""
        if not self.checkpoint:
            self._asked = max(self._asked, self._done) + 1
            self._store.set_int("operator_checkpoint_asked", self._asked)

    def checkpoint_done(self, number: int) -> bool:
        """The trainer says which was the last one it wrote because it was asked; whether that is news."""
        if number <= self._done:
            return False
        self._done = number
        self._store.set_int("operator_checkpoint_done", number)
        return True

    def drain(self, replica_id: str, drained: bool, boot_id: str = "") -> None:
        """Keeps prompts from this boot of a replica, or no more."""
        left = {name: boot for name, boot in self._drained.items() if name != replica_id}
        self._keep_drained({**left, replica_id: boot_id} if drained else left)

    def registered(self, replica_id: str, boot_id: str) -> None:
        """A replica says who it is: the drain of another life of that name is over."""
        if self._drained.get(replica_id, boot_id) != boot_id:
            self.drain(replica_id, False)

    def forget(self, alive: Collection[str], now: float) -> None:
        """Ends drains of replicas that are away for long; `now` is of the monotonic clock. To be called often."""
        away = self._drained.keys() - set(alive)
        self._away_since = {name: self._away_since.get(name, now) for name in away}
        over = {name for name, since in self._away_since.items() if now - since > _FORGOTTEN_S}
        if over:
            self._keep_drained({name: boot for name, boot in self._drained.items() if name not in over})

    def _keep_drained(self, drained: dict[str, str]) -> None:
        self._drained = drained
        self._store.set("operator_drained_boots", json.dumps(drained).encode())
