"""The first calls of a server's life compile kernels: they may last as long as a start; all later ones may not.

The server is scripted, at its HTTP interface; the replica, its heartbeats and the publications are real.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import Response

from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.rollout.engines.sglang import start
from headrace.wire.http import serve_http
from headrace.wire.process.environment import CUMEM, nccl_cumem
from headrace.wire.v1 import common_pb2
from tests.integration.rollout.test_sglang_client import Script
from tests.rollout_models import VOCAB, make_model, save_folder
from tests.sglang import sglang_settings
from tests.unit.services.orchestrator.publication_world import ScriptedReplica, World, committed
from tests.unit.services.rollout.engines.sglang.test_sglang_checks import MODEL, SERVER
from tests.waiting import until_async

CANARY = common_pb2.Canary(
    token_ids=np.array([4, 5], "<i4").tobytes(), logprobs=np.array([-1.0], "<f4").tobytes(), tolerance=0.1
)


class Server(Script):
    """An SGLang server as far as a replica without rollouts asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.first_request_s, self.hash_s = 0.0, 0.0
        self.answers |= {
            "ready": {},
            "server_info": SERVER,
            "generate": self._generate,
            "weights_checker": self._hash,
            "v1/loads": {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]},
        }
        self.holds(0)

    def holds(self, version: int) -> None:
        """What it says of its weights."""
        self.answers["model_info"] = MODEL | {"weight_version": f"1.{version}"}
        self.checksum = f"sglang-device {version}"

    async def _generate(self, body: dict[str, Any]) -> Any:
        if body["input_ids"] == [4, 5]:
            return {"meta_info": {"input_token_logprobs": [[None, 4, None], [-1.0, 5, None]]}}
        seconds, self.first_request_s = self.first_request_s, 0.0
        await asyncio.sleep(seconds)
        return Response("{}", status_code=400 if body.get("token_ids_logprob") == [VOCAB] else 200)

    async def _hash(self, body: dict[str, Any]) -> Any:
        await asyncio.sleep(self.hash_s)
        return {"success": True, "ranks": [{"checksums": {"w": self.checksum}}]}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    server = Server()
    http = await serve_http(server.app, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{http.port}"
    finally:
        await http.stop()


async def test_the_first_request_may_take_as_long_as_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_CHECK_S", 1.0)
    model = save_folder(make_model(max_position_embeddings=4096), tmp_path / "model")
    async with serving() as (server, url):
        server.first_request_s = 3.0
        settings = sglang_settings(model, tmp_path, {"urls": [url], "device": "cuda", "start_timeout_s": 300.0})
        engine = await start.start_engine(settings)
        assert engine.first_verify_s == 300.0
        await engine.close(5)
        # The ways of canary and rollouts, and a token of the vocabulary's end: all within the start.
        first, *_ = [body for path, body in server.calls if path == "generate"]
        assert first["logprob_start_len"] == 0 and first["sampling_params"]["max_new_tokens"] > 0
        assert server.paths().count("generate") == 3


async def test_the_server_hashes_its_loaded_weights_before_the_first_publication(tmp_path: Path) -> None:
    model = save_folder(make_model(max_position_embeddings=4096), tmp_path / "model")
    refused = {"success": False, "message": "no room"}
    for version, answer, found in (
        ("default", None, {"w": "sglang-device 0"}),
        # It has taken weights before, and they may be any.
        ("1.7", None, {}),
        ("default", refused, {}),
    ):
        async with serving() as (server, url):
            server.answers["model_info"] = MODEL | {"weight_version": version}
            if answer is not None:
                server.answers["weights_checker"] = answer
            engine = await start.start_engine(sglang_settings(model, tmp_path, {"urls": [url], "device": "cuda"}))
            assert engine.loaded_checksums == found
            await engine.close(5)


async def test_a_server_has_the_trainers_cumem_unless_its_own_environment_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_folder(make_model(max_position_embeddings=4096), tmp_path / "model")
    for inherited, own, launched, attached in (("", {}, "0", "0"), ("1", {}, "1", "0"), ("1", {CUMEM: "2"}, "2", "2")):
        monkeypatch.setenv(CUMEM, inherited)
        if not inherited:
            monkeypatch.delenv(CUMEM)
        launches = sglang_settings(model, tmp_path, {"device": "cuda", "env": own})
        assert start._launch_plan(launches).env[CUMEM] == launched
        attaches = sglang_settings(model, tmp_path, {"device": "cuda", "env": own, "urls": ["http://gpu-1:30000"]})
        assert (await start._routes(attaches)).nccl_cumem == attached
        assert nccl_cumem() == (inherited or "0"), "of the trainer"


async def test_a_replica_that_still_compiles_does_not_delay_serving_replicas(tmp_path: Path) -> None:
    house = World(tmp_path, PublicationTable(verify_s=60))
    fresh, other = ScriptedReplica("fresh", first_verify_s=120.0), ScriptedReplica("other", first_verify_s=90.0)
    await house.open([fresh, other])
    # Nobody else is there: the first publication waits for them.
    assert committed(await house.publisher.publish(house.request(3))) == {"fresh": True, "other": True}
    assert [one.deadline_s for one in (fresh, other)] == [120.0, 90.0]
    late = ScriptedReplica("late", first_verify_s=1e9, verify="wait")
    await house.join(late)
    assert committed(await house.publisher.publish(house.request(4))) == {"fresh": True, "other": True}
    assert [one.deadline_s for one in (fresh, other)] == [60.0, 60.0] and late.calls == []
    bringing = asyncio.create_task(house.publisher.bring(house.request(4), house.replica("late")))
    await until_async(lambda: "verify" in late.calls)
    # Whatever it asks for: the trainer has a deadline for all of a publication.
    (progress,) = house.publisher.sessions
    assert progress.deadline_s == 600.0
    late.go_on.set()
    assert await bringing and late.deadline_s == 600.0
    await house.close()
