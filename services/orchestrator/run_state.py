"""What the run is at now: its trainer, its version, its state in one word. Durable through the store."""

import asyncio
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from services.orchestrator import metrics
from services.orchestrator.step_clock import StepClock
from services.orchestrator.store import Store
from services.orchestrator.wishes import Wishes
from wire.contracts import DropReason
from wire.errors import FencedError
from wire.telemetry import get_logger
from wire.v1 import common_pb2, orchestrator_pb2

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
"""Reasons that are nobody's choice; `stale` and `uninformative` are one, and end no run here."""
_STOPPED = "an operator stopped it"


class RunPhase(StrEnum):
    """The run in one word."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """An operator asked for it; a resume goes on."""


@dataclass(slots=True)
class TrainerView:
    """What the trainer last said of itself."""

    address: str = ""
    boot_id: str = ""
    told_stop: bool = False
    """It knows that it is to stop: it will, whatever is wished now."""
    waiting_for: str = ""
    waiting_since: float = 0.0
    """Monotonic: when it first said that it waits for this."""
    waiting_until: float | None = None
    """Monotonic: when it will give up; None without a deadline."""
    waiting_share: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    routes: common_pb2.Routes = field(default_factory=common_pb2.Routes)


class RunState:
    """Fences zombies, takes fates in, and wakes whoever waits for a change (`changed`)."""

    def __init__(self, store: Store, *, max_steps: int, failures_in_row: int = 64) -> None:
        self._store = store
        self._failures_limit = failures_in_row
        self._failures = 0
        self.max_steps = max_steps
        self.wishes = Wishes(store)
        """What operators have asked for."""
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
        """The newest version that was asked to be published; joiners get it."""

    def _load_phase(self) -> None:
        """A run that has ended stays so over the lives of this process, until a trainer registers."""
        told = (self._store.get("phase") or b"").decode()
        if told == RunPhase.STOPPED:
            self.phase, self.reason = RunPhase.STOPPED, _STOPPED
        elif told == RunPhase.FINISHED and self.version >= self.max_steps:
            self.phase, self.trainer.finished = RunPhase.FINISHED, True

    def _stored_publication(self) -> orchestrator_pb2.PublishRequest | None:
        data = self._store.get("publication")
        return orchestrator_pb2.PublishRequest.FromString(data) if data else None

    @property
    def issue_version(self) -> int:
        """The version that a prompt issued now must be generated with, or a newer one.

        A batch's fates may be told before its step is done: what is issued on their credit belongs behind that step.
        """
        return max(self.version, self._trained_step)

    async def register_trainer(self, request: orchestrator_pb2.RegisterTrainerRequest) -> int:
        """Numbers a new life of the trainer and takes over its fates. A repeated call of one boot keeps its number."""
        if request.boot_id != self.trainer.boot_id or self.incarnation <= request.journaled_incarnation:
            self.incarnation = max(self.incarnation, request.journaled_incarnation) + 1
        is_new = request.boot_id != self.trainer.boot_id
        if self.wishes.is_inherited and is_new:
            log.warning("stop_withdrawn", reason="orchestrator and trainer were both started anew since")
            self.wishes.stop(False)
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
            told_stop=self.trainer.told_stop and not is_new,
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
        """Takes a trainer's report in; raises FencedError for a lower incarnation."""
        self.fence(request.incarnation)
        if self.phase is RunPhase.STARTING:
            self.phase = RunPhase.RUNNING  # This process was restarted; the trainer lives on.
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
        self.trainer.metrics.update(request.metrics)
        await self.notify()

    def stopped(self) -> None:
        """The trainer has left because an operator asked for it."""
        if self.phase is RunPhase.RUNNING:
            self.wishes.stop_with(False, {"phase": RunPhase.STOPPED.encode()})
            self.phase, self.reason = RunPhase.STOPPED, _STOPPED
        else:
            self.wishes.stop(False)

    def go_on(self) -> None:
        """Prompts are issued again: a pause is over, a stop withdrawn. Idempotent."""
        if self.wishes.holds:
            # Before the pause is told to be over, or the time that it took would count as a time without a step.
            self._clock.restart()
        self.wishes.stop(False)
        self.wishes.pause(False)

    def finish(self) -> None:
        """All steps are done. Idempotent."""
        self.wishes.stop_with(False, {"phase": RunPhase.FINISHED.encode()})
        self.phase, self.reason = RunPhase.FINISHED, ""

    def fence(self, incarnation: int) -> None:
        """Raises FencedError unless `incarnation` is the trainer's current life."""
        if incarnation < self.incarnation:
            raise FencedError(f"incarnation {incarnation} is over, {self.incarnation} lives")

    def take_fates(self, fates: "list[common_pb2.Fate] | Any") -> None:
        """Records how groups ended; repeats change nothing."""
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
        """Keeps what is to be published, for joiners and for the next life of this process."""
        self.publication = request
        self._store.set("publication", request.SerializeToString())

    async def notify(self) -> None:
        """Wakes everybody who waits on `changed`."""
        async with self.changed:
            self.changed.notify_all()
