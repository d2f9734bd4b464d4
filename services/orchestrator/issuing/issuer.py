"""Issues prompts within credit, and re-issues open groups that are in no stream any more."""

import asyncio
import time
from collections.abc import Sequence

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.issuing.credit import credit_limit, room
from headrace.services.orchestrator.issuing.messages import training_prompt
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream, live_headers
from headrace.services.orchestrator.issuing.prompts import PromptOrder, PromptRow
from headrace.services.orchestrator.issuing.start_gate import StartGate
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import OpenGroup, Store
from headrace.wire.contracts import Purpose, group_id
from headrace.wire.errors import HeadraceError, TransientError
from headrace.wire.peers.rpc import call
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import TRAINING_FLOW, Broker
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import trainer_pb2

log = get_logger("orchestrator.issuer")
_LOOK_S = 1.0
_AGAIN_S = 5.0
"""Seconds between two readings of all streams while groups cannot be put on one."""
_PAGE = 100_000
"""Fates of one call: some MiB, where 64 MiB are the most that a message may have."""


class Issuer:
    """Owns the training side of the prompts stream."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        rows: Sequence[PromptRow],
        store: Store,
        state: RunState,
        broker: Broker,
        prompts: PromptStream,
        clients: Clients,
        events: EventLog,
        start_gate: StartGate | None = None,
    ) -> None:
        """`start_gate` may delay the first prompt."""
        self._settings = settings
        self._rows = rows
        self._order = PromptOrder(len(rows), settings.run.seed)
        self._store = store
        self._state = state
        self._broker = broker
        self._prompts = prompts
        self._clients = clients
        self._events = events
        self._start_gate = start_gate
        self._lock = asyncio.Lock()
        self._generation = ""
        self._reconciled_at = time.monotonic()
        self._open_then: frozenset[OpenGroup] = frozenset()
        """The groups that were open when it was looked last whether some are lost."""
        self._failed = False
        """Whether groups were recorded that may not have been put on the stream."""
        self.limit = 0

    @property
    def waiting_for(self) -> str:
        """What holds back prompts although there is credit; empty if nothing does."""
        if self._state.operator_requests.holds:
            return "the operator to resume the run" if self._state.operator_requests.paused else "the trainer to stop"
        return self._start_gate.waiting_for if self._start_gate else ""

    @property
    def waiting_times(self) -> tuple[float, float] | None:
        """Start and deadline of the wait (monotonic seconds); None when there is none."""
        return (self._start_gate.since, self._start_gate.until) if self._start_gate and self.waiting_for else None

    async def run(self) -> None:
        """Issues groups whenever credit is free, and reconciles lost groups. Runs until cancelled."""
        while True:
            try:
                await self._look()
            except TransientError as error:
                self._failed = True
                log.warning("issuer_waits", error=str(error))
            try:
                async with asyncio.timeout(_LOOK_S), self._state.changed:
                    await self._state.changed.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        if self._state.phase is not RunPhase.RUNNING or self._state.operator_requests.holds:
            return
        generation = await self._broker.generation()
        if generation != self._generation or self._may_have_lost():
            self._reconciled_at = time.monotonic()
            await self.reconcile()
            self._generation, self._failed = generation, False
        await self.issue()

    def _may_have_lost(self) -> bool:
        """Whether to read all streams for lost groups: soon after a failed issue, and for a group that stays open.

        Also while others end: a lost one would keep its credit. Where all end within `reconcile_s`, nothing is read.
        """
        waited, limit_s = time.monotonic() - self._reconciled_at, self._settings.orchestrator.reconcile_s
        if self._failed:
            return waited > min(limit_s, _AGAIN_S)
        if waited <= limit_s:
            return False
        before, self._open_then = self._open_then, frozenset(self._store.open_groups())
        self._reconciled_at = time.monotonic()
        return not before.isdisjoint(self._open_then)

    async def issue(self) -> None:
        """Issues new groups up to the credit limit."""
        async with self._lock:
            self.limit = credit_limit(
                version=self._state.issue_version,
                max_steps=self._state.max_steps,
                max_staleness=self._settings.run.max_staleness,
                groups_per_batch=self._settings.batch.groups,
            )
            num_open = self._store.num_open
            metrics.GROUPS_OPEN.set(num_open)
            metrics.CREDIT_LIMIT.set(self.limit)
            free = room(self.limit, num_open)
            if not free:
                return
            first = self._store.next_index()
            if first == 0 and self._start_gate and not self._start_gate.is_over(time.monotonic()):
                return
            gaps = self._store.gaps()[:free]
            fresh = range(first, first + free - len(gaps))
            # Re-queued prompts get indices that were never used: the dead group keeps its fate.
            for index, (dead_index, row) in self._store.issue_new(gaps, fresh).items():
                self._events.append("requeued_as", group_index=index, dead_index=dead_index, row=row)
            await self._put([OpenGroup(group_index=index, attempt=0) for index in (*gaps, *fresh)], "new")

    async def _put(self, groups: Sequence[OpenGroup], kind: str) -> None:
        """Puts groups on the stream; the store has recorded them already."""
        for group in groups:
            row = self._rows[self.row_of(group.group_index)]
            message = training_prompt(
                self._settings,
                row,
                group_index=group.group_index,
                attempt=group.attempt,
                min_version=self._state.issue_version,
            )
            self._events.append(
                "issued",
                group_index=group.group_index,
                group_id=message.header.group_id,
                attempt=group.attempt,
                min_version=self._state.issue_version,
                sample_id=row.sample_id,
                trace=message.header.traceparent,
            )
            await self._prompts.put(message)
            metrics.GROUPS_ISSUED.labels(kind).inc()

    def row_of(self, group_index: int) -> int:
        """The prompt row of a group: by the run's order, shifted by re-queued groups, or the re-queued row itself."""
        given = self._store.requeued_row(group_index)
        return self._order.row(group_index - self._store.requeued_before(group_index)) if given is None else given

    async def reconcile(self) -> None:
        """Re-issues every open group that is in no stream and has no fate in the trainer's journal."""
        async with self._lock:
            live = await self._live_groups()
            self._adopt(live)
            lost = [group for group in self._store.open_groups() if self._id(group) not in live]
            if not lost:
                return
            await self._ask_trainer(lost[0].group_index, lost[-1].group_index)
            still_open = {group.group_index for group in self._store.open_groups()}
            lost = [group for group in lost if group.group_index in still_open]
            if lost:
                log.warning("groups_issued_again", groups=[group.group_index for group in lost])
            again = [OpenGroup(group_index=group.group_index, attempt=group.attempt + 1) for group in lost]
            self._store.issue(again)
            await self._put(again, "again")

    def _id(self, group: OpenGroup) -> str:
        return group_id(self._settings.run.id, group.group_index)

    async def _live_groups(self) -> dict[str, OpenGroup]:
        headers = await live_headers(self._broker, *TRAINING_FLOW)
        return {
            one.group_id: OpenGroup(group_index=one.group_index, attempt=one.attempt)
            for one in headers
            if one.purpose is Purpose.TRAIN
        }

    def _adopt(self, live: dict[str, OpenGroup]) -> None:
        """Records groups that are in a stream but not in the store, which was lost and rebuilt."""
        known = self._store.next_index()
        gaps = set(self._store.gaps())
        unknown = [group for group in live.values() if group.group_index >= known or group.group_index in gaps]
        if unknown:
            self._store.issue(unknown)

    async def _ask_trainer(self, first: int, last: int) -> None:
        """Fetches the fates of these groups, and of all between them, from the trainer's journal.

        A group may be trained and acked, with its report still pending.
        """
        if not self._state.trainer.address:
            raise TransientError("no trainer has registered yet")
        stub = self._clients.trainer(self._state.trainer.address)
        request = trainer_pb2.GetFatesRequest(from_index=first, most=_PAGE)
        while request.from_index <= last:
            try:
                answer = await call(stub.GetFates, request, timeout_s=10.0, what="the trainer to report fates")
            except (HeadraceError, RuntimeError) as error:
                raise TransientError(str(error)) from error
            self._state.take_fates(answer.fates)
            if not answer.more:
                return
            request.from_index = answer.fates[-1].group_index + 1
