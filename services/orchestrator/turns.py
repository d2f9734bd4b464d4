"""Where trainer and engines take turns on their GPUs: puts the replicas to sleep when the trainer asks for its turn.

First what runs on the current weights ends: a publication, and the evaluation of the published version, by its
deadline. Then each replica is told to sleep. The turn ends with the trainer's next publication, which wakes them. What
keeps both off a GPU at the same time is its lock (`wire.gpu_lock`), and not this: an orchestrator that knows of a
replica too late, or has lost its state, costs a moment and never the memory.
"""

import asyncio
import time
from collections.abc import Callable

from services.orchestrator.peers import Peers
from services.orchestrator.publication import Publisher
from services.orchestrator.registry import Registry, Replica
from wire.errors import HeadraceError
from wire.rpc import call
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb
from wire.v1 import rollout_pb2

log = get_logger("orchestrator.turns")
_SLEEP_S = 90.0
"""A replica gives its GPU back within `rollout.engine_timeout_s`, or breaks down."""
_ANSWER_S = 1.0
"""The trainer hears what it waits for so soon, and asks again."""
_AWAY = (pb.REPLICA_STATE_SLEEPING, pb.REPLICA_STATE_STARTING)


class Turns:
    """Lives on the event loop."""

    def __init__(
        self, registry: Registry, publisher: Publisher, peers: Peers, evaluating: Callable[[], str] = lambda: ""
    ) -> None:
        """`evaluating`: what is evaluated on the published weights now and must end first, in words."""
        self._registry = registry
        self._publisher = publisher
        self._peers = peers
        self._evaluating = evaluating
        self._sleeps: dict[str, asyncio.Task[None]] = {}
        """Boot id -> the call under way."""
        self._reasons: dict[str, str] = {}
        """Boot id -> why it did not sleep when it was last asked."""
        self.trainer_has = True
        """What the trainer last said; true until it has said anything: who sleeps then is not woken."""

    async def take(self) -> str:
        """What comes before the trainer's turn, in words; empty once all replicas sleep. Returns within a second."""
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
        """The trainer publishes: whoever sleeps may be woken."""
        self.trainer_has = False

    def _awake(self) -> list[Replica]:
        return [one for one in self._registry.alive(time.monotonic()) if one.state not in _AWAY]

    def _in_words(self, replica: Replica) -> str:
        reason = self._reasons.get(replica.boot_id, "")
        return f"{replica.replica_id} to sleep" + (f" ({reason})" if reason else "")

    async def _sleep(self, replica: Replica) -> None:
        stub = self._peers.rollout(replica.address)
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
