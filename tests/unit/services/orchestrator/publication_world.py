"""Replicas and a trainer by script around a real coordinator, over real gRPC."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.errors import TransientError
from headrace.wire.peers.rpc import RpcServer, serve
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import common_pb2, rollout_pb2, rollout_pb2_grpc, trainer_pb2, trainer_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as pb

PLAN = common_pb2.WeightPlan(buckets=[common_pb2.Bucket(digest="aa", dtype="float32")], weights_digest="ww")
GLOO = common_pb2.Routes(backends=["gloo"], ranks=1)
DEADLINES = {"prepare": "prepare_s", "receive": "transfer_s", "verify": "verify_s", "commit": "commit_s"}


class ScriptedReplica(rollout_pb2_grpc.RolloutServiceServicer):
    """Does what a replica does on the wire, except for what its script says."""

    def __init__(self, replica_id: str, **script: Any) -> None:
        self.replica_id = replica_id
        self.script = script
        self.calls: list[str] = []
        self.first_call = 0.0
        self.go_on = asyncio.Event()
        self.broken_off = 0
        """Calls in which it stalled and that were ended from without."""
        self.groups: list[rollout_pb2.CollectiveGroup] = []
        self.disk_paths: list[str] = []
        self.checksums: dict[str, str] = {}
        self.deadline_s = 0.0
        """Deadline of the last verification, as requested."""
        self.server: RpcServer | None = None

    async def _do(self, phase: str) -> None:
        self.calls.append(phase)
        self.first_call = self.first_call or time.monotonic()
        act = self.script.get(phase)
        if act == "wait":
            await self.go_on.wait()
        if act == "stall":
            await self._stall()
        if act == "fail":
            raise TransientError("broken")
        if act == "fail_once":
            del self.script[phase]
            raise TransientError("broken once")
        if act == "die":
            assert self.server is not None
            asyncio.get_running_loop().create_task(self.server.stop(0))
            await self._stall()

    async def _stall(self) -> None:
        """Until its caller or its server ends the call."""
        try:
            await asyncio.Event().wait()
        finally:
            self.broken_off += 1

    async def PrepareWeights(self, request: Any, context: Any) -> Any:
        await self._do("prepare")
        return rollout_pb2.PrepareWeightsResponse(
            accepted=self.script.get("accept", True), reason="busy", checksum_format=self.script.get("format", "")
        )

    async def ReceiveWeights(self, request: Any, context: Any) -> Any:
        self.groups.append(request.collective)
        self.disk_paths.append(request.disk_path)
        await self._do("receive")
        return rollout_pb2.ReceiveWeightsResponse(digests=self.script.get("digests", ["aa"]))

    async def VerifyWeights(self, request: Any, context: Any) -> Any:
        await self._do("verify")
        self.checksums = {one.name: one.value for one in request.checksums}
        self.deadline_s = request.deadline_s
        return rollout_pb2.VerifyWeightsResponse(
            equal=self.script.get("equal", True),
            gap=0.5,
            checksum=self.script.get("checksum", ""),
            layout="L",
            unknown=self.script.get("unknown", 0),
        )

    async def CommitWeights(self, request: Any, context: Any) -> Any:
        await self._do("commit")
        return rollout_pb2.CommitWeightsResponse()

    async def AbortWeights(self, request: Any, context: Any) -> Any:
        self.calls.append("quarantine" if request.quarantine else "abort")
        return rollout_pb2.AbortWeightsResponse()

    async def GetReplica(self, request: Any, context: Any) -> Any:
        return rollout_pb2.GetReplicaResponse(replica_id=self.replica_id)


def deadlines(*replicas: ScriptedReplica) -> PublicationTable:
    """Near for a phase in which one of them stalls alone: no other is to miss one because the machine is busy."""
    acts = [one.script for one in replicas]
    near = {phase for script in acts for phase, act in script.items() if act in ("stall", "die")}
    return PublicationTable(**{key: 2.0 if phase in near else 60.0 for phase, key in DEADLINES.items()})


class ScriptedTrainer(trainer_pb2_grpc.TrainerServiceServicer):
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.opening: asyncio.Event | None = None
        """It opens no group before this."""
        self.saved: list[int] = []
        self.refused: dict[str, str] = {}
        """Replica -> why no group is opened to it."""

    async def CloseGroup(self, request: Any, context: Any) -> Any:
        self.closed.append(request.group_name)
        return trainer_pb2.CloseGroupResponse()

    async def SaveWeights(self, request: Any, context: Any) -> Any:
        self.saved.append(request.version)
        return trainer_pb2.SaveWeightsResponse(disk_path=f"/weights/{request.version}")

    async def GetChecksums(self, request: Any, context: Any) -> Any:
        return trainer_pb2.GetChecksumsResponse(
            checksums=[common_pb2.TensorChecksum(name="w", value=f"{request.format} {request.version}")]
        )

    async def OpenGroup(self, request: Any, context: Any) -> Any:
        if reason := self.refused.get(request.replica_id):
            return trainer_pb2.OpenGroupResponse(refused=reason)
        self.opened.append(request.group_name)
        if self.opening is not None:
            await self.opening.wait()
        return trainer_pb2.OpenGroupResponse(store_host="127.0.0.1", store_port=1)

    async def SendWeights(self, request: Any, context: Any) -> Any:
        self.sizes.append(request.world_size)
        return trainer_pb2.SendWeightsResponse()


class World:
    """A publisher, its registry and clients."""

    def __init__(self, path: Path, times: PublicationTable) -> None:
        self.path, self.times = path, times
        self.state = RunState(Store(path / "state.sqlite"), max_steps=10)
        self.registry = Registry(lease_s=60)
        self.trainer = ScriptedTrainer()
        self.clients = Clients()
        self.publisher = PublicationCoordinator(
            self.state, self.registry, self.clients, EventLog(path, "orchestrator", 1), times
        )
        self.servers: list[RpcServer] = []

    async def open(self, replicas: list[ScriptedReplica]) -> None:
        def add_trainer(server: Any) -> None:
            trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self.trainer, server)

        trainer = await serve({"wire.v1.TrainerService": add_trainer}, "127.0.0.1", 0)
        self.servers.append(trainer)
        await self.state.register_trainer(
            pb.RegisterTrainerRequest(address=f"127.0.0.1:{trainer.port}", boot_id="t1", version=3, routes=GLOO)
        )
        for replica in replicas:
            await self.join(replica)

    async def join(self, replica: ScriptedReplica, state: int = pb.REPLICA_STATE_PENDING_WEIGHTS) -> None:
        def add(server: Any) -> None:
            rollout_pb2_grpc.add_RolloutServiceServicer_to_server(replica, server)

        replica.server = await serve({"wire.v1.RolloutService": add}, "127.0.0.1", 0)
        self.servers.append(replica.server)
        address = f"127.0.0.1:{replica.server.port}"
        now = time.monotonic()
        self.registry.register(
            pb.RegisterReplicaRequest(
                replica_id=replica.replica_id,
                boot_id=replica.replica_id,
                address=address,
                dtype="float32",
                routes=replica.script.get("routes")
                or common_pb2.Routes(backends=["gloo"], ranks=replica.script.get("ranks", 1)),
                first_verify_s=replica.script.get("first_verify_s", 0.0),
            ),
            now,
        )
        beat = pb.HeartbeatRequest(replica_id=replica.replica_id, boot_id=replica.replica_id, state=state)  # type: ignore[arg-type]
        self.registry.heartbeat(beat, now)

    def replica(self, replica_id: str) -> Replica:
        return next(one for one in self.registry.alive(time.monotonic()) if one.replica_id == replica_id)

    def request(self, version: int = 3, incarnation: int = 1, disk: str = "") -> pb.PublishRequest:
        return pb.PublishRequest(incarnation=incarnation, version=version, plan=PLAN, disk_path=disk)

    async def close(self) -> None:
        await self.clients.close()
        for server in self.servers:
            await server.stop(0)


@asynccontextmanager
async def world(path: Path, *replicas: ScriptedReplica) -> AsyncIterator[World]:
    built = World(path, deadlines(*replicas))
    await built.open(list(replicas))
    yield built
    await built.close()


def committed(response: pb.PublishResponse) -> dict[str, bool]:
    return {outcome.replica_id: outcome.committed for outcome in response.outcomes}
