"""A fixed number of children that take jobs. A child that passes the deadline is killed and replaced."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.services.reward import metrics
from headrace.services.reward.scorer import ScorerDownError
from headrace.services.reward.workers.clock import CpuClock, within_cpu_s
from headrace.services.reward.workers.errors import JobDiedError, JobError, JobStarvedError, JobTimeoutError
from headrace.services.reward.workers.process import DiedAtStartError, Order, WorkerProcess
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.host.child import ended
from headrace.wire.host.frames import ForeignFrameError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

log = get_logger("workers")

_STARTS = 3
_BACKOFF_S = 0.2
_CLOSE_S = 30.0
_GRACE_S = 1.0
"""For a child to leave by itself, whose socket has been closed."""


class WorkerPool:
    """Runs `function(job: dict) -> dict` in processes that die with this one. Jobs and results are JSON."""

    TRIES = 3
    """Most tries of `run_fairly`."""
    PATIENCE = 10
    """A try of `run_fairly` takes `PATIENCE * deadline_s` at most, however little of a CPU its child gets."""

    def __init__(
        self,
        target: str,
        *,
        processes: int,
        deadline_s: float,
        what: str,
        arguments: Mapping[str, object] | None = None,
        path: Path | None = None,
        memory_mb: int | None = None,
        start_s: float = 60.0,
    ) -> None:
        """`target` is `module:factory`: each child calls `factory(**arguments)` once, which returns the function.

        `path` comes last on the child's import path. `deadline_s` is for one job, from when a child takes it;
        `start_s` for a child to load. `memory_mb` bounds what address space a loaded child may add.
        """
        self._what, self._processes = what, processes
        self._deadline_s, self._start_s = deadline_s, start_s
        folder = None if path is None else str(path)
        self._order = Order(target=target, arguments=dict(arguments or {}), path=folder, memory_mb=memory_mb)
        self._idle: asyncio.LifoQueue[WorkerProcess | None] = asyncio.LifoQueue()
        """None = room for a child that is not there."""
        self._alive: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Every child has loaded; raises ConfigError with the child's own words if it cannot.

        Must be called on the main thread: the kernel ties the children to the thread that started them.
        """
        try:
            for child in await asyncio.gather(*(self._begin() for _ in range(self._processes))):
                self._idle.put_nowait(child)
        except BaseException:
            await self.close()
            raise

    @property
    def longest_s(self) -> float:
        """What `run_fairly` takes at most, tries included, from its turn on."""
        return self.TRIES * self.PATIENCE * self._deadline_s

    async def run(self, job: Mapping[str, object]) -> dict[str, object]:
        """Waits for its turn (the caller bounds that), then no longer than the deadline.

        Raises JobTimeoutError and JobDiedError (the child is replaced), JobError for what the function raises, and
        ScorerDownError if no child can be started any more.
        """
        return await self._run(job, fairly=False)

    async def run_fairly(self, job: Mapping[str, object]) -> dict[str, object]:
        """As `run`, for jobs that only compute: the deadline is one of processor time, however busy the machine.

        A job whose child dies is tried again, so JobTimeoutError and JobDiedError are the job's own doing. Raises
        JobStarvedError for one whose child gets less processor time than the deadline in `PATIENCE` times as long.
        """
        for _ in range(1, self.TRIES):
            with suppress(JobDiedError):
                return await self._run(job, fairly=True)
        return await self._run(job, fairly=True)

    async def _run(self, job: Mapping[str, object], *, fairly: bool) -> dict[str, object]:
        child = await self._turn()
        meter, keep, outcome = CpuClock(child), False, "cancelled"
        try:
            result = await self._answer(child.run(job), meter if fairly else None)
            keep, outcome = True, "done"
            return result
        except JobError:
            keep, outcome = True, "raised"
            raise
        except (TypeError, ValueError) as error:  # JSON cannot hold the job: nothing was sent.
            keep, outcome = True, "raised"
            raise JobError(type(error).__name__, str(error)) from error
        except WaitTimeoutError as error:
            outcome = "timeout"
            used = meter.used_s()
            await child.kill()
            words = f"{self._what}: no answer within {self._deadline_s:g} s"
            if fairly and used is not None and used < self._deadline_s:
                outcome = "starved"
                raise JobStarvedError(
                    f"{words} of processor time: the machine is too busy, it got {used:.1f} s in {error.seconds:.1f} s"
                ) from error
            raise JobTimeoutError(words, used) from error
        except ForeignFrameError as error:
            outcome = "died"
            await child.kill()
            raise JobDiedError(
                f"{self._what}: its process wrote into the connection to its service: {error}"
            ) from error
        except OSError as error:
            outcome = "died"
            raise JobDiedError(f"{self._what}: its process {ended(await child.kill(_GRACE_S))}") from error
        finally:
            metrics.WORKER_JOBS.labels(outcome).inc()
            if keep:
                self._idle.put_nowait(child)
            else:
                task = asyncio.create_task(self._replace(child))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, answer: Awaitable[dict[str, object]], meter: CpuClock | None) -> dict[str, object]:
        """Raises WaitTimeoutError; with a meter at the end of the deadline's processor time."""
        if meter is None:
            return await wait_for(answer, self._deadline_s, self._what)
        return await within_cpu_s(answer, meter, self._deadline_s, self.PATIENCE * self._deadline_s, self._what)

    async def close(self) -> None:
        """Ends every child."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await wait_for(
            asyncio.gather(*(self._end(child, _GRACE_S) for child in list(self._alive))), _CLOSE_S, self._what
        )

    async def _turn(self) -> WorkerProcess:
        child = await self._idle.get()
        if child is not None and child.is_quiet:
            return child
        new = None
        try:
            if child is not None:  # It died with nothing to do: no job's fault.
                await self._end(child)
            new = await self._begin()
        except ConfigError as error:
            raise ScorerDownError(str(error)) from error
        finally:
            if new is None:
                self._idle.put_nowait(None)
        return new

    async def _replace(self, child: WorkerProcess) -> None:
        new = None
        try:
            await self._end(child)
            new = None if self._closed else await self._begin()
        except ConfigError as error:
            log.warning("worker_not_replaced", what=self._what, reason=str(error))
        finally:
            self._idle.put_nowait(new)

    async def _end(self, child: WorkerProcess, grace_s: float = 0.0) -> None:
        self._alive.discard(child)
        with suppress(WaitTimeoutError):
            await child.kill(grace_s)

    async def _begin(self) -> WorkerProcess:
        """A child that has loaded. One that dies without a word is tried again, a few times."""
        reason = ""
        for attempt in range(_STARTS):
            if attempt:
                await asyncio.sleep(_BACKOFF_S * 2**attempt)
            try:
                child = await WorkerProcess.start(self._order, self._what, self._start_s)
            except DiedAtStartError as error:
                reason = str(error)
                continue
            self._alive.add(child)
            return child
        raise ConfigError(f"{reason}, {_STARTS} times in a row")
