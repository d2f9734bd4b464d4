"""Current state of the run: its trainer, version and phase. Durable through the store."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.state.bounds import check_number, check_trainer
from headrace.services.orchestrator.state.operator_requests import OperatorRequests
from headrace.services.orchestrator.state.step_clock import StepClock
from headrace.services.orchestrator.state.store import Store
from headrace.wire.contracts import DropReason
from headrace.wire.errors import FencedError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, orchestrator_pb2

log = get_logger("orchestrator.run")


_FAILURES = frozenset(
    {
        DropReason.SCORER_FAILED,
        DropReason.ABSTAINED,
        DropReason.ROLLOUT_FAILED,
        DropReason.POISON,
        DropReason.CRASH_LOOP,
    }
)
"""Drop reasons that are failures; `stale` and `uninformative` are deliberate drops and never fail the run."""
_STOPPED = "an operator stopped it"


class RunPhase(StrEnum):
    """Phase of the run."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """Stopped by an operator; can be resumed."""


@dataclass(slots=True)
class TrainerView:
    """The trainer's last report of itself."""

    address: str = ""
    boot_id: str = ""
    knows_stop: bool = False
    """It has been notified of a stop, and will stop even if the request is withdrawn."""
    waiting_for: str = ""
    waiting_since: float = 0.0
    """When it first reported `waiting_for`, in monotonic seconds."""
    waiting_until: float | None = None
    """Deadline of the wait, in monotonic seconds; None without one."""
    waiting_share: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    unproven: dict[str, int] = field(default_factory=dict)
    """Replica id -> groups in a row that it sampled under weights which the trainer never had."""
    routes: common_pb2.Routes = field(default_factory=common_pb2.Routes)


class RunState:
    """Fences off old trainers, records fates, and notifies tasks that wait for a change (`changed`)."""

    def __init__(self, store: Store, *, max_steps: int, failures_in_row: int = 64) -> None:
        self._store = store
        self._failures_limit = failures_in_row
        self._failures = 0
        self.max_steps = max_steps
        self.operator_requests = OperatorRequests(store)
        """The operator requests in force."""
        self._clock = StepClock()
        self.phase = RunPhase.STARTING
        self.reason = ""
        self.trainer = TrainerView()
        self.changed = asyncio.Condition()
        self.incarnation = store.get_int("incarnation")
        self.version = store.get_int("version")
        self.trainer.address = (store.get("trainer_address") or b"").decode()
        self.trainer.boot_id = (store.get("trainer_boot_id") or b"").decode()
        self.trainer.routes = common_pb2.Routes.FromString(store.get("trainer_routes") or b"")
        self._trained_step = store.last_step()
        self._load_phase()
        self.publication = self._stored_publication()
        """The newest publication request of the trainer; joiners get this version."""

    def _load_phase(self) -> None:
        """Restores the phase of a run that has ended; it stays ended until a trainer registers."""
        stored = (self._store.get("phase") or b"").decode()
        if stored == RunPhase.STOPPED:
            self.phase, self.reason = RunPhase.STOPPED, _STOPPED
        elif stored == RunPhase.FINISHED and self.version >= self.max_steps:
            self.phase, self.trainer.finished = RunPhase.FINISHED, True

    def _stored_publication(self) -> orchestrator_pb2.PublishRequest | None:
        data = self._store.get("publication")
        return orchestrator_pb2.PublishRequest.FromString(data) if data else None

    @property
    def issue_version(self) -> int:
        """The minimum version with which a prompt issued now must be generated.

        A batch's fates may be reported before its step is done: prompts issued on their credit belong after that step.
        """
        return max(self.version, self._trained_step)

    async def register_trainer(self, request: orchestrator_pb2.RegisterTrainerRequest) -> int:
        """Assigns an incarnation to a new trainer and adopts its fates; repeated calls of one boot keep its number.

        Raises ContractError for a journal that cannot be of this run.
        """
        check_trainer(request, self.incarnation)
        if request.boot_id != self.trainer.boot_id or self.incarnation <= request.journaled_incarnation:
            self.incarnation = max(self.incarnation, request.journaled_incarnation) + 1
        is_new = request.boot_id != self.trainer.boot_id
        if self.operator_requests.is_inherited and is_new:
            log.warning("stop_withdrawn", reason="orchestrator and trainer were both restarted since")
            self.operator_requests.stop(False)
        self._store.set_all(
            {
                "incarnation": self.incarnation,
                "trainer_routes": request.routes.SerializeToString(),
                "trainer_address": request.address.encode(),
                "trainer_boot_id": request.boot_id.encode(),
                "phase": b"",
            }
        )
        self.trainer = TrainerView(
            address=request.address,
            boot_id=request.boot_id,
            routes=request.routes,
            knows_stop=self.trainer.knows_stop and not is_new,
        )
        self._clock.restart()
        log.info("trainer_registered", incarnation=self.incarnation, version=request.version)
        self._set_version(request.version)
        opened = self._store.keep_only(fate.group_index for fate in request.fates)
        if opened:
            log.warning("fates_not_journaled", groups=opened, effect="these groups are open again")
        self._store.end((fate.group_index, fate.step, fate.reason) for fate in request.fates)
        self._trained_step = max((fate.step for fate in request.fates), default=0)
        if self.phase is not RunPhase.FAILED:
            self.phase, self.reason = RunPhase.RUNNING, ""
        await self.notify()
        return self.incarnation

    async def report(self, request: orchestrator_pb2.ReportProgressRequest) -> None:
        """Records a trainer's report; raises FencedError for an older incarnation."""
        self.fence(request.incarnation)
        check_number("replicas", len(request.unproven))
        if self.phase is RunPhase.STARTING:
            self.phase = RunPhase.RUNNING  # This process was restarted; the trainer is still running.
        self.take_fates(request.fates)
        self._clock.done(request.version - self.version)
        self._set_version(request.version)
        if request.waiting_for != self.trainer.waiting_for:
            self.trainer.waiting_since = time.monotonic()
        self.trainer.waiting_for = request.waiting_for
        left = request.waiting_left_s
        self.trainer.waiting_until = time.monotonic() + left if left else None
        self.trainer.waiting_share = request.waiting_share
        self.trainer.finished = request.finished
        self.trainer.unproven = dict(request.unproven)
        if request.metrics:
            # Those of a whole step: one that it lacks is not the last step's.
            self.trainer.metrics = dict(request.metrics)
        await self.notify()

    def stopped(self) -> None:
        """Records that the trainer has exited at an operator's request."""
        if self.phase is RunPhase.RUNNING:
            self.operator_requests.stop_with(False, {"phase": RunPhase.STOPPED.encode()})
            self.phase, self.reason = RunPhase.STOPPED, _STOPPED
        else:
            self.operator_requests.stop(False)

    def go_on(self) -> None:
        """Ends a pause and withdraws a stop, so that prompts are issued again. Idempotent."""
        if self.operator_requests.holds:
            # Before the pause is recorded as over, or its duration would count as time without a step.
            self._clock.restart()
        self.operator_requests.stop(False)
        self.operator_requests.pause(False)

    def finish(self) -> None:
        """Records that all steps are done. Idempotent."""
        self.operator_requests.stop_with(False, {"phase": RunPhase.FINISHED.encode()})
        self.phase, self.reason = RunPhase.FINISHED, ""

    def fence(self, incarnation: int) -> None:
        """Raises FencedError if `incarnation` is older than the trainer's current one."""
        if incarnation < self.incarnation:
            raise FencedError(f"incarnation {incarnation} is over, {self.incarnation} lives")

    def take_fates(self, fates: Iterable[common_pb2.Fate]) -> None:
        """Records fates of groups; idempotent."""
        rows = [(fate.group_index, fate.step, fate.reason) for fate in fates]
        if rows:
            for _, step, reason in self._store.end(rows):
                self._count_failure(step, reason)
            self._trained_step = max(self._trained_step, *(step for _, step, _ in rows), 0)

    def _count_failure(self, step: int, reason: str) -> None:
        metrics.GROUPS_ENDED.labels("trained" if step else reason).inc()
        if step:
            self._failures = 0
        elif reason in _FAILURES:
            self._failures += 1
            if self._failures >= self._failures_limit and self.phase is not RunPhase.FINISHED:
                self.phase = RunPhase.FAILED
                self.reason = f"the last {self._failures} groups were all dropped, the newest as {reason}"
                log.error("run_failed", reason=self.reason)

    def _set_version(self, version: int) -> None:
        self.version = version
        self._store.set_int("version", version)
        metrics.POLICY_VERSION.set(version)
        metrics.INCARNATION.set(self.incarnation)

    def remember_publication(self, request: orchestrator_pb2.PublishRequest) -> None:
        """Stores the publication request, for joiners and for a restart of this process."""
        self.publication = request
        self._store.set("publication", request.SerializeToString())

    async def notify(self) -> None:
        """Wakes all tasks that wait on `changed`."""
        async with self.changed:
            self.changed.notify_all()
