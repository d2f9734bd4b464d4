"""Handler of the prompts stream: turns prompt groups into rollout groups, only while the gate is open."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import AbandonedError, Completion, Engine, GenerateRequest
from headrace.services.rollout.replica.capacity import RowPool, Speed
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.open_groups import EndedError, OpenGroups
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.replica.waiting_dial import WaitingDial
from headrace.wire import tracing
from headrace.wire.contracts import (
    Message,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    encode,
    rollout_id,
    rollout_seed,
)
from headrace.wire.errors import ContractError, WaitTimeoutError
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.columns import write_kept
from headrace.wire.streams.worker import HandBack
from headrace.wire.telemetry.logs import trace_id

_AWAY_S = 0.2
"""Pause before the next read after a prompt was handed back, so that another replica gets it."""


class GroupGenerator:
    """Generates the groups of the `prompts` stream."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        events: EventLog,
        decode: Callable[[Completion], str],
        *,
        replica_id: str,
        limit: Callable[[float], int],
        rows: RowPool,
        share: float,
        hold_s: float,
        kept_ids: Path = Path(),
    ) -> None:
        """`decode` turns completions into text; `limit(share)` is the largest number of groups taken at a time.

        `rows` are shared with the turns of episodes. Kept ids are written into the folder `kept_ids`.
        """
        self._engine = engine
        self._gate = gate
        self._events = events
        self._decode = decode
        self._replica_id = replica_id
        self._limit_of = limit
        self.take_share(share)
        self._hold_s = hold_s
        self._kept_ids = kept_ids
        self.rows = rows
        self.dial = WaitingDial(time.monotonic())
        self.speed = Speed()
        self.in_flight = 0
        self.held = 0
        """Groups in flight that wait for newer weights."""
        self._reached_engine = 0
        """Groups in flight that the engine has, or had."""
        self.drained = False
        """An operator has drained this replica: it takes no prompts for now."""
        self.under_way = OpenGroups()
        self.retired = False
        """Takes no more prompts, permanently; groups in flight are finished. See `retire`."""

    def take_share(self, share: float) -> None:
        """Sets this replica's share of the issuable groups, in (0, 1]; it changes with the other replicas."""
        self._limit = self._limit_of(share)

    def retire(self) -> None:
        """Stops taking prompts, permanently; no newer weights will come either. On the event loop only."""
        if not self.retired:
            self.retired = True
            self._gate.notify()

    @property
    def state(self) -> ReplicaState:
        """The state to report: DRAINING once retired, except while a publication is still in progress."""
        leaving = self.retired and self._gate.state not in (ReplicaState.UPDATING, ReplicaState.GONE)
        return ReplicaState.DRAINING if leaving else self._gate.state

    def capacity(self, in_flight: int) -> int:
        """Number of further groups that may be taken now; 0 while the gate is closed, or when drained or retired.

        Held prompts do not count: the stream may hold, behind them, the evaluation for which the publication of the
        very weights they need is waiting.
        """
        takes = self._gate.is_open and not self.retired and not self.drained
        room = max(self._room(in_flight), 0) if takes else 0
        metrics.CAPACITY_GROUPS.set(self.in_flight + room)
        return room

    def _room(self, in_flight: int) -> int:
        """Groups that may be taken beside those `in_flight`: up to the share, while fewer rollouts wait than rows are.

        A group that is taken and has not reached the engine waits with all its rollouts.
        """
        taken = in_flight - self.held
        on_the_way = max(taken - self._reached_engine, 0) * self.rows.group_rows
        return min(self._limit - taken, self.rows.groups_ahead(self._engine.stats().waiting + on_the_way))

    @property
    def free_rows(self) -> int:
        """Number of further turns of episodes that may be sampled now; 0 when closed, drained or retired."""
        takes = self._gate.is_open and not self.retired and not self.drained
        return self.rows.free(self.in_flight - self.held) if takes else 0

    def count_turn(self, change: int) -> None:
        """A turn of an episode begins (1) or ends (-1) to take a row."""
        self.rows.turns += change
        self._count(0)

    async def handle(self, message: Message) -> list[Put]:
        """Generates one group; raises HandBack if this replica cannot serve it now."""
        prompt, header = message.body, message.header
        if not isinstance(prompt, PromptGroup):
            raise ContractError("wrong_body", f"{header.group_id}: the prompts stream carries prompt groups")
        if self.retired:
            # It came by a read that was under way when the replica was retired.
            raise HandBack("this replica leaves", _AWAY_S)
        with tracing.span("generate", header.traceparent, group_id=header.group_id, replica=self._replica_id) as span:
            if header.issued_at:
                span.set(queue_wait_seconds=time.time() - header.issued_at)
            try:
                group = await self._generated(message, prompt, span)
            except EndedError as error:
                facts = {"group_id": header.group_id, "attempt": header.attempt}
                self._events.append("group_aborted", **facts, reason=str(error))
                metrics.ABORTED.inc()
                return []
        trace = trace_id(header.traceparent)
        self._events.append("group_generated", group_id=header.group_id, attempt=header.attempt, trace=trace)
        metrics.GROUP_SECONDS.observe(group.seconds)
        return [Put(stream=StreamName.ROLLOUTS, data=encode(Message(header=header, body=group)))]

    async def _generated(self, message: Message, prompt: PromptGroup, span: tracing.Span) -> RolloutGroup:
        self._count(1)
        taken, reached = time.monotonic(), 0
        try:
            await self._hold(prompt.min_version)
            begin = time.monotonic()
            reached = 1
            self._reached_engine += reached
            completions = await self._generate(message, prompt)
            seconds = time.monotonic() - begin
            self.speed.observe(max(len(one.token_ids) for one in completions), seconds)
            await self._pass_gate()
            group = await self._group(message, prompt, completions, seconds)
        finally:
            self._reached_engine -= reached
            self._count(-1)
        span.set(
            version=[str(version) for version in sorted({part.version for one in completions for part in one.spans})],
            rollouts=len(completions),
            tokens=sum(len(one.token_ids) for one in completions),
            prompt_tokens=len(prompt.token_ids),
            held_seconds=begin - taken,
            engine_seconds=seconds,
        )
        return group

    async def _hold(self, min_version: int) -> None:
        """Waits up to `hold_s` for the weights that the prompt requires: they are most likely being published."""

        def ready() -> bool:
            return self._gate.is_open and self._gate.version.version >= min_version

        if ready():
            return
        self._count(0, 1)
        what = f"weights of version {min_version}"

        def left_behind() -> bool:
            return self.retired and self._gate.state is not ReplicaState.UPDATING

        try:
            await self._gate.wait_until(lambda: ready() or left_behind(), self._hold_s, what)
        except WaitTimeoutError as error:
            raise HandBack(str(error), _AWAY_S) from error
        finally:
            self._count(0, -1)
        if not ready():
            raise HandBack(f"this replica leaves, and will not get {what}", _AWAY_S)
        if self._room(self.in_flight - 1) < 1:
            raise HandBack("this replica has its share already, or enough rollouts that wait for a row")

    async def _generate(self, message: Message, prompt: PromptGroup) -> tuple[Completion, ...]:
        header, sampling = message.header, prompt.sampling
        request = GenerateRequest(
            group_id=header.group_id,
            token_ids=prompt.token_ids,
            seeds=tuple(rollout_seed(sampling.seed, header.group_id, index) for index in range(prompt.group_size)),
            sampling=sampling,
        )
        try:
            if header.purpose is not Purpose.TRAIN:
                return await self._engine.generate(request)
            return await self.under_way.generate(header, self._gate.version.version, self._engine.generate(request))
        except AbandonedError as error:
            raise HandBack(str(error), _AWAY_S) from error

    async def _pass_gate(self) -> None:
        """Waits for a publication to end; raises HandBack unless verified weights are in place then."""
        if not await self._gate.settle():
            raise HandBack(f"the replica is {self._gate.state}", _AWAY_S)

    async def _group(
        self, message: Message, prompt: PromptGroup, completions: tuple[Completion, ...], seconds: float
    ) -> RolloutGroup:
        for completion in completions:
            metrics.ROLLOUTS.labels(completion.finish_reason.value).inc()
        rollouts = tuple(
            Rollout(
                rollout_id=rollout_id(message.header.group_id, index),
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
                spans=completion.spans,
                text=self._decode(completion),
                kept=completion.kept,
            )
            for index, completion in enumerate(completions)
        )
        kept = None
        if prompt.sampling.keeps_ids:
            kept = await asyncio.to_thread(write_kept, self._kept_ids, message.header, rollouts)
        return RolloutGroup(prompt=prompt, rollouts=rollouts, replica_id=self._replica_id, seconds=seconds, kept=kept)

    def _count(self, change: int, held: int = 0) -> None:
        self.in_flight += change
        self.held += held
        self.dial.observe(self.in_flight > self.held or self.rows.turns > 0, time.monotonic())
        metrics.IN_FLIGHT_GROUPS.set(self.in_flight)
        metrics.HELD_GROUPS.set(self.held)
        metrics.TURNS_IN_FLIGHT.set(self.rows.turns)
