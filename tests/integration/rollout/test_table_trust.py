"""A wrong entry in the trainer's table of fused layouts quarantines nobody; damaged weights are quarantined still.

Trainer's publisher, orchestrator's publications and the replica are real; the SGLang server is its HTTP interface
around real tensors, which it fuses, pads and hashes by code of this file.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi import Response
from safetensors.torch import load_file
from torch import Tensor

from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.rollout.app import run_replica
from headrace.services.rollout.engines.sglang import start
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.text import TextDecoder
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.service import TrainerServicer
from headrace.wire import fused_names
from headrace.wire.http import serve_http
from headrace.wire.lifecycle import Shutdown
from headrace.wire.rpc import serve
from headrace.wire.rundir.events import read_events
from headrace.wire.streams.memory import MemoryBroker
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.integration.rollout.test_first_start import CANARY, Server
from tests.integration.rollout.world import Listener
from tests.rollout_models import make_model, save_folder
from tests.sglang import sglang_settings
from tests.sglang_hash import sglang_gpu_hash
from tests.unit.services.orchestrator.publication_world import ScriptedTrainer, World, committed
from tests.unit.services.rollout.engines.sglang.test_sglang_checks import MODEL
from tests.waiting import until_async

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
WRONG = {"k_proj": ("qkv_proj", 2, 3), "v_proj": ("qkv_proj", 1, 3)}
"""An entry that has SGLang's order of keys and values wrong."""
QKV = "model.layers.0.self_attn.qkv_proj.weight"


class Weights(Server):
    """A server that has the weights it loaded, or others."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.damaged, self.refuses, self.version = False, False, "default"
        self.tensors = load_file(folder / "model.safetensors")
        self.answers |= {
            "model_info": lambda _: MODEL | {"weight_version": self.version},
            "weights_checker": self.check,
            "update_weights_from_disk": self.load,
        }

    def load(self, body: dict[str, Any]) -> dict[str, Any]:
        self.tensors = load_file(Path(body["model_path"]) / "model.safetensors")
        if self.damaged:
            self.tensors["model.layers.0.self_attn.k_proj.weight"][3, 3] += 1e-3
        self.version = body["weight_version"]
        return {"success": True}

    def check(self, body: dict[str, Any]) -> Any:
        if self.refuses:
            return Response('{"success": false, "message": "no kernel"}', status_code=400)
        left_out = body.get("skip_tensor_list") or []
        found = {name: value for name, value in self.hashes().items() if not any(part in name for part in left_out)}
        return {"success": True, "ranks": [{"checksums": found}]}

    def hashes(self) -> dict[str, str]:
        held: dict[str, Tensor] = {}
        for name, tensor in self.tensors.items():
            fused = next((one for one, parts in FUSED.items() if name.split(".")[-2] in parts), None)
            if fused is not None:
                stem = name.rsplit(".", 2)[0]
                parts = [self.tensors[f"{stem}.{part}.weight"] for part in FUSED[fused]]
                held[f"{stem}.{fused}.weight"] = torch.cat(parts)
            elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
                held[name] = torch.cat([tensor, tensor.new_zeros(-len(tensor) % 64, tensor.shape[1])])
            else:
                held[name] = tensor
        return {name: sglang_gpu_hash(tensor) for name, tensor in held.items()}


class RealChecksums(ScriptedTrainer):
    """Its checksums are the real trainer's."""

    def __init__(self, publisher: Publisher) -> None:
        super().__init__()
        self.real = TrainerServicer(publisher, lambda: "")
        self.folder_read = 0

    async def GetChecksums(self, request: Any, context: Any) -> Any:
        self.folder_read += request.model_folder
        return await self.real.GetChecksums(request, context)


class Stage:
    """A trainer, an orchestrator, and replicas that join them."""

    def __init__(self, path: Path) -> None:
        self.path, self.model = path, make_model(seed=1, max_position_embeddings=4096)
        self.folder = save_folder(self.model, path / "model")
        self.trainer = Publisher(
            host="127.0.0.1",
            dtype=torch.float32,
            bucket_bytes=1 << 16,
            weights_folder=path / "weights",
            model_path=self.folder,
            disk_only=False,
            canary=lambda _: CANARY,
        )
        self.backend = SingleDevice(Policy(self.model, forward_dtype=torch.float32))
        self.world = World(path, PublicationTable(prepare_s=60, transfer_s=60, verify_s=60, commit_s=60))
        self.world.trainer = self.real = RealChecksums(self.trainer)
        self.listener = Listener()
        self.listener.registry = self.world.registry
        self.orchestrator = ""

    async def publish(self, version: int) -> dict[str, bool]:
        """Every weight is another one than before, and none is what the folder has."""
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.add_(torch.randn_like(weight) * 0.01)
        held = self.trainer.hold(self.backend, version)
        path = await self.trainer.save(version)
        self.request = pb.PublishRequest(
            incarnation=1, version=version, plan=held.snapshot.plan, canary=held.canary, disk_path=path
        )
        return committed(await self.world.publisher.publish(self.request))

    @asynccontextmanager
    async def replica(self, number: int = 0, *, version: str = "default") -> AsyncIterator[Weights]:
        server = Weights(self.folder)
        server.version = version
        http = await serve_http(server.app, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{http.port}"
        settings = sglang_settings(self.folder, self.path, {"urls": [url] * 2, "device": "cuda"}, heartbeat_s=0.1)
        settings = settings.model_copy(update={"orchestrator_address": self.orchestrator, "instance": str(number)})
        shutdown, engine = Shutdown(), await start.start_engine(settings)
        running = asyncio.create_task(
            run_replica(settings, engine, TextDecoder(self.folder), MemoryBroker(), shutdown, ReplicaHttpServer())
        )
        try:
            await until_async(lambda: self.state(number) == pb.REPLICA_STATE_PENDING_WEIGHTS)
            yield server
        finally:
            shutdown.event.set()
            await asyncio.wait_for(running, 60)
            await http.stop()

    def state(self, number: int = 0) -> int | None:
        found = {one.replica_id: one.state for one in self.world.registry.alive(0.0)}
        return found.get(f"rollout-{number}")

    def reported(self) -> dict[str, Any]:
        """The newest member of a publication, as its event has it."""
        event = [one for one in read_events(self.path) if one["event"] == "publication"][-1]
        member: dict[str, Any] = event["members"][0]
        return member


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    await made.world.open([])
    orchestrator = await serve({"wire.v1.OrchestratorService": made.listener.add_to}, "127.0.0.1", 0)
    made.orchestrator = f"127.0.0.1:{orchestrator.port}"
    yield made
    await orchestrator.stop(0)
    await made.world.close()


async def test_a_table_that_is_right_proves_and_the_folder_is_not_read(stage: Stage) -> None:
    async with stage.replica():
        assert await stage.publish(5) == {"rollout-0": True}
        assert stage.reported()["proof"] == "proven" and stage.reported()["proof_note"] == ""
        assert stage.real.folder_read == 0


async def test_a_wrong_table_quarantines_nobody_and_says_which_parameters_it_has_wrong(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_names, "FUSED", {**fused_names.FUSED, **WRONG})
    async with stage.replica():
        for version in (5, 6):
            assert await stage.publish(version) == {"rollout-0": True}
            assert stage.reported()["proof"] == "canary"
            note = stage.reported()["proof_note"]
            assert "table does not fit this server" in note and QKV in note and "gate_up" not in note
        (own,) = [one for one in read_events(stage.path) if one["event"] == "publication_committed"][-1:]
        assert own["proof_note"] == note == stage.world.replica("rollout-0").proof_note
        # One that joins is compared with the other, and both with each other from then on.
        async with stage.replica(1) as other:
            assert await stage.world.publisher.bring(stage.request, stage.world.replica("rollout-1"))
            assert stage.world.replica("rollout-1").proof == "compared"
            assert await stage.publish(7) == {"rollout-0": True, "rollout-1": True}
            assert stage.world.replica("rollout-0").proof == "compared"
            other.damaged = True
            assert await stage.publish(8) == {"rollout-0": False, "rollout-1": False}


async def test_weights_that_are_damaged_at_first_contact_are_quarantined(stage: Stage) -> None:
    async with stage.replica() as server:
        server.damaged = True
        assert await stage.publish(5) == {"rollout-0": False}
        assert stage.reported()["reason"] == f"verify: {QKV} are not the trainer's"
        await until_async(lambda: stage.state() == pb.REPLICA_STATE_QUARANTINED)
        server.damaged = False
        assert await stage.publish(6) == {"rollout-0": True} and stage.reported()["proof"] == "proven"
        assert stage.real.folder_read == 1
