"""The trainer's turns on shared GPUs: it trains while the engines sleep, and rests while they generate.

While it rests its optimizer state is in host memory; the weights stay on the device. A lock for each GPU
(`headrace.wire.host.gpu_lock`) keeps both off it at the same time; the orchestrator puts the engines to sleep at the
right moment.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.services.trainer import metrics
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.turns")
_LOOK_S = 0.1


class Parkable(Protocol):
    """A component whose GPU memory can partly be freed between two steps."""

    def park(self) -> None:
        """Frees the memory, on every rank."""
        ...

    def unpark(self) -> None:
        """Takes the memory back, on every rank."""
        ...


class TrainerTurns:
    """Used by the main thread of rank 0 only. Without locks nothing is shared, and nothing waits."""

    def __init__(
        self,
        locks: Sequence[GpuLock],
        ask: Callable[[], str],
        doing: Callable[[str, float], None],
        *,
        limit_s: float,
    ) -> None:
        """`ask` returns what precedes the trainer's turn, or ""; raises TransientError without an orchestrator.

        `doing` reports what is waited for, and for how many more seconds at most.
        """
        self._locks = tuple(locks)
        self._ask = ask
        self._doing = doing
        self._limit_s = limit_s
        self.has = False
        """Whether the trainer has its turn, or is requesting it."""

    @property
    def are_taken(self) -> bool:
        """Whether the GPUs are shared at all."""
        return bool(self._locks)

    def begin(self, learner: Parkable | None, given_up: Callable[[], bool]) -> bool:
        """Waits for the turn, then has the learner take its memory back; False if `given_up()` turned true.

        Raises WaitTimeoutError naming what it waited for.
        """
        if not self.are_taken:
            return True
        began = time.monotonic()
        self.has = True
        while reason := self._missing():
            left = self._limit_s - (time.monotonic() - began)
            if given_up():
                return False
            if left < 0:
                raise WaitTimeoutError(f"the trainer's turn on its GPUs: {reason}", self._limit_s)
            self._doing(f"its turn on the GPU: {reason}", left)
            time.sleep(_LOOK_S)
        metrics.TURN_SECONDS.labels("wait").observe(time.monotonic() - began)
        if learner is not None:
            began = time.monotonic()
            learner.unpark()
            metrics.TURN_SECONDS.labels("unpark").observe(time.monotonic() - began)
        self._doing("", 0.0)
        return True

    def end(self, learner: Parkable) -> None:
        """Frees the learner's memory, then releases the GPUs. The publication that follows wakes the engines."""
        if not self.are_taken:
            return
        began = time.monotonic()
        learner.park()
        metrics.TURN_SECONDS.labels("park").observe(time.monotonic() - began)
        for lock in self._locks:
            lock.give()
        self.has = False

    def _missing(self) -> str:
        """What the turn still waits for; empty once the engines sleep and all locks are taken."""
        try:
            reason = self._ask()
        except (TransientError, WaitTimeoutError) as error:
            reason = f"the orchestrator is away ({error})"
        if reason:
            return reason
        taken = [lock.try_take() for lock in self._locks]
        away = [lock for lock, has in zip(self._locks, taken, strict=True) if not has]
        return f"{away[0].holder or 'another process'} has {away[0].name}" if away else ""


def make_locks(settings: TrainerSettings) -> list[GpuLock]:
    """One lock for each rank, shared with the replica of that number; none if GPUs are not shared.

    Raises ConfigError.
    """
    if not settings.takes_turns:
        return []
    return [GpuLock(settings.run_dir, rank, "trainer") for rank in range(settings.trainer.ranks)]
