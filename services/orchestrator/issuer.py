"""Issues prompts within credit, and issues again what is in no stream any more and has no fate."""

import asyncio
import time
from collections.abc import Sequence

from services.orchestrator import metrics
from services.orchestrator.beginning import Beginning
from services.orchestrator.credit import credit_limit, room
from services.orchestrator.messages import training_prompt
from services.orchestrator.peers import Peers
from services.orchestrator.prompt_stream import PromptStream
from services.orchestrator.prompts import PromptOrder, PromptRow
from services.orchestrator.run_state import RunPhase, RunState
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.store import OpenGroup, Store
from wire.contracts import Purpose, decode_header, group_id
from wire.errors import ContractError, HeadraceError, TransientError
from wire.events import EventLog
from wire.rpc import call
from wire.streams import Broker, StreamName
from wire.telemetry import get_logger
from wire.v1 import trainer_pb2

log = get_logger("orchestrator.issuer")
_LOOK_S = 1.0
_FLOW = (StreamName.PROMPTS, StreamName.ROLLOUTS, StreamName.SCORED)
"""In this order a group moves on: a scan in this order cannot miss one that moves meanwhile."""


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
        peers: Peers,
        events: EventLog,
        beginning: Beginning | None = None,
    ) -> None:
        """`beginning` may hold the first prompt back."""
        self._settings = settings
        self._rows = rows
        self._order = PromptOrder(len(rows), settings.run.seed)
        self._store = store
        self._state = state
        self._broker = broker
        self._prompts = prompts
        self._peers = peers
        self._events = events
        self._beginning = beginning
        self._lock = asyncio.Lock()
        self._generation = ""
        self._moved_at = time.monotonic()
        self._counts: dict[str, int] = {}
        self.limit = 0

    @property
    def waiting_for(self) -> str:
        """Why nothing is issued although there is credit; empty if there is no reason."""
        if self._state.wishes.holds:
            return "the operator, who has paused the run" if self._state.wishes.paused else "the trainer to stop"
        return self._beginning.waiting_for if self._beginning else ""

    @property
    def waiting_times(self) -> tuple[float, float] | None:
        """Since when, and until when at most (monotonic); None when it does not wait."""
        return (self._beginning.since, self._beginning.until) if self._beginning and self.waiting_for else None

    async def run(self) -> None:
        """Issues whenever credit is free; looks for lost groups when there is a reason. Never ends by itself."""
        while True:
            try:
                await self._look()
            except TransientError as error:
                log.warning("issuer_waits", error=str(error))
            try:
                async with asyncio.timeout(_LOOK_S), self._state.changed:
                    await self._state.changed.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        if self._state.phase is not RunPhase.RUNNING or self._state.wishes.holds:
            return
        generation = await self._broker.generation()
        counts = self._store.counts()
        if counts != self._counts:
            self._counts, self._moved_at = counts, time.monotonic()
        waited = time.monotonic() - self._moved_at > self._settings.orchestrator.reconcile_s
        if generation != self._generation or waited:
            await self.reconcile()
            self._generation, self._moved_at = generation, time.monotonic()
        await self.issue()

    async def issue(self) -> None:
        """Fills the credit with new groups."""
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
            if first == 0 and self._beginning and not self._beginning.is_over(time.monotonic()):
                return
            gaps = self._store.gaps()[:free]
            fresh = range(first, first + free - len(gaps))
            # What was re-queued takes indices that nobody has ever used: a buried group keeps its fate.
            for index, (dead_index, row) in self._store.issue_new(gaps, fresh).items():
                self._events.append("requeued_as", group_index=index, dead_index=dead_index, row=row)
            await self._put([OpenGroup(group_index=index, attempt=0) for index in (*gaps, *fresh)], "new")

    async def _put(self, groups: Sequence[OpenGroup], kind: str) -> None:
        """Puts them on the stream; the store knows them already."""
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
        """The row of the prompts that a group has: that of the run's order, moved on by what was issued again."""
        given = self._store.requeued_row(group_index)
        return self._order.row(group_index - self._store.requeued_before(group_index)) if given is None else given

    async def reconcile(self) -> None:
        """Issues again every open group that is in no stream and of which the trainer knows no end."""
        async with self._lock:
            live = await self._live_groups()
            self._adopt(live)
            lost = [group for group in self._store.open_groups() if self._id(group) not in live]
            if not lost:
                return
            await self._ask_trainer(lost[0].group_index)
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
        live: dict[str, OpenGroup] = {}
        for stream in _FLOW:
            for data in await self._broker.live(stream):
                try:
                    header = decode_header(data)
                except ContractError:
                    continue  # Unreadable: its consumer will bury it; the group counts as lost.
                if header.purpose is Purpose.TRAIN:
                    live[header.group_id] = OpenGroup(group_index=header.group_index, attempt=header.attempt)
        return live

    def _adopt(self, live: dict[str, OpenGroup]) -> None:
        """Groups in a stream that the store does not know: it was lost and rebuilt."""
        known = self._store.next_index()
        gaps = set(self._store.gaps())
        unknown = [group for group in live.values() if group.group_index >= known or group.group_index in gaps]
        if unknown:
            self._store.issue(unknown)

    async def _ask_trainer(self, from_index: int) -> None:
        """The journal knows best: a group may be trained and acked, its report still under way."""
        if not self._state.trainer.address:
            raise TransientError("no trainer has registered yet")
        stub = self._peers.trainer(self._state.trainer.address)
        request = trainer_pb2.GetFatesRequest(from_index=from_index)
        try:
            answer = await call(stub.GetFates, request, timeout_s=10.0, what="the trainer to tell fates")
        except (HeadraceError, RuntimeError) as error:
            raise TransientError(str(error)) from error
        self._state.take_fates(answer.fates)
