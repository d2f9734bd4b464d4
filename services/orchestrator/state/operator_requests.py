"""Operator requests in force. Durable through the store; idempotent.

A stop applies to the current trainer and, within the lifetime of this process, to any started in its place. If this
process was restarted since, a trainer that registers with a new boot means a new start of the run (such as `--resume`),
which ends the stop: a user who starts a run does not want it to stop at once. A drain applies to one boot of a replica.
"""

import json
from collections.abc import Collection, Mapping

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.state.store import Store

_FORGOTTEN_S = 3600.0
"""The drain of a replica that has been away for this long is dropped."""


class OperatorRequests:
    """The requests, read when prompts are issued and when the trainer or replicas report."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.paused = bool(store.get_int("operator_paused"))
        """An operator has paused the issuing of prompts."""
        self.stopping = bool(store.get_int("operator_stopping"))
        """The trainer is to finish its step, write a checkpoint and exit."""
        self._asked = store.get_int("operator_checkpoint_asked")
        self._done = store.get_int("operator_checkpoint_done")
        self._is_inherited = self.stopping
        self._drained: dict[str, str] = json.loads(store.get("operator_drained_boots") or b"{}")
        self._away_since: dict[str, float] = {}
        metrics.PAUSED.set(self.paused)

    @property
    def is_inherited(self) -> bool:
        """The stop was requested before this process was restarted: the trainer may know of it."""
        return self.stopping and self._is_inherited

    @property
    def holds(self) -> bool:
        """No new prompt is issued, because of a pause or a stop."""
        return self.paused or self.stopping

    @property
    def checkpoint(self) -> int:
        """Number of the checkpoint request that is still pending; 0 = none."""
        return self._asked if self._asked > self._done else 0

    @property
    def drained(self) -> frozenset[str]:
        """Ids of replicas that must not take prompts."""
        return frozenset(self._drained)

    def pause(self, paused: bool) -> None:
        """Pauses or resumes the issuing of prompts."""
        self.paused = paused
        self._store.set_int("operator_paused", paused)
        metrics.PAUSED.set(paused)

    def stop(self, stopping: bool) -> None:
        """Requests a stop, or withdraws it."""
        self.stop_with(stopping, {})

    def stop_with(self, stopping: bool, values: Mapping[str, bytes | int]) -> None:
        """Like `stop`; writes further store `values` in the same transaction."""
        self._store.set_all({**values, "operator_stopping": stopping})
        self.stopping, self._is_inherited = stopping, False

    def ask_checkpoint(self) -> None:
        """Requests a checkpoint, unless one is pending."""
        if not self.checkpoint:
            self._asked = max(self._asked, self._done) + 1
            self._store.set_int("operator_checkpoint_asked", self._asked)

    def checkpoint_done(self, number: int) -> bool:
        """Records the last requested checkpoint that the trainer reports as written; returns whether that is new."""
        if number <= self._done:
            return False
        self._done = number
        self._store.set_int("operator_checkpoint_done", number)
        return True

    def drain(self, replica_id: str, drained: bool, boot_id: str = "") -> None:
        """Drains this boot of a replica, or ends its drain."""
        left = {name: boot for name, boot in self._drained.items() if name != replica_id}
        self._keep_drained({**left, replica_id: boot_id} if drained else left)

    def registered(self, replica_id: str, boot_id: str) -> None:
        """Ends the drain of an earlier boot of a replica that has registered."""
        if self._drained.get(replica_id, boot_id) != boot_id:
            self.drain(replica_id, False)

    def forget(self, alive: Collection[str], now: float) -> None:
        """Ends drains of replicas that have been away for long; `now` is in monotonic seconds. To be called often."""
        away = self._drained.keys() - set(alive)
        self._away_since = {name: self._away_since.get(name, now) for name in away}
        over = {name for name, since in self._away_since.items() if now - since > _FORGOTTEN_S}
        if over:
            self._keep_drained({name: boot for name, boot in self._drained.items() if name not in over})

    def _keep_drained(self, drained: dict[str, str]) -> None:
        self._drained = drained
        self._store.set("operator_drained_boots", json.dumps(drained).encode())
