"""Sandboxes that are kept warm, and programs that wait for one."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from headrace.services.reward import metrics
from headrace.services.reward.sandbox import cpu
from headrace.services.reward.sandbox.errors import SandboxError, SandboxStartError, StarvedError
from headrace.services.reward.sandbox.inside.confine import Limits
from headrace.services.reward.sandbox.outcome import Program, SandboxOutcome
from headrace.services.reward.sandbox.probe import check
from headrace.services.reward.sandbox.slot import Slot, sealed, text_of
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

log = get_logger("reward")

_CLOSE_S = 30.0
_START_S = 60.0


class Sandboxes:
    """As many sandboxes as programs may run at a time; a backend."""

    def __init__(self, count: int, limits: Limits, packages: Path | None = None) -> None:
        self._count, self._limits, self._packages = count, limits, packages
        self._slots = [Slot(number, limits, packages) for number in range(count)]
        self._free: SimpleQueue[Slot] = SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self._closing = threading.Event()

    @property
    def pids(self) -> list[int]:
        """Process ids of the sandboxes that run."""
        return [slot.pid for slot in self._slots if slot.pid is not None]

    async def start(self) -> None:
        """Starts them all and proves that one isolates. Raises ConfigError with the way out if not."""
        self._warn()
        # A sandbox dies with the thread that started it: these threads live as long as the pool.
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="sandbox")
        loop = asyncio.get_running_loop()
        try:
            await wait_for(
                asyncio.gather(*(loop.run_in_executor(self._threads, check, slot) for slot in self._slots)),
                _START_S,
                "the start of the sandboxes",
            )
        except BaseException:
            await self.close()
            raise
        for slot in self._slots:
            self._free.put(slot)

    def _warn(self) -> None:
        if self._count > cpu.available():
            words = "programs wait for each other: lower reward.processes"
            log.warning("more_sandboxes_than_cpus", processes=self._count, cpus=cpu.available(), way_out=words)
        if not cpu.tells_waiting():
            words = "no /proc/self/schedstat: a program that waits for a CPU is charged for it"
            log.warning("waiting_not_told", why=words)

    async def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        go_on: Callable[[SandboxOutcome], bool],
        begin: Callable[[], None],
    ) -> None:
        """Waits for a free sandbox; see `SandboxBackend.run`."""
        if self._threads is None:
            raise SandboxStartError("the sandboxes are closed")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._run, program, inputs, go_on, begin)

    def _run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        go_on: Callable[[SandboxOutcome], bool],
        begin: Callable[[], None],
    ) -> None:
        slot = self._free.get_nowait()  # There are as many as threads.
        try:
            begin()
            with sealed(text_of(program)) as source:
                for given in inputs:
                    if not go_on(self._test(slot, source, given)):
                        return
        finally:
            self._free.put(slot)

    def _test(self, slot: Slot, source: int, given: bytes) -> SandboxOutcome:
        """Tried again, once, where a sandbox fails, which is replaced by a fresh one, or the machine was too busy."""
        try:
            if slot.pid is not None:
                return _counted(slot.run(source, given))
        except StarvedError as error:
            log.warning("test_starved", error=str(error))
        except SandboxError as error:
            metrics.SANDBOX_FAILURES.inc()
            log.warning("sandbox_failed", error=str(error))
        if self._closing.is_set():
            raise SandboxError("the sandboxes are being closed")
        if slot.pid is None:
            slot.start()
        return _counted(slot.run(source, given))

    async def close(self) -> None:
        """Kills them all; programs that run fail, as SandboxError."""
        threads, self._threads = self._threads, None
        self._closing.set()
        if threads is None:
            return
        threads.shutdown(wait=False, cancel_futures=True)
        ended = asyncio.get_running_loop().run_in_executor(None, self._end, threads)
        await wait_for(ended, _CLOSE_S, "the end of the sandboxes")

    def _end(self, threads: ThreadPoolExecutor) -> None:
        for slot in self._slots:
            slot.end()
        threads.shutdown(wait=True)
        for slot in self._slots:
            slot.kill()


def _counted(outcome: SandboxOutcome) -> SandboxOutcome:
    metrics.SANDBOX_TESTS.labels(outcome.ending).inc()
    return outcome
