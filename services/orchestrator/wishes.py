"""What operators have asked for. Durable through the store; asked twice is asked once."""

import json

from services.orchestrator import metrics
from services.orchestrator.store import Store


class Wishes:
    """Read by whoever issues prompts, answers the trainer or answers replicas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paused = bool(store.get_int("operator_paused"))
        self._stopping = bool(store.get_int("operator_stopping"))
        self._asked = store.get_int("operator_checkpoint_asked")
        self._done = store.get_int("operator_checkpoint_done")
        self._drained = frozenset(json.loads(store.get("operator_drained") or b"[]"))
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
        return self._drained

    def pause(self, paused: bool) -> None:
        """Holds new prompts back, or no more."""
        self._paused = paused
        self._store.set_int("operator_paused", paused)
        metrics.PAUSED.set(paused)

    def stop(self, stopping: bool) -> None:
        """Asks for the end; False once the trainer has told of it."""
        self._stopping = stopping
        self._store.set_int("operator_stopping", stopping)

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

    def drain(self, replica_id: str, drained: bool) -> None:
        """Keeps prompts from a replica, or no more."""
        self._drained = self._drained | {replica_id} if drained else self._drained - {replica_id}
        self._store.set("operator_drained", json.dumps(sorted(self._drained)).encode())
