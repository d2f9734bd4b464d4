"""The trainer's client of the orchestrator: reports, registration again, fencing."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.fate_table import GroupFate
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.registration import Stub, register_once
from headrace.wire.errors import FencedError, TransientError
from headrace.wire.peers.outage import Outage
from headrace.wire.peers.rpc import call
from headrace.wire.process.lifecycle import within
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, orchestrator_pb2

FENCED_EXIT = 4
_CALL_S = 10.0
_EVERY_S = 2.0
_FIRST_DELAY_S = 0.1
log = get_logger("trainer.reporter")


def end_fenced(reason: str) -> None:
    """Ends the process at once: a newer life of the trainer exists, and this one may write nothing more."""
    log.error("fenced", reason=reason)
    os._exit(FENCED_EXIT)


def wire_fates(fates: Sequence[GroupFate]) -> list[common_pb2.Fate]:
    """Converts fates to their protobuf messages."""
    return [
        common_pb2.Fate(group_index=fate.group_index, group_id=fate.group_id, step=fate.step, reason=fate.reason)
        for fate in fates
    ]


class Reporter:
    """Reports from the background loop: after each step and drop, and every two seconds as a heartbeat."""

    def __init__(
        self,
        stub: Stub,
        ledger: JournaledLedger,
        registration: orchestrator_pb2.RegisterTrainerRequest,
        *,
        republish: Callable[[], None],
        stop: Callable[[], None] = lambda: None,
        fenced: Callable[[str], None] = end_fenced,
        address: str = "",
    ) -> None:
        """`address`: the orchestrator's, for the log and for `status`."""
        self._stub = stub
        self._ledger = ledger
        self._registration = registration
        self._republish = republish
        self._stop = stop
        self._fenced = fenced
        self._outage = Outage("orchestrator", address)
        self._steps: deque[Mapping[str, float]] = deque()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting_for = ""
        self.waiting_until: float | None = None
        """Monotonic time at which the wait gives up; None without a deadline."""
        self.waiting_share = 0.0
        self.awaited: Sequence[int] = ()
        """Groups that the next batch waits for, lowest first; empty = any group will do, or nothing is awaited."""
        self.places: Mapping[int, str] = {}
        """Where the first of them is, as the orchestrator last reported for that group."""
        self.trouble = ""
        """Why no prompt may be issued: what the orchestrator's last answer lacked; empty after one."""
        self.has_turn: Callable[[], bool] = lambda: False
        """Whether the trainer has its turn on GPUs shared with the engines, or is requesting it."""
        self.finished = False
        self.replicas = 1
        """Number of live rollout replicas, as the orchestrator last reported."""
        self.rollout_gpus = 0
        """Number of their GPUs, as far as the orchestrator knows; 0 = on CPUs, or unknown."""
        self.paused = False
        """An operator has paused new prompts."""
        self.stop_asked = False
        """An operator wants the process to stop."""
        self.stopped = False
        self.stop_reported = False
        """Whether the orchestrator has received `stopped`."""
        self.checkpoint_asked = 0
        """Number of the checkpoint that an operator wants; 0 = none."""
        self.checkpoint_done = 0
        self.evaluating = True
        """Whether evaluations still run, as last reported; true until the orchestrator answers a finished trainer."""

    async def run(self) -> None:
        """Reports until cancelled. Retries while the orchestrator is away; the trainer goes on meanwhile as it can."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                await self._report()
                self.trouble = ""
                self._outage.over()
            except TransientError as error:
                self._outage.failed(error)
                self.trouble = f"the orchestrator is away: {error}"
                await asyncio.sleep(_FIRST_DELAY_S * 5)
                continue
            except FencedError as error:
                self._fenced(str(error))
                return
            if not self._steps:
                await within(self._wake.wait(), _EVERY_S)

    @property
    def hindrance(self) -> str:
        """Why no batch can arrive, however long the trainer waits; empty if one can."""
        if self.paused:
            return ": the run is paused"
        return "" if self.replicas else ": no rollout replica takes prompts"

    def wake(self) -> None:
        """Triggers a report (from any thread)."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def step(self, numbers: Mapping[str, float]) -> None:
        """Queues the numbers of a finished step for the orchestrator (from any thread)."""
        self._steps.append(numbers)
        self.wake()

    async def _report(self) -> None:
        numbers = self._steps[0] if self._steps else {}
        finished, stopped, awaited = self.finished, self.stopped, tuple(self.awaited)
        progress = self._ledger.progress()
        request = orchestrator_pb2.ReportProgressRequest(
            incarnation=self._ledger.incarnation,
            version=progress.version,
            frontier=progress.frontier,
            fates=wire_fates(progress.fates),
            metrics=numbers,
            waiting_for=self.waiting_for,
            waiting_share=self.waiting_share,
            finished=finished,
            stopped=stopped,
            checkpoint_done=self.checkpoint_done,
            awaited=awaited,
            has_turn=self.has_turn(),
            unproven=progress.unproven,
            waiting_left_s=max(0.0, self.waiting_until - time.monotonic()) if self.waiting_until else 0.0,
        )
        answer = await call(
            self._stub.ReportProgress, request, timeout_s=_CALL_S, what="the orchestrator to take a report"
        )
        if answer.fenced:
            raise FencedError(f"a life after incarnation {self._ledger.incarnation} exists")
        if answer.unknown:
            await self._register_again()
            return
        self._ledger.reported(progress.fates)
        self.places = {index: answer.awaited_at for index in awaited[:1] if answer.awaited_at}
        self._take_requests(answer)
        self.stop_reported = stopped
        if numbers:
            self._steps.popleft()
        if finished:
            self.evaluating = answer.evaluating

    def _take_requests(self, answer: orchestrator_pb2.ReportProgressResponse) -> None:
        """Takes over what the orchestrator's answer contains of replicas and operator requests."""
        self.replicas, self.paused, self.checkpoint_asked = answer.replicas, answer.paused, answer.checkpoint
        self.rollout_gpus = answer.rollout_gpus
        if answer.stop and not self.stop_asked:
            log.info("stop_asked")
            self.stop_asked = True
            self._stop()

    async def _register_again(self) -> None:
        """The orchestrator has lost its state: sends it all fates, and publishes again for the replicas."""
        progress = self._ledger.progress(from_index=0)
        request = orchestrator_pb2.RegisterTrainerRequest()
        request.CopyFrom(self._registration)
        request.journaled_incarnation = self._ledger.incarnation - 1
        request.version = progress.version
        request.frontier = progress.frontier
        del request.fates[:]
        request.fates.extend(wire_fates(progress.fates))
        incarnation = await register_once(self._stub, request)
        log.warning("registered_again", incarnation=incarnation)
        if incarnation != self._ledger.incarnation:
            raise FencedError(f"the orchestrator numbered this life {incarnation}, it was {self._ledger.incarnation}")
        metrics.INCARNATION.set(incarnation)
        self._republish()
