"""The replica's side of turns on a GPU: its engine sleeps while the trainer steps, and the next publication wakes it.

The lock is the truth: the engine has memory on the GPU only while this process holds it (and a process that dies lets
go), whatever the orchestrator asks. Groups still in the engine when it goes to sleep are handed back.
"""

import asyncio
import time
from collections.abc import Callable

from services.rollout import metrics
from services.rollout.engines.protocol import Engine
from services.rollout.gate import Gate
from services.rollout.replica import TIRED, ReplicaState
from services.rollout.settings import RolloutSettings
from wire.errors import ConfigError, ContractError
from wire.events import EventLog
from wire.gpu_lock import GpuLock
from wire.telemetry import get_logger

log = get_logger("rollout.turns")

_START_S = 3600.0
"""A trainer's step is over long before; a replica that waits longer for its GPU ends, and is started again."""
_REASON = "the GPU is the trainer's until it has stepped"


def make_lock(settings: RolloutSettings) -> GpuLock | None:
    """The lock of this replica's GPU; None where it has one to itself. Raises ConfigError."""
    if settings.rollout.gpu_sharing != "turns":
        return None
    if settings.rollout.sglang.urls:
        raise ConfigError('rollout.gpu_sharing = "turns": a server of rollout.sglang.urls is not ours to put to sleep')
    return GpuLock(settings.run_dir, settings.number, f"rollout-{settings.instance}")


async def first_turn(lock: GpuLock | None, starts: Callable[[str], None]) -> None:
    """Waits for the GPU before an engine is started on it. Raises WaitTimeoutError naming the holder."""
    if lock is not None:
        await lock.take(_START_S, lambda holder: starts(f"its turn on {lock.name}: {holder or 'nobody'} has it"))


class Turns:
    """Lives on the event loop. `lock` is None where engine and trainer share nothing."""

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
        """Gives the GPU to the trainer; returns why not now, or an empty string. Idempotent.

        Raises ContractError where no turns are taken; HeadraceError for an engine that cannot be put to sleep, which
        keeps the lock until the process has ended.
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
        """Takes the GPU back, if it was given away. Raises HeadraceError when it cannot be had by then."""
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
                self._lock.give()  # It sleeps on: the next publication tries again.
                raise
        self._note("engine_awake", time.monotonic() - began)

    def _note(self, what: str, seconds: float) -> None:
        metrics.TURN_SECONDS.labels(what.removeprefix("engine_")).observe(seconds)
        self._events.append(what, seconds=round(seconds, 4))
        log.info(what, seconds=round(seconds, 4))
