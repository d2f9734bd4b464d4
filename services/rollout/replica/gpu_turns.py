"""GPU turns of a replica: its engine sleeps while the trainer steps, and the next publication wakes it.

The lock is authoritative: the engine has memory on the GPU only while this process holds it (a crash releases it),
regardless of the orchestrator's requests. Groups still in the engine at sleep are handed back.
"""

import asyncio
import time
from collections.abc import Callable

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.states import TIRED, ReplicaState
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger

log = get_logger("rollout.turns")

_START_S = 3600.0
"""Maximum wait for the GPU at start, far longer than a trainer's step; after it the replica exits and is restarted."""
_REASON = "the GPU is the trainer's until it has stepped"


def make_lock(settings: RolloutSettings) -> GpuLock | None:
    """The lock of this replica's GPU; None if the GPU is not shared. Raises ConfigError."""
    if settings.rollout.gpu_sharing != "turns":
        return None
    if settings.rollout.sglang.urls:
        raise ConfigError('rollout.gpu_sharing = "turns": a server of rollout.sglang.urls is not ours to put to sleep')
    return GpuLock(settings.run_dir, settings.number, f"rollout-{settings.instance}")


async def first_turn(lock: GpuLock | None, starts: Callable[[str], None]) -> None:
    """Acquires the GPU lock, if any, before the engine starts. Raises WaitTimeoutError naming the holder."""
    if lock is not None:
        await lock.take(_START_S, lambda holder: starts(f"its turn on {lock.name}: {holder or 'no process'} holds it"))


class ReplicaTurns:
    """Puts the engine to sleep and wakes it. On the event loop only; `lock` is None if the GPU is not shared."""

    def __init__(
        self, engine: Engine, gate: Gate, events: EventLog, lock: GpuLock | None, *, engine_timeout_s: float
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._events = events
        self._lock = lock
        self._engine_timeout_s = engine_timeout_s
        self._changing = asyncio.Lock()

    async def sleep(self) -> str:
        """Gives the GPU to the trainer; returns why it cannot now, or an empty string. Idempotent.

        Raises ContractError if no turns are taken, HeadraceError if the engine fails to sleep: the lock is then kept
        until the process ends.
        """
        if self._lock is None:
            raise ContractError("no_turns", 'this replica takes no turns: rollout.gpu_sharing is not "turns"')
        async with self._changing:
            if self._gate.state is ReplicaState.SLEEPING and not self._lock.held:
                return ""
            if self._gate.state in TIRED:
                self._gate.disown(ReplicaState.SLEEPING, _REASON)
            elif self._gate.state is not ReplicaState.SLEEPING:
                return f"the replica is {self._gate.state}"
            began = time.monotonic()
            await self._engine.abandon("the engine goes to sleep", self._engine_timeout_s)
            await self._engine.sleep(self._engine_timeout_s)
            self._lock.give()
        self._note("engine_asleep", time.monotonic() - began)
        return ""

    async def wake(self, timeout_s: float) -> None:
        """Takes the GPU back, if it was given away. Raises HeadraceError if that fails within `timeout_s`."""
        if self._lock is None:
            return
        async with self._changing:
            if self._lock.held:
                return
            began = time.monotonic()
            await self._lock.take(timeout_s)
            try:
                await self._engine.wake(max(timeout_s - (time.monotonic() - began), 0.001))
            except BaseException:
                self._lock.give()  # The engine still sleeps: the next publication tries again.
                raise
        self._note("engine_awake", time.monotonic() - began)

    def _note(self, what: str, seconds: float) -> None:
        metrics.TURN_SECONDS.labels(what.removeprefix("engine_")).observe(seconds)
        self._events.append(what, seconds=round(seconds, 4))
        log.info(what, seconds=round(seconds, 4))
