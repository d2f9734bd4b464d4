"""Turns on shared GPUs: puts the replicas to sleep when the trainer requests its turn.

First, work on the current weights ends: a publication, and the evaluation of the published version, by its deadline.
Then each replica is asked to sleep. The turn ends with the trainer's next publication, which wakes them. Mutual
exclusion on a GPU is enforced by its lock (`headrace.wire.host.gpu_lock`), not here: an orchestrator that learns of a
replica too late, or has lost its state, costs time but never memory.
"""

import asyncio
import time
from collections.abc import Callable

from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.rpc import call
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2

log = get_logger("orchestrator.turns")
_SLEEP_S = 90.0
"""Timeout of a Sleep call; a replica releases its GPU within `rollout.engine_timeout_s`, or fails."""
_ANSWER_S = 1.0
"""Maximum time until the trainer gets an answer with what it waits for; it then asks again."""
_AWAY = (pb.REPLICA_STATE_SLEEPING, pb.REPLICA_STATE_STARTING)


class TurnScheduler:
    """Grants the trainer its turn. Used on the event loop only."""

    def __init__(
        self,
        registry: Registry,
        publisher: PublicationCoordinator,
        clients: Clients,
        evaluating: Callable[[], str] = lambda: "",
    ) -> None:
        """`evaluating` describes the evaluation of the published weights that must end first; empty for none."""
        self._registry = registry
        self._publisher = publisher
        self._clients = clients
        self._evaluating = evaluating
        self._sleeps: dict[str, asyncio.Task[None]] = {}
        """Boot id -> the Sleep call in progress."""
        self._reasons: dict[str, str] = {}
        """Boot id -> why the replica refused or failed its last Sleep call."""
        self.trainer_has = True
        """Whether the trainer has the turn, by its last report. True until the first one, so no sleeper is woken."""

    async def take(self) -> str:
        """Describes what the trainer's turn waits for; empty once all replicas sleep. Returns within about a second."""
        self.trainer_has = True
        if self._publisher.progress is not None:
            return "the publication to end"
        if evaluating := self._evaluating():
            return evaluating
        awake = self._awake()
        boots = {replica.boot_id for replica in awake}
        self._reasons = {boot: reason for boot, reason in self._reasons.items() if boot in boots}
        for replica in awake:
            if replica.boot_id not in self._sleeps:
                self._sleeps[replica.boot_id] = asyncio.create_task(self._sleep(replica))
        if self._sleeps:
            await asyncio.wait(self._sleeps.values(), timeout=_ANSWER_S)
        self._sleeps = {boot: task for boot, task in self._sleeps.items() if not task.done()}
        return ", ".join(map(self._in_words, self._awake()))

    def over(self) -> None:
        """Ends the trainer's turn: it publishes, so sleeping replicas may be woken."""
        self.trainer_has = False

    def _awake(self) -> list[Replica]:
        return [one for one in self._registry.alive(time.monotonic()) if one.state not in _AWAY]

    def _in_words(self, replica: Replica) -> str:
        reason = self._reasons.get(replica.boot_id, "")
        return f"{replica.replica_id} to sleep" + (f" ({reason})" if reason else "")

    async def _sleep(self, replica: Replica) -> None:
        stub = self._clients.rollout(replica.address)
        what = f"{replica.replica_id} to sleep"
        try:
            answer = await call(stub.Sleep, rollout_pb2.SleepRequest(), timeout_s=_SLEEP_S, what=what)
        except (HeadraceError, RuntimeError) as error:
            self._reasons[replica.boot_id] = str(error)
            log.warning("replica_does_not_sleep", replica=replica.replica_id, reason=str(error))
            return
        self._reasons[replica.boot_id] = answer.reason
        if answer.asleep:
            self._reasons.pop(replica.boot_id, None)
            self._registry.slept(replica, time.monotonic())
