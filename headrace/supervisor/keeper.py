"""Keeps one process alive: starts it, waits until it is ready, starts it again when it dies, within a budget."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headrace.supervisor.process import Child, ProcessPlan, log_tail
from wire.entry import GIVEN_UP, REFUSED
from wire.errors import HeadraceError, WaitTimeoutError

_NUMBER = re.compile(r"[\d.]+")

Ready = Callable[[float], Awaitable[None]]
Notice = Callable[[str], None]
IsOver = Callable[[], Awaitable[bool]]
"""Whether an exit with status 0 is the end, and not a death."""
Prepare = Callable[[int], str]
"""Called before each start with the number of early deaths in a row; returns what the user is to know. May raise
OSError."""
Probe = Callable[[float], Awaitable[str | None]]
"""What troubles the process, empty = nothing; None = it does not answer within so many seconds."""


class RunFailedError(HeadraceError):
    """The run cannot go on; the message names the process, the reason and the log."""


class KeeperState(StrEnum):
    """What one process is doing, as the supervisor sees it."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to start again"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much dying is tolerated. Times are seconds."""

    ready_s: float = 180.0
    """From start to `/readyz`."""
    early_deaths: int = 4
    """Deaths in a row before it was ever ready: then its settings are wrong, and trying goes nowhere. One more than
    the replays after which a trainer names the batch that kills it."""
    early_deaths_later: int = 20
    """The same for a process that has been ready in this run: something else kills it."""
    restarts: int = 1000
    backoff_s: float = 0.1
    """Before the first restart; doubles with each one until it has been ready for a minute."""
    longest_backoff_s: float = 5.0
    calm_s: float = 60.0
    liveness_s: float = 60.0
    """A process that has been ready and then does not answer for so long is killed and started again; 0 = never."""
    probe_s: float = 5.0
    """Between two looks, and for an answer."""


class Keeper:
    """One process plan over all its lives."""

    def __init__(
        self,
        plan: ProcessPlan,
        run_dir: Path,
        *,
        ready: Ready,
        is_over: IsOver | None,
        budget: Budget,
        notice: Notice,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        self.plan = plan
        self.state = KeeperState.STARTING
        self.restarts = 0
        self.child: Child | None = None
        self.first_ready = asyncio.Event()
        self._run_dir, self._ready, self._is_over = run_dir, ready, is_over
        self._budget, self._notice, self._probe = budget, notice, probe
        self._prepare = prepare
        self._stopping = False

    @property
    def log(self) -> Path:
        """Where the process writes to."""
        return self._run_dir / "logs" / f"{self.plan.name}.log"

    def stop_restarting(self) -> None:
        """From now on a death is an end."""
        self._stopping = True

    async def run(self) -> None:
        """Returns at the end. Raises RunFailedError when the budget is spent or it does not become ready."""
        early, backoff = 0, self._budget.backoff_s
        while not self._stopping:
            self.state = KeeperState.STARTING
            self._make_ready_to_start(early)
            self.child = await Child.spawn(self.plan, self._run_dir)
            was_ready, calm, code = await self._one_life(self.child)
            if await self._was_the_end(code):
                break
            early = 0 if was_ready else early + 1
            backoff = self._budget.backoff_s if calm else backoff
            how = f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
            if code == GIVEN_UP:
                raise RunFailedError(self._with_log(f"{self.plan.name} has given up"))
            self._check_budget(early, how, refused=code == REFUSED and not was_ready)
            self.restarts += 1
            self._notice(f"{self.plan.name} {how}; it is started again ({self.restarts})")
            self.state = KeeperState.WAITING
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, self._budget.longest_backoff_s)
        self.state = KeeperState.ENDED

    def _make_ready_to_start(self, early: int) -> None:
        if self._prepare is None:
            return
        try:
            told = self._prepare(early)
        except OSError as error:
            raise RunFailedError(f"{self.plan.name} cannot be started: {error}") from error
        if told:
            self._notice(told)

    async def _was_the_end(self, code: int) -> bool:
        return self._stopping or (code == 0 and self._is_over is not None and await self._is_over())

    async def _one_life(self, child: Child) -> tuple[bool, bool, int]:
        """Whether it was ready, whether it then lived long, and its exit status."""
        ready = asyncio.ensure_future(self._ready(self._budget.ready_s))
        ended = asyncio.ensure_future(child.wait())
        watching: asyncio.Future[None] | None = None
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                if self._is_late(ready):
                    child.kill()
                else:
                    self.state = KeeperState.READY
                    self.first_ready.set()
                    watching = asyncio.ensure_future(self._watch(child))
            since = time.monotonic()
            code = await ended
            was_ready = self.state is KeeperState.READY
            return was_ready, was_ready and time.monotonic() - since > self._budget.calm_s, code
        finally:
            ready.cancel()
            ended.cancel()
            if watching:
                watching.cancel()
            # What it left in its process group would hold the ports.
            child.kill()

    async def _watch(self, child: Child) -> None:
        """Kills a process that does not answer any more: frozen, or stuck on its event loop."""
        if self._probe is None or not self._budget.liveness_s:
            return
        silent, looked, trouble = 0.0, time.monotonic(), ""
        every = min(self._budget.probe_s, self._budget.liveness_s / 4)
        while silent < self._budget.liveness_s:
            await asyncio.sleep(every)
            found = await self._probe(every)
            now = time.monotonic()
            # Numbers in it (tries, seconds) may change with every look: that is no news.
            if found is not None and _NUMBER.sub("", found) != trouble:
                self._notice(f"{self.plan.name}: {found or 'all is well again'}")
                trouble = _NUMBER.sub("", found)
            # When we ourselves were stopped for a while, that says nothing of the child.
            silent = 0.0 if found is not None else silent + min(now - looked, 2 * every)
            looked = now
        self._notice(f"{self.plan.name} has not answered for {silent:.0f} s: it is killed")
        child.kill()

    def _is_late(self, ready: "asyncio.Future[None]") -> bool:
        """It did not become ready in time, but has been ready before; raises RunFailedError if it never was."""
        error = ready.exception()
        if isinstance(error, WaitTimeoutError):
            if not self.first_ready.is_set():
                raise RunFailedError(self._with_log(str(error))) from error
            self._notice(f"{error}: it is killed")
            return True
        if error is not None:
            raise error
        return False

    def _check_budget(self, early: int, how: str, *, refused: bool) -> None:
        if refused:
            raise RunFailedError(self._with_log(f"{self.plan.name} refused its settings or data"))
        limit = self._budget.early_deaths_later if self.first_ready.is_set() else self._budget.early_deaths
        if early >= limit:
            raise RunFailedError(self._with_log(f"{self.plan.name} {how} {early} times before it was ready"))
        if self.restarts >= self._budget.restarts:
            raise RunFailedError(self._with_log(f"{self.plan.name} {how} after {self.restarts} restarts"))

    def _with_log(self, message: str) -> str:
        tail = log_tail(self.log)
        said = f"{message}; its log is {self.log}"
        if not tail:
            return said
        return f"{said} and ends with:" + ("\n" if "\n" in tail else " ") + tail
