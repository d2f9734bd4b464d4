"""Keeps one process alive: starts it, waits until it is ready, restarts it when it dies, within a budget."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.supervisor.process import ProcessPlan, ServiceProcess, fault_in, log_tail
from headrace.supervisor.view import MonitorState
from headrace.wire.errors import DiskError, HeadraceError, WaitTimeoutError
from headrace.wire.host.disk_fault import disk_fault, probe
from headrace.wire.process.entry import GIVEN_UP, REFUSED
from headrace.wire.rundir.layout import RunPaths

_NUMBER = re.compile(r"[\d.]+")

Ready = Callable[[float], Awaitable[None]]
Notice = Callable[[str], None]
IsOver = Callable[[int], Awaitable[bool]]
"""Returns whether an exit with this status is the end, and not a death."""
Prepare = Callable[[int], str]
"""Called before each start with the number of early deaths in a row; returns a notice for the user. May raise
OSError."""
Probe = Callable[[float], Awaitable[str | None]]
"""Returns the process's problem, empty = none; None = it does not answer within so many seconds.

Raises DiskError where its disk refuses what it writes: no restart makes room."""


class RunFailedError(HeadraceError):
    """The run cannot go on; the message names the process, the reason and the log."""


class ProcessLostError(RunFailedError):
    """A process cannot be kept alive although its settings work; the run goes on where others do the same."""


class DiskRefusedError(RunFailedError):
    """A process, or the supervisor itself, could not write; the message names path, free bytes and way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits on deaths and restarts. Times are seconds."""

    ready_s: float = 180.0
    """From start to `/readyz`."""
    early_deaths: int = 4
    """Deaths in a row of a process that was never ready: its settings are wrong, and retries are useless. One more
    than the replays after which a trainer names the batch that kills it."""
    early_deaths_later: int = 20
    """The same once it, or another replica of its service, has been ready in this run: the settings are not the
    cause."""
    restarts: int = 1000
    backoff_s: float = 0.1
    """Wait before the first restart; doubles with each one until the process has been ready for `calm_s`."""
    longest_backoff_s: float = 5.0
    calm_s: float = 60.0
    liveness_s: float = 60.0
    """A process that has been ready and then does not answer for so long is killed and restarted; 0 = never."""
    probe_s: float = 5.0
    """Interval between two probes, and timeout of each."""


class ProcessMonitor:
    """Runs one process plan over all its lives."""

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
        another_was_ready: Callable[[], bool] = lambda: False,
    ) -> None:
        """`another_was_ready`: whether another replica of its service has been ready in this run."""
        self.plan = plan
        self.state = MonitorState.STARTING
        self.restarts = 0
        self.child: ServiceProcess | None = None
        self.first_ready = asyncio.Event()
        self._run_dir, self._ready, self._is_over = run_dir, ready, is_over
        self._budget, self._notice, self._probe = budget, notice, probe
        self._prepare = prepare
        self._another_was_ready = another_was_ready
        self._stopping = False
        self._refused = ""
        """What the probe says of the disk under the process."""

    @property
    def log(self) -> Path:
        """Log file of the process."""
        return RunPaths(self._run_dir).log(self.plan.name)

    def stop_restarting(self) -> None:
        """Treats every further death as the end."""
        self._stopping = True

    async def run(self) -> None:
        """Runs the process until its end. Raises RunFailedError if the budget is spent or it does not become ready."""
        early, backoff = 0, self._budget.backoff_s
        while not self._stopping:
            self.state = MonitorState.STARTING
            self._make_ready_to_start(early)
            self.child = await self._spawn()
            was_ready, calm, code = await self._one_life(self.child)
            if await self._was_the_end(code):
                break
            early = 0 if was_ready else early + 1
            backoff = self._budget.backoff_s if calm else backoff
            how = f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
            self._look_at_disk(code)
            if code == GIVEN_UP:
                raise RunFailedError(self._with_log(f"{self.plan.name} has given up"))
            self._check_budget(early, how, refused=code == REFUSED and not was_ready)
            self.restarts += 1
            self._notice(f"{self.plan.name} {how}; it is started again ({self.restarts})")
            self.state = MonitorState.WAITING
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, self._budget.longest_backoff_s)
        self.state = MonitorState.ENDED

    def _make_ready_to_start(self, early: int) -> None:
        if self._prepare is None:
            return
        try:
            notice = self._prepare(early)
        except OSError as error:
            raise RunFailedError(f"{self.plan.name} cannot be started: {error}") from error
        if notice:
            self._notice(notice)

    async def _spawn(self) -> ServiceProcess:
        try:
            return await ServiceProcess.spawn(self.plan, self._run_dir, self._notice)
        except OSError as error:
            fault = disk_fault(error, self._run_dir)
            if fault is not None:
                raise DiskRefusedError(f"{self.plan.name} cannot be started: {fault}") from error
            raise RunFailedError(f"{self.plan.name} cannot be started: {error}") from error

    def _look_at_disk(self, code: int) -> None:
        """Ends the run where a full disk killed the process: no restart makes room. Raises DiskRefusedError.

        The log names the fault, unless the log was what the disk refused.
        """
        said = self._refused or (fault_in(self.log) if code == GIVEN_UP else "")
        found = None if said else probe(RunPaths(self._run_dir).processes)
        if said or found:
            raise DiskRefusedError(f"{self.plan.name} could not write {said or found}")

    async def _was_the_end(self, code: int) -> bool:
        return self._stopping or (self._is_over is not None and await self._is_over(code))

    async def _one_life(self, child: ServiceProcess) -> tuple[bool, bool, int]:
        """Returns whether it was ready, whether it then lived longer than `calm_s`, and its exit status."""
        ready = asyncio.ensure_future(self._ready(self._budget.ready_s))
        ended = asyncio.ensure_future(child.wait())
        watching: asyncio.Future[None] | None = None
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                if self._is_late(ready):
                    child.kill()
                else:
                    self.state = MonitorState.READY
                    self.first_ready.set()
                    watching = asyncio.ensure_future(self._watch(child))
            since = time.monotonic()
            code = await ended
            was_ready = self.state is MonitorState.READY
            return was_ready, was_ready and time.monotonic() - since > self._budget.calm_s, code
        finally:
            ready.cancel()
            ended.cancel()
            if watching:
                watching.cancel()
            # What it left in its process group would hold the ports.
            child.kill()

    async def _watch(self, child: ServiceProcess) -> None:
        """Kills a process that no longer answers: frozen, or with a blocked event loop."""
        if self._probe is None or not self._budget.liveness_s:
            return
        silent, looked, trouble = 0.0, time.monotonic(), ""
        every = min(self._budget.probe_s, self._budget.liveness_s / 4)
        while silent < self._budget.liveness_s:
            await asyncio.sleep(every)
            try:
                found = await self._probe(every)
            except DiskError as error:
                self._refused = str(error)
                child.kill()
                return
            now = time.monotonic()
            # Numbers in it (tries, seconds) may change with every probe: no new notice for that.
            if found is not None and _NUMBER.sub("", found) != trouble:
                self._notice(f"{self.plan.name}: {found or 'all is well again'}")
                trouble = _NUMBER.sub("", found)
            # If the supervisor itself was stopped for a while, a missed answer is not evidence about the child.
            silent = 0.0 if found is not None else silent + min(now - looked, 2 * every)
            looked = now
        self._notice(f"{self.plan.name} has not answered for {silent:.0f} s: it is killed")
        child.kill()

    def _is_late(self, ready: "asyncio.Future[None]") -> bool:
        """Whether it missed its deadline though its settings work. Raises RunFailedError if they never have."""
        error = ready.exception()
        if isinstance(error, WaitTimeoutError):
            if not self._settings_work():
                raise RunFailedError(self._with_log(str(error))) from error
            self._notice(f"{error}: it is killed")
            return True
        if error is not None:
            raise error
        return False

    def _check_budget(self, early: int, how: str, *, refused: bool) -> None:
        if refused:
            raise RunFailedError(self._with_log(f"{self.plan.name} refused its settings or data"))
        works = self._settings_work()
        if early >= (self._budget.early_deaths_later if works else self._budget.early_deaths):
            kind = ProcessLostError if works else RunFailedError
            raise kind(self._with_log(f"{self.plan.name} {how} {early} times before it was ready"))
        if self.restarts >= self._budget.restarts:
            raise ProcessLostError(self._with_log(f"{self.plan.name} {how} after {self.restarts} restarts"))

    def _settings_work(self) -> bool:
        return self.first_ready.is_set() or self._another_was_ready()

    def _with_log(self, message: str) -> str:
        tail = log_tail(self.log)
        said = f"{message}; its log is {self.log}"
        if not tail:
            return said
        return f"{said} and ends with:" + ("\n" if "\n" in tail else " ") + tail
