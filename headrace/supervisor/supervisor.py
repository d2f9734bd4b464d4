"""One local run: all processes up, watched until the orchestrator says that the run is over, and all down again."""

import asyncio
import functools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.supervisor.broker import EmbeddedBroker, wait_until_up
from headrace.supervisor.keeper import Budget, Keeper, RunFailedError
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.readiness import Faces
from wire.errors import TransientError, WaitTimeoutError
from wire.lifecycle import wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the end of a run may take, in seconds."""

    poll_s: float = 0.25
    settle_s: float = 10.0
    """From the trainer's exit until the orchestrator knows that the run is over."""
    finish_s: float = 30.0
    """A trainer whose run is finished exits by itself."""
    drain_s: float = 60.0
    """SIGTERM to the trainer's exit: it ends its step and writes a checkpoint."""
    grace_s: float = 10.0
    """The same for all others."""


@dataclass(frozen=True, slots=True)
class View:
    """What an observer is shown at each look."""

    status: dict[str, Any]
    """The orchestrator's status; empty before the first answer."""
    services: dict[str, str]
    """Name -> what the process is doing."""
    notices: tuple[str, ...]
    """All notices so far."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended."""

    state: str
    """`finished`, `failed` or `stopped`."""
    reason: str = ""
    status: dict[str, Any] = field(default_factory=dict)


class Supervisor:
    """Runs the plans of one run directory. One `run` an object; on the main thread."""

    def __init__(
        self,
        run_dir: Path,
        services: Sequence[ProcessPlan],
        *,
        broker: EmbeddedBroker | None,
        budget: Budget | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._run_dir, self._broker = run_dir, broker
        self._budget, self._patience = budget or Budget(), patience or Patience()
        self._faces = Faces()
        self._plans = services
        self._keepers: dict[str, Keeper] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._status: dict[str, Any] = {}
        self._notices: list[str] = []
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    async def run(self, observe: Callable[[View], None]) -> Outcome:
        """Starts everything, returns how it ended; nothing is running then. `observe` is called at each look."""
        for name in ("logs", "run"):
            (self._run_dir / name).mkdir(exist_ok=True)
        self._take_signals()
        try:
            await self._start_all()
            outcome = await self._watch(observe)
        except RunFailedError as error:
            outcome = Outcome("failed", str(error), self._status)
        finally:
            await self._end()
        observe(self._view())
        return outcome

    async def _start_all(self) -> None:
        if self._broker:
            self._broker.make_folder()
            task = self._keep(self._broker.plan, functools.partial(wait_until_up, self._broker))
            up = asyncio.ensure_future(self._keepers[self._broker.plan.name].first_ready.wait())
            await asyncio.wait({up, task}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            if task.done():
                task.result()
        for plan in self._plans:
            self._keep(plan, functools.partial(self._faces.wait_until_ready, plan.name, plan.http_port))

    def _keep(self, plan: ProcessPlan, ready: Callable[[float], Any]) -> "asyncio.Task[None]":
        keeper = Keeper(
            plan,
            self._run_dir,
            ready=ready,
            is_over=self._is_over if plan.name == "trainer" else None,
            budget=self._budget,
            notice=self._notices.append,
        )
        self._keepers[plan.name] = keeper
        task = asyncio.create_task(keeper.run(), name=plan.name)
        self._tasks.append(task)
        return task

    async def _watch(self, observe: Callable[[View], None]) -> Outcome:
        while True:
            if self._stop.is_set():
                return Outcome("stopped", "asked to stop", self._status)
            for task in self._tasks:
                if task.done():
                    task.result()
            await self._look()
            observe(self._view())
            state = str(self._status.get("state", ""))
            if state == "finished":
                await self._let_trainer_end()
                return Outcome("finished", "", self._status)
            if state == "failed":
                return Outcome("failed", str(self._status.get("reason", "")), self._status)
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._patience.poll_s):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        port = self._keepers["orchestrator"].plan.http_port if "orchestrator" in self._keepers else 0
        if port:
            try:
                self._status = await self._faces.status(port)
            except TransientError:
                # It is starting, or being started again: its keeper knows.
                return

    def _view(self) -> View:
        services = {name: str(keeper.state) for name, keeper in self._keepers.items()}
        return View(self._status, services, tuple(self._notices))

    async def _is_over(self) -> bool:
        """The trainer left in peace: was it the end? The orchestrator may need a moment to say so."""
        end = time.monotonic() + self._patience.settle_s
        while time.monotonic() < end:
            await self._look()
            if self._status.get("state") in ("finished", "failed"):
                return True
            await asyncio.sleep(self._patience.poll_s)
        return False

    async def _let_trainer_end(self) -> None:
        task = next((task for task in self._tasks if task.get_name() == "trainer"), None)
        if task is not None:
            self._keepers["trainer"].stop_restarting()
            await asyncio.wait({task}, timeout=self._patience.finish_s)

    async def _end(self) -> None:
        """All down, in order, in bounded time; after a second signal at once."""
        for keeper in self._keepers.values():
            keeper.stop_restarting()
        orderly = asyncio.ensure_future(self._stop_in_order())
        now = asyncio.ensure_future(self._stop_now.wait())
        try:
            await asyncio.wait({orderly, now}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            now.cancel()
            orderly.cancel()
            for keeper in self._keepers.values():
                if keeper.child:
                    keeper.child.kill()
            await self._settle()
            await self._faces.close()
            if self._broker:
                self._broker.clean()

    async def _stop_in_order(self) -> None:
        """The trainer first, while what it may need still runs; the broker last."""
        await self._terminate(["trainer"], self._patience.drain_s)
        last = self._broker.plan.name if self._broker else ""
        await self._terminate([n for n in self._keepers if n not in ("trainer", last)], self._patience.grace_s)
        await self._terminate([last], self._patience.grace_s)

    async def _terminate(self, names: Sequence[str], seconds: float) -> None:
        children = [keeper.child for name, keeper in self._keepers.items() if name in names and keeper.child]
        await asyncio.gather(*(child.terminate(seconds) for child in children if child.returncode is None))

    async def _settle(self) -> None:
        """The keepers end with their children."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        for keeper in self._keepers.values():
            if keeper.child:
                # A child spawned while everything was ending.
                keeper.child.kill()
                try:
                    await wait_for(keeper.child.wait(), 5.0, f"{keeper.plan.name} to die")
                except WaitTimeoutError as error:
                    self._notices.append(str(error))

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive)

    def _receive(self) -> None:
        """The first signal drains, the second stops now."""
        if self._stop.is_set():
            self._stop_now.set()
        else:
            self._notices.append("stopping: the step ends and a checkpoint is written; once more stops at once")
        self._stop.set()
