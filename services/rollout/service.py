"""The gRPC service of a replica: translate, delegate, translate back."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from headrace.services.rollout.chat.chat import ChatService
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.gpu_turns import ReplicaTurns
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.replica.turn_sampler import TurnSampler
from headrace.services.rollout.weights.update import Updates
from headrace.wire import tracing
from headrace.wire.contracts.codec import VERSION
from headrace.wire.v1 import orchestrator_pb2, rollout_pb2_grpc
from headrace.wire.v1 import rollout_pb2 as pb

T = TypeVar("T")

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["RolloutService"].full_name

WIRE_STATES = {state: orchestrator_pb2.ReplicaState.Value(f"REPLICA_STATE_{state.name}") for state in ReplicaState}


class RolloutServicer(rollout_pb2_grpc.RolloutServiceServicer):
    """Serves `RolloutService` of `proto/wire/v1/rollout.proto`."""

    def __init__(
        self,
        updates: Updates,
        turns: ReplicaTurns,
        engine: Engine,
        gate: Gate,
        generator: GroupGenerator,
        chat: ChatService,
        sampler: TurnSampler,
        *,
        replica_id: str,
    ) -> None:
        self._updates = updates
        self._turns = turns
        self._engine = engine
        self._layout = f"{engine.name} {engine.dtype} {engine.routes.ranks}"
        self._gate = gate
        self._generator = generator
        self._chat = chat
        self._sampler = sampler
        self._replica_id = replica_id
        self._running: set[asyncio.Future[Any]] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers itself on a server."""
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(self, server)

    async def PrepareWeights(  # noqa: D102
        self, request: pb.PrepareWeightsRequest, context: object
    ) -> pb.PrepareWeightsResponse:
        version = VERSION.from_pb(request.version)
        reason = await self._whole(
            "prepare",
            self._updates.prepare(
                request.publication_id, version, request.plan, request.deadline_s, prepare_s=request.prepare_s
            ),
        )
        return pb.PrepareWeightsResponse(
            accepted=not reason, reason=reason, checksum_format=self._engine.checksum_format
        )

    async def ReceiveWeights(  # noqa: D102
        self, request: pb.ReceiveWeightsRequest, context: object
    ) -> pb.ReceiveWeightsResponse:
        return pb.ReceiveWeightsResponse(digests=await self._whole("receive", self._updates.receive(request)))

    async def VerifyWeights(  # noqa: D102
        self, request: pb.VerifyWeightsRequest, context: object
    ) -> pb.VerifyWeightsResponse:
        proof = await self._whole(
            "verify",
            self._updates.verify(request.publication_id, request.canary, request.checksums, request.deadline_s),
        )
        return pb.VerifyWeightsResponse(
            equal=proof.equal,
            gap=proof.gap,
            reason=proof.reason,
            checksum=proof.checksum,
            layout=self._layout,
            unknown=proof.unknown,
            doubted=self._updates.table.loaded(proof.doubted),
            loaded_known=self._updates.table.loaded_known,
            unhashed=proof.unhashed,
        )

    async def CommitWeights(  # noqa: D102
        self, request: pb.CommitWeightsRequest, context: object
    ) -> pb.CommitWeightsResponse:
        await self._whole("commit", self._updates.commit(request.publication_id))
        return pb.CommitWeightsResponse()

    async def AbortWeights(  # noqa: D102
        self, request: pb.AbortWeightsRequest, context: object
    ) -> pb.AbortWeightsResponse:
        await self._whole("abort", self._updates.abort(request.publication_id, request.quarantine))
        return pb.AbortWeightsResponse()

    async def Sleep(self, request: pb.SleepRequest, context: object) -> pb.SleepResponse:  # noqa: D102
        reason = await self._whole("sleep", self._turns.sleep())
        return pb.SleepResponse(asleep=not reason, reason=reason)

    async def GetReplica(self, request: pb.GetReplicaRequest, context: object) -> pb.GetReplicaResponse:  # noqa: D102
        serving = self._gate.serving
        return pb.GetReplicaResponse(
            replica_id=self._replica_id,
            state=WIRE_STATES[self._gate.state],
            version=VERSION.to_pb(self._gate.version),
            weights_digest=serving.weights_digest if serving is not None else "",
            in_flight_groups=self._generator.in_flight,
        )

    async def Sample(self, request: pb.SampleRequest, context: object) -> pb.SampleResponse:  # noqa: D102
        return await self._sampler.sample(request)

    async def Chat(  # type: ignore[override]  # noqa: D102
        self, request: pb.ChatRequest, context: "grpc.aio.ServicerContext[object, pb.ChatPiece]"
    ) -> None:
        # Written and not yielded: when the caller disconnects, the answer is closed and its slot freed at once.
        async with aclosing(self._chat.answer(request)) as pieces:
            async for piece in pieces:
                await context.write(piece)

    async def _whole(self, name: str, phase: Coroutine[object, object, T]) -> T:
        """Runs a phase to its end even if its caller gives up: a half-done phase would wedge the replica."""
        running = asyncio.ensure_future(self._traced(name, phase))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def _traced(self, name: str, phase: Coroutine[object, object, T]) -> T:
        with tracing.span(f"{name} weights" if name != "sleep" else "sleep", replica=self._replica_id):
            return await phase
