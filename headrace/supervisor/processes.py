"""The monitored processes of a run: keeps them alive, drains single ones, and ends all of them."""

import asyncio
import functools
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.supervisor.process import ProcessPlan, ServiceProcess
from headrace.supervisor.process_monitor import (
    Budget,
    IsOver,
    Notice,
    Prepare,
    Probe,
    ProcessLostError,
    ProcessMonitor,
    Ready,
    RunFailedError,
)
from headrace.wire.errors import WaitTimeoutError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.layout import RunPaths

DRAINING = "draining"
_SETTLE_S = 5.0
_DIE_S = 10.0
_LOOK_S = 0.1
_INDEX = re.compile(r"-\d+$")


class ProcessSet:
    """Process monitors by name, added and removed during the run. Used on the main thread's event loop only."""

    def __init__(self, run_dir: Path, budget: Budget, notice: Notice) -> None:
        self._run_dir, self._budget, self._notice = run_dir, budget, notice
        self._monitors: dict[str, ProcessMonitor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._on_trial: set[str] = set()
        self._given_up: set[str] = set()
        self._ending = False

    def keep(
        self,
        plan: ProcessPlan,
        ready: Ready,
        *,
        is_over: IsOver | None = None,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
        on_trial: bool = False,
    ) -> "asyncio.Task[None]":
        """Starts a process and keeps it alive; the task ends with it, or fails with RunFailedError.

        One `on_trial` that fails before it was ever ready does not fail the run: `take_failed` returns it.
        """
        # One on trial costs the run nothing: it is given up soon.
        another = functools.partial(self._another_was_ready, plan.name)
        assert plan.name not in self._monitors, plan.name
        monitor = ProcessMonitor(
            plan,
            self._run_dir,
            ready=ready,
            is_over=is_over,
            budget=self._budget,
            notice=self._notice,
            probe=probe,
            prepare=prepare,
            another_was_ready=(lambda: False) if on_trial else another,
        )
        self._monitors[plan.name] = monitor
        if on_trial:
            self._on_trial.add(plan.name)
        self._tasks[plan.name] = asyncio.create_task(monitor.run(), name=plan.name)
        return self._tasks[plan.name]

    def _another_was_ready(self, name: str) -> bool:
        """Whether another replica of the same service has been ready."""
        return any(self._monitors[other].first_ready.is_set() for other in self._others(name))

    def _another_works(self, name: str) -> bool:
        """Whether another replica of the same service has been ready, and is kept alive further on."""
        kept = (other for other in self._others(name) if other not in self._leaving and not self._tasks[other].done())
        return any(self.has_been_ready(other) for other in kept)

    def _others(self, name: str) -> list[str]:
        """Those of the same service."""
        service = _service_of(name)
        return [other for other in self._monitors if other != name and _service_of(other) == service]

    def has_been_ready(self, name: str) -> bool:
        """Whether there is such a process, and it has been ready."""
        monitor = self._monitors.get(name)
        return monitor is not None and monitor.first_ready.is_set()

    def dismiss(self, name: str, grace_s: float) -> None:
        """Ends and removes a process in the background: SIGTERM, SIGKILL after the grace. Its death is expected."""
        if name not in self._leaving and not self._ending:
            self._leaving[name] = asyncio.create_task(self._leave(name, grace_s), name=f"{name} leaves")

    async def _leave(self, name: str, grace_s: float) -> None:
        monitor, task = self._monitors[name], self._tasks[name]
        monitor.stop_restarting()
        end = time.monotonic() + grace_s + _DIE_S
        while not task.done() and time.monotonic() < end:
            if monitor.child and monitor.child.returncode is None:
                await self._terminate_one(monitor.child, grace_s)
            # Between two lives the task ends by itself, unless a last child is just being started.
            await asyncio.wait({task}, timeout=_LOOK_S)
        if monitor.child:
            monitor.child.kill()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del self._leaving[name]
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self._monitors[name], self._tasks[name]
        self._on_trial.discard(name)
        RunPaths(self._run_dir).process(name).unlink(missing_ok=True)

    def take_failed(self, belongs: Callable[[str], bool]) -> list[tuple[str, RunFailedError]]:
        """Removes and returns the processes on trial that have failed."""
        failed: list[tuple[str, RunFailedError]] = []
        for name in filter(belongs, self._on_trial - self._leaving.keys()):
            task = self._tasks[name]
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, RunFailedError) and not self._monitors[name].first_ready.is_set():
                failed.append((name, error))
                self._forget(name)
        return failed

    async def _terminate_one(self, child: ServiceProcess, grace_s: float) -> None:
        try:
            await child.terminate(grace_s)
        except WaitTimeoutError as error:
            self._notice(str(error))
        code = child.returncode or 0
        if code == -signal.SIGKILL:
            self._notice(f"{child.plan.name} was killed: it did not end within {grace_s:g} s")
        elif code > 0:
            self._notice(f"{child.plan.name} left with status {code}")

    def monitor(self, name: str) -> ProcessMonitor | None:
        """Monitor of a process that is kept alive or draining; None if there is none."""
        return self._monitors.get(name)

    def task(self, name: str) -> "asyncio.Task[None] | None":
        """Task that ends with the monitor of that name; None if there is none."""
        return self._tasks.get(name)

    def staying(self, belongs: Callable[[str], bool]) -> list[str]:
        """Names of the processes that are not draining."""
        return [name for name in self._monitors if belongs(name) and name not in self._leaving]

    def states(self) -> dict[str, str]:
        """State of each process."""
        return {
            name: DRAINING if name in self._leaving else str(monitor.state) for name, monitor in self._monitors.items()
        }

    def check(self) -> None:
        """Raises the error of a monitor that has failed, except of one on trial or draining.

        A replica that cannot be kept alive, while another of its service works, is given up with a notice.
        """
        for name, task in list(self._tasks.items()):
            tried = name in self._on_trial and not self._monitors[name].first_ready.is_set()
            if not task.done() or name in self._leaving or tried:
                continue
            try:
                task.result()
            except ProcessLostError as error:
                if not self._another_works(name):
                    raise
                self._forget(name)
                self.leave_out(name)
                self._notice(f"{name} is given up, the run goes on with the others of its service: {error}")

    def leave_out(self, name: str) -> None:
        """Has the run go on without this replica until `try_again`."""
        self._given_up.add(name)

    def was_given_up(self, name: str) -> bool:
        """Whether the run goes on without this replica; `headrace scale` has it started again."""
        return name in self._given_up

    def try_again(self, belongs: Callable[[str], bool]) -> None:
        """Forgets which replicas were given up."""
        self._given_up = {name for name in self._given_up if not belongs(name)}

    def stop_restarting(self) -> None:
        """Treats every further death as the end."""
        self._ending = True
        for monitor in self._monitors.values():
            monitor.stop_restarting()

    async def terminate(self, belongs: Callable[[str], bool], grace_s: float) -> None:
        """Sends SIGTERM to all live ones concurrently, SIGKILL after the grace; waits for those already draining."""
        children = [self._monitors[name].child for name in self.staying(belongs)]
        leaving = [task for name, task in self._leaving.items() if belongs(name)]
        living = [child for child in children if child and child.returncode is None]
        await asyncio.gather(*leaving, *(child.terminate(grace_s) for child in living))

    def kill(self) -> None:
        """Sends SIGKILL to all."""
        for monitor in self._monitors.values():
            if monitor.child:
                monitor.child.kill()

    async def settle(self) -> None:
        """Ends all monitors and kills their children; reports a child that does not die."""
        tasks: Sequence[asyncio.Task[None]] = [*self._leaving.values(), *self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_SETTLE_S)
        for monitor in self._monitors.values():
            if monitor.child:
                # A child spawned while everything was ending.
                monitor.child.kill()
                try:
                    await wait_for(monitor.child.wait(), _SETTLE_S, f"{monitor.plan.name} to die")
                except WaitTimeoutError as error:
                    self._notice(str(error))


def _service_of(name: str) -> str:
    """`rollout` for `rollout-3`."""
    return _INDEX.sub("", name)
