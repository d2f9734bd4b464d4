"""Supervises a local run: starts all processes, monitors them until the orchestrator reports the end, stops them."""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.supervisor.broker import EmbeddedBroker, WriteProbe, wait_until_up
from headrace.supervisor.control import Control
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget, DiskRefusedError, RunFailedError
from headrace.supervisor.processes import ProcessSet
from headrace.supervisor.readiness import ReadinessClient, StatusRefusedError
from headrace.supervisor.scaling import SERVICES, PlanReplica, Scaling, check_count
from headrace.supervisor.stop_signals import StopSignals
from headrace.supervisor.view import View
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, token_of
from headrace.wire.api.status import RunStatus
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.process.lifecycle import within
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDeadlines:
    """Deadlines for the end of a run, and the polling interval, in seconds."""

    poll_s: float = 0.25
    settle_s: float = 10.0
    """From the trainer's exit until the orchestrator reports that the run is over."""
    finish_s: float = 30.0
    """Wait for the trainer of a finished run to exit by itself."""
    drain_s: float = 60.0
    """From SIGTERM to the trainer's exit: it ends its step and writes a checkpoint."""
    grace_s: float = 10.0
    """The same for all other processes."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of the run."""

    state: str
    """`finished`, `failed` or `stopped`."""
    reason: str = ""
    disk_refused: bool = False
    """Whether a disk that took no writes ended it."""

    @classmethod
    def of(cls, error: RunFailedError) -> "RunOutcome":
        """The outcome of a run that `error` ended."""
        return cls("failed", str(error), disk_refused=isinstance(error, DiskRefusedError))


class Supervisor:
    """Runs the plans of one run directory. Call `run` once, on the main thread."""

    def __init__(
        self,
        run_dir: Path,
        services: Sequence[ProcessPlan],
        *,
        broker: EmbeddedBroker | None,
        plan_replica: PlanReplica | None = None,
        control: Control | None = None,
        budget: Budget | None = None,
        patience: EndDeadlines | None = None,
    ) -> None:
        """Without `plan_replica` and `control` the run cannot be scaled."""
        self._run_dir, self._broker, self._control = run_dir, broker, control
        self._patience = patience or EndDeadlines()
        self._readiness = ReadinessClient()
        self._plans = services
        self._status: RunStatus | None = None
        self._notices: list[str] = []
        self._processes = ProcessSet(run_dir, budget or Budget(), self._notices.append)
        self._scaling: dict[str, Scaling] = {}
        for service in SERVICES if plan_replica else ():
            assert plan_replica is not None
            self._scaling[service] = Scaling(
                service,
                self._processes,
                plan_replica,
                self._keep_on_trial,
                grace_s=self._patience.grace_s,
                notice=self._notices.append,
            )
        self._over_before: int | None = None
        """The trainer's incarnation if the run was already over at the orchestrator's first answer, else -1.

        A resumed run is still reported as over, as it was left, until its trainer registers.
        """
        self._was_refused = False
        self._signals = StopSignals(self._notices.append)

    async def run(self, observe: Callable[[View], None]) -> RunOutcome:
        """Runs to the end and returns the outcome; nothing is running then. `observe` is called at each poll."""
        for folder in (RunPaths(self._run_dir).logs, RunPaths(self._run_dir).processes):
            folder.mkdir(exist_ok=True)
        make_tokens(RunPaths(self._run_dir).tokens)
        self._signals.listen()
        try:
            await self._start_all()
            outcome = await self._watch(observe)
        except RunFailedError as error:
            outcome = RunOutcome.of(error)
        finally:
            await self._end()
        observe(self._view())
        return outcome

    async def _start_all(self) -> None:
        if self._broker:
            task = self._processes.keep(
                self._broker.plan,
                functools.partial(wait_until_up, self._broker),
                probe=WriteProbe(self._broker),
                prepare=self._broker.prepare,
            )
            monitor = self._processes.monitor(self._broker.plan.name)
            assert monitor is not None
            up = asyncio.ensure_future(monitor.first_ready.wait())
            await asyncio.wait({up, task}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            if task.done():
                task.result()
        for plan in self._plans:
            self._keep(plan)
        if self._control:
            try:
                await self._control.open(self._answer)
            except OSError as error:
                self._notices.append(f"`headrace scale` cannot reach this run: {error}")

    def _keep_on_trial(self, plan: ProcessPlan) -> None:
        self._keep(plan, on_trial=True)

    def _keep(self, plan: ProcessPlan, *, on_trial: bool = False) -> None:
        self._processes.keep(
            plan,
            functools.partial(self._readiness.wait_until_ready, plan.name, plan.http_port),
            is_over=self._is_over if plan.name == "trainer" else None,
            probe=self._readiness.probe(plan.name, plan.http_port) if plan.http_port else None,
            on_trial=on_trial,
        )

    def _answer(self, request: Mapping[str, object]) -> list[str]:
        """Executes a control request and returns what it did. Raises ConfigError for a bad one."""
        verb, service = request.get("verb"), request.get("service")
        if verb != "scale":
            raise ConfigError(f"unknown verb {verb!r}; there is scale")
        if service not in SERVICES:
            raise ConfigError(f"the service {service!r} cannot be scaled; only {' and '.join(SERVICES)} can")
        count = check_count(str(request.get("count")))
        scaling = self._scaling.get(str(service))
        if scaling is None or self._signals.asked.is_set():
            raise ConfigError("this run is ending: it cannot be scaled")
        before = len(self._notices)
        scaling.ask(count)
        return self._notices[before:] or [scaling.situation()]

    async def _watch(self, observe: Callable[[View], None]) -> RunOutcome:
        while True:
            if self._signals.asked.is_set():
                return RunOutcome("stopped", "asked to stop")
            self._processes.check()
            for scaling in self._scaling.values():
                scaling.step()
            await self._look()
            observe(self._view())
            state = self._ending()
            if state == "finished":
                await self._let_trainer_end()
                return RunOutcome("finished")
            if state == "stopped":
                await self._let_trainer_end()
                return RunOutcome("stopped", self._reason)
            if state == "failed":
                return RunOutcome("failed", self._reason)
            await within(self._signals.asked.wait(), self._patience.poll_s)

    def _ending(self) -> str:
        """The final state of the run; empty while it goes on, or is being resumed."""
        if self._status is None or self._status.incarnation == self._over_before:
            return ""
        return self._status.state if self._status.state in ("finished", "failed", "stopped") else ""

    @property
    def _reason(self) -> str:
        return self._status.reason if self._status else ""

    async def _look(self) -> None:
        orchestrator = self._processes.monitor("orchestrator")
        if orchestrator and orchestrator.plan.http_port:
            try:
                # Read each time: tokens are rotated.
                token = token_of(RunPaths(self._run_dir).tokens, Role.VIEWER)
                self._status = await self._readiness.status(orchestrator.plan.http_port, token)
            except TransientError:
                # It is starting or restarting, which its monitor handles.
                return
            except StatusRefusedError as error:
                self._note_refusal(error)
                return
            if self._over_before is None:
                is_over = self._status.state in ("finished", "stopped")
                self._over_before = self._status.incarnation if is_over else -1

    def _note_refusal(self, error: StatusRefusedError) -> None:
        if not self._was_refused:
            self._notices.append(
                f"the orchestrator does not accept the viewer's token in {RunPaths(self._run_dir).tokens} ({error}): "
                "without its status the end of the run cannot be seen. Restore the folder's tokens; or stop with "
                "Ctrl-C, remove the folder, and continue with --resume, which makes new ones"
            )
        self._was_refused = True

    def _view(self) -> View:
        return View(self._status, self._processes.states(), tuple(self._notices), started=self._status is not None)

    async def _is_over(self, code: int) -> bool:
        """Whether the trainer's exit was the end, with status 0; the orchestrator may need a moment to report it."""
        if code:
            return False
        end = time.monotonic() + self._patience.settle_s
        while time.monotonic() < end:
            await self._look()
            if self._ending():
                return True
            await asyncio.sleep(self._patience.poll_s)
        return False

    async def _let_trainer_end(self) -> None:
        monitor, task = self._processes.monitor("trainer"), self._processes.task("trainer")
        if monitor and task:
            monitor.stop_restarting()
            await asyncio.wait({task}, timeout=self._patience.finish_s)

    async def _end(self) -> None:
        """Stops all processes in order and in bounded time; after a second signal at once."""
        self._scaling.clear()
        if self._control:
            self._control.close()
        try:
            await self._signals.end(self._processes, self._stop_in_order())
        finally:
            await self._readiness.close()
            if self._broker:
                self._broker.clean()

    async def _stop_in_order(self) -> None:
        """Stops the trainer first, while what it may need still runs, and the broker last."""
        last = self._broker.plan.name if self._broker else ""
        await self._processes.terminate(lambda name: name == "trainer", self._patience.drain_s)
        await self._processes.terminate(lambda name: name not in ("trainer", last), self._patience.grace_s)
        await self._processes.terminate(lambda name: name == last, self._patience.grace_s)
