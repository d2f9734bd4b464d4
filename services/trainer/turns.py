"""The trainer's side of turns on its GPUs: it trains while the engines sleep, and rests while they generate.

While it rests its optimizer state lies in host memory; the weights stay on the device. What keeps both off a GPU at the
same time is the lock of each (`wire.gpu_lock`); the orchestrator puts the engines to sleep, at the right moment.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from services.trainer import metrics
from services.trainer.settings import TrainerSettings
from wire.errors import TransientError, WaitTimeoutError
from wire.gpu_lock import GpuLock
from wire.telemetry import get_logger

log = get_logger("trainer.turns")
_LOOK_S = 0.1


class Rests(Protocol):
    """Whoever has memory on the GPUs that can be done without between two steps."""

    def park(self) -> None:
        """Gives it back, on every rank."""
        ...

    def unpark(self) -> None:
        """Takes it again."""
        ...


class Turns:
    """Used by the main thread of rank 0 alone. Without locks nothing is shared, and nothing waits."""

    def __init__(
        self,
        locks: Sequence[GpuLock],
        ask: Callable[[], str],
        doing: Callable[[str, float], None],
        *,
        limit_s: float,
    ) -> None:
        """`ask` returns what comes before our turn, empty if nothing; raises TransientError without an orchestrator.

        `doing` shows what is waited for, and for how many more seconds at most.
        """
        self._locks = tuple(locks)
        self._ask = ask
        self._doing = doing
        self._limit_s = limit_s
        self.has = False
        """Also while it is being asked for."""

    @property
    def are_taken(self) -> bool:
        """Whether the GPUs are shared at all."""
        return bool(self._locks)

    def begin(self, learner: Rests | None, given_up: Callable[[], bool]) -> bool:
        """Waits for the turn, then has the learner take its memory again; False if `given_up()` turned true.

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

    def end(self, learner: Rests) -> None:
        """Gives the GPUs to the engines: the learner's memory first. The publication that follows wakes them."""
        if not self.are_taken:
            return
        began = time.monotonic()
        learner.park()
        metrics.TURN_SECONDS.labels("park").observe(time.monotonic() - began)
        for lock in self._locks:
            lock.give()
        self.has = False

    def _missing(self) -> str:
        """What stands between us and the turn; empty once the engines sleep and all locks are ours."""
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
    """One for each rank, as the replica of that number has it; none where GPUs are not shared. Raises ConfigError."""
    if not settings.takes_turns:
        return []
    return [GpuLock(settings.run_dir, rank, "trainer") for rank in range(settings.trainer.ranks)]
