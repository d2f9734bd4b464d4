"""Keeps processes alive without an orchestrator of their own: a stage, which needs none, and a machine that joins."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path

from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget, RunFailedError
from headrace.supervisor.processes import ProcessSet
from headrace.supervisor.readiness import ReadinessClient
from headrace.supervisor.stop_signals import StopSignals
from headrace.supervisor.supervisor import EndDeadlines, RunOutcome
from headrace.supervisor.view import MonitorState, View
from headrace.wire.rundir.layout import RunPaths

STOPPED_CODE = 75
"""Exit status for a trainer's `--stopped-code`: a signal ended it, which is a death and not the end of its work."""
OPERATOR_CODE = 76
"""Exit status for a trainer's `--operator-code`: an operator stopped the run, which is an end before the last step."""


class Alone:
    """Restarts what dies; ends when the work does or is stopped. Used on the main thread."""

    def __init__(
        self,
        run_dir: Path,
        *plans: ProcessPlan,
        serves: bool = False,
        budget: Budget,
        patience: EndDeadlines | None = None,
        called_off: Callable[[], RunOutcome | None] = lambda: None,
    ) -> None:
        """`serves`: the processes are services, whose exit is a death; otherwise exit status 0 is the end of the work.

        `called_off`: returns an outcome if there is nothing left to run them for. It may block for seconds. It is not
        polled while a process that works is ready.
        """
        self._run_dir, self._plans, self._serves, self._called_off = run_dir, plans, serves, called_off
        self._patience = patience or EndDeadlines()
        self._readiness = ReadinessClient()
        self._notices: list[str] = []
        self._processes = ProcessSet(run_dir, budget, self._notices.append)
        self._signals = StopSignals(self._notices.append, *["work under way is handed back"] * serves)
        self._by_operator = False

    async def run(self, observe: Callable[[View], None]) -> RunOutcome:
        """Runs to the end and returns the outcome; nothing is running then. `observe` is called at each poll."""
        for folder in (RunPaths(self._run_dir).logs, RunPaths(self._run_dir).processes):
            folder.mkdir(exist_ok=True)
        self._signals.listen()
        try:
            outcome = await self._watch([self._keep(plan) for plan in self._plans], observe)
        except RunFailedError as error:
            outcome = RunOutcome.of(error)
        finally:
            try:
                await self._signals.end(
                    self._processes, self._processes.terminate(lambda _: True, self._patience.drain_s)
                )
            finally:
                await self._readiness.close()
        observe(self._view())
        return outcome

    def _keep(self, plan: ProcessPlan) -> "asyncio.Task[None]":
        return self._processes.keep(
            plan,
            functools.partial(self._readiness.wait_until_ready, plan.name, plan.http_port),
            is_over=None if self._serves else self._is_over,
            probe=self._readiness.probe(plan.name, plan.http_port),
        )

    async def _watch(self, tasks: "list[asyncio.Task[None]]", observe: Callable[[View], None]) -> RunOutcome:
        stopped = asyncio.ensure_future(self._signals.asked.wait())
        try:
            while left := {task for task in tasks if not task.done()}:
                self._processes.check()
                if self._signals.asked.is_set():
                    return RunOutcome("stopped", "asked to stop")
                if (self._serves or not self._is_ready()) and (outcome := await asyncio.to_thread(self._called_off)):
                    return outcome
                observe(self._view())
                await asyncio.wait({*left, stopped}, timeout=self._patience.poll_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        self._processes.check()
        return RunOutcome("stopped", "an operator stopped the run") if self._by_operator else RunOutcome("finished")

    def _view(self) -> View:
        states = self._processes.states()
        return View(None, states, tuple(self._notices), started=MonitorState.STARTING not in states.values())

    def _is_ready(self) -> bool:
        return set(self._processes.states().values()) == {MonitorState.READY}

    async def _is_over(self, code: int) -> bool:
        """Whether this exit status is an end; no other service has to confirm it."""
        self._by_operator = code == OPERATOR_CODE
        return code == 0 or self._by_operator
