"""Heartbeats to the orchestrator: state, version, groups in flight, and what the replica waits for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.services.rollout import metrics
from headrace.services.rollout.engine_metrics import EngineMetrics
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.service import WIRE_STATES
from headrace.wire.access.roles import Role
from headrace.wire.contracts.codec import VERSION
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.outage import Outage
from headrace.wire.peers.rpc import call, channel
from headrace.wire.process.lifecycle import within
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub

log = get_logger("rollout.heartbeat")

_CALL_S = 2.0
_RETRY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity under which this replica registers."""

    run_id: str
    replica_id: str
    boot_id: str
    address: str
    pid: int


class Heartbeat:
    """Registers the replica, then reports at each change of state and at least every `interval_s`."""

    def __init__(
        self,
        orchestrator: str,
        identity: Identity,
        engine: Engine,
        gate: Gate,
        generator: GroupGenerator,
        *,
        interval_s: float,
        take_word: Callable[[pb.HeartbeatResponse], Awaitable[None]],
    ) -> None:
        """`take_word` acts on what an answer says of the replica's weights."""
        self._channel = channel(orchestrator, Role.ORCHESTRATOR)
        self._stub = OrchestratorServiceStub(self._channel)
        self._identity = identity
        self._engine = engine
        self._gate = gate
        self._generator = generator
        self._interval_s = interval_s
        self._take_word = take_word
        self._outage = Outage("orchestrator", orchestrator)
        self._registered = self._finished = False
        self._meter = EngineMetrics()

    async def run(self) -> None:
        """Runs until the run has finished; reconnects to an orchestrator that was away, and registers again."""
        while not self._finished:
            self._gate.changed.clear()
            try:
                await self.beat()
                self._outage.over()
                await within(self._gate.changed.wait(), self._interval_s)
            except HeadraceError as error:
                self._registered = False
                self._outage.failed(error)
                await asyncio.sleep(_RETRY_S)

    async def beat(self) -> None:
        """Sends one report; registers if necessary. Raises TransientError if the orchestrator is unavailable."""
        if not self._registered:
            await self._register()
        answer = await call(
            self._stub.Heartbeat, self._report(), timeout_s=_CALL_S, what="the orchestrator to take a heartbeat"
        )
        self._registered = answer.registered
        # A run that is being resumed counts as finished until its trainer has registered: a new replica waits for it.
        self._finished = answer.finished and self._gate.has_served
        self._generator.drained = answer.drain
        self._generator.under_way.end(answer.ended)
        await self._take_word(answer)
        if not answer.registered:
            await self._register()
        elif answer.share > 0:
            self._generator.take_share(answer.share)

    async def farewell(self) -> None:
        """Sends a last report with the state GONE, if the orchestrator is reachable, and closes the channel."""
        report = self._report()
        report.state = pb.REPLICA_STATE_GONE
        try:
            await call(self._stub.Heartbeat, report, timeout_s=0.5, what="the orchestrator's farewell")
        except HeadraceError:
            log.info("farewell_not_taken")
        await self._channel.close()

    async def _register(self) -> None:
        who, routes = self._identity, self._engine.routes
        request = pb.RegisterReplicaRequest(
            run_id=who.run_id,
            replica_id=who.replica_id,
            boot_id=who.boot_id,
            address=who.address,
            engine=self._engine.name,
            dtype=self._engine.dtype,
            pid=who.pid,
            routes=common_pb2.Routes(
                backends=routes.backends,
                ranks=routes.ranks,
                nccl_version=routes.nccl_version,
                nccl_cumem=routes.nccl_cumem,
                devices=routes.devices,
            ),
            first_verify_s=0.0 if self._gate.has_served else self._engine.first_verify_s,
        )
        await call(self._stub.RegisterReplica, request, timeout_s=_CALL_S, what="the orchestrator to register us")
        self._registered = True
        self._gate.changed.set()
        log.info("registered", replica_id=who.replica_id, address=who.address)

    def _report(self) -> pb.HeartbeatRequest:
        stats = self._engine.stats()
        share = self._generator.dial.read(time.monotonic())
        metrics.WAITING_SHARE.set(share)
        self._meter.read(stats)
        return pb.HeartbeatRequest(
            replica_id=self._identity.replica_id,
            boot_id=self._identity.boot_id,
            state=WIRE_STATES[self._generator.state],
            version=VERSION.to_pb(self._gate.version),
            in_flight_groups=self._generator.in_flight,
            in_flight_rollouts=stats.rollouts,
            waiting_share=share,
            waiting_for=self._waiting_for(),
            generated_tokens=stats.generated_tokens,
            speed=self._generator.speed.read(),
            groups=self._generator.under_way.indices,
            free_rows=self._generator.free_rows,
        )

    def _waiting_for(self) -> str:
        match self._generator.state:
            case ReplicaState.PENDING_WEIGHTS:
                return "weights"
            case ReplicaState.UPDATING | ReplicaState.SLEEPING:
                return self._gate.reason
            case ReplicaState.QUARANTINED:
                return f"a new publication: {self._gate.reason}"
            case ReplicaState.SERVING if self._generator.rows.turns:
                return ""
            case ReplicaState.SERVING if self._generator.drained and not self._generator.in_flight:
                return "the operator to undo the drain"
            case ReplicaState.SERVING if self._generator.in_flight == self._generator.held:
                return "newer weights" if self._generator.held else "prompts"
            case _:
                return ""
