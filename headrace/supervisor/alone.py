"""Keeps one process alive until its work is done: a stage that needs no other service, a machine that joins."""

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
    """Runs one plan: restarts it when it dies, ends when its work does or is stopped. Used on the main thread."""

    def __init__(
        self,
        run_dir: Path,
        plan: ProcessPlan,
        *,
        budget: Budget,
        patience: EndDeadlines | None = None,
        called_off: Callable[[], RunOutcome | None] = lambda: None,
    ) -> None:
        """`called_off`: polled while the process is not ready; an outcome if there is nothing left to start it for."""
        self._run_dir, self._plan, self._called_off = run_dir, plan, called_off
        self._patience = patience or EndDeadlines()
        self._readiness = ReadinessClient()
        self._notices: list[str] = []
        self._processes = ProcessSet(run_dir, budget, self._notices.append)
        self._signals = StopSignals(self._notices.append)
        self._by_operator = False

    async def run(self, observe: Callable[[View], None]) -> RunOutcome:
        """Runs to the end and returns the outcome; nothing is running then. `observe` is called at each poll."""
        for folder in (RunPaths(self._run_dir).logs, RunPaths(self._run_dir).processes):
            folder.mkdir(exist_ok=True)
        self._signals.listen()
        port = self._plan.http_port
        try:
            task = self._processes.keep(
                self._plan,
                functools.partial(self._readiness.wait_until_ready, self._plan.name, port),
                is_over=self._is_over,
                probe=functools.partial(self._readiness.answers, port),
            )
            outcome = await self._watch(task, observe)
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

    async def _watch(self, task: "asyncio.Task[None]", observe: Callable[[View], None]) -> RunOutcome:
        stopped = asyncio.ensure_future(self._signals.asked.wait())
        try:
            while not task.done():
                if self._signals.asked.is_set():
                    return RunOutcome("stopped", "asked to stop")
                if not self._is_ready() and (outcome := self._called_off()):
                    return outcome
                observe(self._view())
                await asyncio.wait({task, stopped}, timeout=self._patience.poll_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        task.result()
        return RunOutcome("stopped", "an operator stopped the run") if self._by_operator else RunOutcome("finished")

    def _view(self) -> View:
        states = self._processes.states()
        began = states.get(self._plan.name) != MonitorState.STARTING
        return View(None, states, tuple(self._notices), started=began)

    def _is_ready(self) -> bool:
        return self._processes.states().get(self._plan.name) == MonitorState.READY

    async def _is_over(self, code: int) -> bool:
        """Whether this exit status is an end; no other service has to confirm it."""
        self._by_operator = code == OPERATOR_CODE
        return code == 0 or self._by_operator
