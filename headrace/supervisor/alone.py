"""One process kept alive until it has done its work: a stage that needs no other service, a machine that joins."""

import asyncio
import functools
import signal
from collections.abc import Callable
from pathlib import Path

from headrace.supervisor.crew import Crew
from headrace.supervisor.keeper import Budget, KeeperState, RunFailedError
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.readiness import Faces
from headrace.supervisor.supervisor import Outcome, Patience, View

STOPPED_CODE = 75
"""For a trainer's `--stopped-code`: a signal has ended it, which is a death, and not the end of its work."""


class Alone:
    """Runs one plan: started again when it dies, over when it exits with status 0. On the main thread."""

    def __init__(
        self,
        run_dir: Path,
        plan: ProcessPlan,
        *,
        budget: Budget,
        patience: Patience | None = None,
        called_off: Callable[[], bool] = lambda: False,
    ) -> None:
        """`called_off`: asked while the process is not ready; whether it starts, or starts again, for nothing."""
        self._run_dir, self._plan, self._called_off = run_dir, plan, called_off
        self._patience = patience or Patience()
        self._faces = Faces()
        self._notices: list[str] = []
        self._crew = Crew(run_dir, budget, self._notices.append)
        self._stop, self._stop_now = asyncio.Event(), asyncio.Event()

    async def run(self, observe: Callable[[View], None]) -> Outcome:
        """Returns how it ended; nothing is running then. `observe` is called at each look."""
        for name in ("logs", "run"):
            (self._run_dir / name).mkdir(exist_ok=True)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive)
        port = self._plan.http_port
        try:
            task = self._crew.keep(
                self._plan,
                functools.partial(self._faces.wait_until_ready, self._plan.name, port),
                is_over=_over,
                probe=functools.partial(self._faces.answers, port),
            )
            outcome = await self._watch(task, observe)
        except RunFailedError as error:
            outcome = Outcome("failed", str(error))
        finally:
            await self._end()
        observe(self._view())
        return outcome

    async def _watch(self, task: "asyncio.Task[None]", observe: Callable[[View], None]) -> Outcome:
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            while not task.done():
                if self._stop.is_set():
                    return Outcome("stopped", "asked to stop")
                if not self._is_ready() and self._called_off():
                    return Outcome("stopped", "the run's command on machine 0 has ended")
                observe(self._view())
                await asyncio.wait({task, stopped}, timeout=self._patience.poll_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        task.result()
        return Outcome("finished")

    def _view(self) -> View:
        states = self._crew.states()
        began = states.get(self._plan.name) != KeeperState.STARTING
        return View({"state": "running"} if began else {}, states, tuple(self._notices))

    def _is_ready(self) -> bool:
        return self._crew.states().get(self._plan.name) == KeeperState.READY

    async def _end(self) -> None:
        """Down in bounded time; after a second signal at once."""
        self._crew.stop_restarting()
        orderly = asyncio.ensure_future(self._crew.terminate(lambda _: True, self._patience.drain_s))
        now = asyncio.ensure_future(self._stop_now.wait())
        try:
            await asyncio.wait({orderly, now}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            now.cancel()
            orderly.cancel()
            self._crew.kill()
            await self._crew.settle()
            await self._faces.close()

    def _receive(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        else:
            self._notices.append("stopping: the step ends and a checkpoint is written; once more stops at once")
        self._stop.set()


async def _over() -> bool:
    """Exit status 0 is the end: nobody else has to agree."""
    return True
