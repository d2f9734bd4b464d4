"""The client and the engine against a scripted server: what the real one cannot be brought to do."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from headrace.services.rollout.engines.protocol import AbandonedError, GenerationError, InFlight, Routes
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.engine import EngineOptions, SGLangEngine
from headrace.services.rollout.engines.sglang.hashing import Hashing
from headrace.services.rollout.engines.sglang.requests import ServerLimits
from headrace.wire import tracing
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.http import serve_http
from headrace.wire.v1 import common_pb2, rollout_pb2
from tests.rollout_models import make_request
from tests.spans import recording
from tests.waiting import until_async

V0 = PolicyVersion(incarnation=1, version=0)
LIMITS = ServerLimits(vocab=100, context_length=64, prompt_length=60, max_requests=9)
Answer = dict[str, Any] | Response | Callable[[dict[str, Any]], Any]


class Script:
    """A server that answers what it was told to; whatever it was not told succeeds."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.keys: dict[str, str] = {}
        self.callers: dict[str, str] = {}
        self.app = FastAPI()
        self.app.add_api_route("/{path:path}", self._answer, methods=["GET", "POST"])

    async def _answer(self, path: str, request: Request) -> Any:
        raw = await request.body()
        body = (await request.json()) if raw else {}
        self.calls.append((path, body))
        self.keys[path] = request.headers.get("authorization", "")
        self.callers[path] = request.headers.get("traceparent", "")
        found = self.answers.get(path, {"success": True, "message": ""})
        if callable(found) and not isinstance(found, Response):
            found = found(body)
            if asyncio.iscoroutine(found):
                found = await found
        return found

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]


@asynccontextmanager
async def scripted(engine_timeout_s: float = 60.0, **options: Any) -> AsyncIterator[tuple[Script, SGLangEngine]]:
    script = Script()
    http = await serve_http(script.app, "127.0.0.1", 0)
    client = SGLangClient(f"http://127.0.0.1:{http.port}", api_key="user", admin_key="admin")
    found = EngineOptions(
        dtype="float32",
        routes=Routes(),
        checksum_format="sglang-sha256",
        max_rows=4,
        engine_timeout_s=engine_timeout_s,
        **options,
    )
    engine = SGLangEngine(client, None, LIMITS, found)
    script.answers["v1/loads"] = {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}
    try:
        yield script, engine
    finally:
        await engine.close(1)
        await http.stop()


async def publish(script: Script, engine: SGLangEngine, version: PolicyVersion = V0) -> None:
    """From disk: the scripted server has no collective."""
    script.answers["model_info"] = {"weight_version": str(version)}
    await engine.prepare(version, common_pb2.WeightPlan(), 5)
    source = rollout_pb2.ReceiveWeightsRequest(publication_id="p", disk_path="/weights", deadline_s=5)
    await engine.receive(common_pb2.WeightPlan(), source, 5)
    await engine.install(version, "digest", 5)
    await engine.resume(5)


def tokens(*ids: int, kind: str = "length", version: str = "1.0") -> dict[str, Any]:
    return {
        "output_ids": list(ids),
        "meta_info": {
            "finish_reason": {"type": kind},
            "prompt_tokens": 2,
            "cached_tokens": 0,
            "output_token_logprobs": [[-1.0, each, None] for each in ids],
            "weight_versions": [{"version": version, "start": 0, "end": len(ids)}] if ids else [],
        },
    }


async def test_an_update_calls_the_server_in_order_with_the_admin_key() -> None:
    async with scripted() as (script, engine):
        await publish(script, engine)
        assert script.paths() == [
            "pause_generation",
            "begin_weight_update",
            "end_weight_update",
            "update_weights_from_disk",
            "model_info",
            "flush_cache",
            "continue_generation",
        ]
        assert script.keys["update_weights_from_disk"] == "Bearer admin" and script.keys["model_info"] == "Bearer user"
        assert dict(script.calls)["update_weights_from_disk"] == {
            "model_path": "/weights",
            "weight_version": "1.0",
            "flush_cache": False,
            "abort_all_requests": False,
        }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Response('{"output_ids": [1', media_type="application/json"), GenerationError),
        (Response("[]", media_type="application/json"), GenerationError),
        ({}, GenerationError),
        (tokens(5, 6, version="7.7"), GenerationError),
        (tokens(5, 6) | {"output_ids": [5]}, GenerationError),
        (tokens(*range(5, 35)), GenerationError),
        (Response("busy", status_code=503), AbandonedError),
        (Response("broken", status_code=500), AbandonedError),
        (Response('{"error": "no"}', status_code=401), AbandonedError),
        (Response('{"error": {"message": "bad prompt"}}', status_code=400), ContractError),
    ],
)
async def test_a_bad_answer_never_becomes_a_rollout(answer: Answer, error: type[Exception]) -> None:
    async with scripted() as (script, engine):
        await publish(script, engine)
        script.answers["generate"] = answer
        with pytest.raises(error):
            await engine.generate(make_request([1, 2], 3, max_tokens=20))
        assert engine.stats().groups == 0 and engine.stats().rollouts == 0
        script.answers["generate"] = tokens(5, 6)
        (one,) = await engine.generate(make_request([1, 2], 1, max_tokens=20))
        assert one.token_ids.tolist() == [5, 6]


async def test_an_aborted_rollout_is_asked_for_again_with_its_tokens() -> None:
    async with scripted() as (script, engine):
        await publish(script, engine)
        parts = iter([tokens(5, 6, kind="abort"), tokens(kind="abort"), tokens(7, kind="stop")])
        script.answers["generate"] = lambda body: next(parts)
        (one,) = await engine.generate(make_request([1, 2], 1, max_tokens=20))
        assert one.token_ids.tolist() == [5, 6, 7]
        bodies = [body for path, body in script.calls if path == "generate"]
        assert [each["input_ids"] for each in bodies] == [[1, 2], [1, 2, 5, 6], [1, 2, 5, 6]]
        assert [each["sampling_params"]["max_new_tokens"] for each in bodies] == [20, 18, 18]
        assert len({each["rid"] for each in bodies}) == 3 and {len(each["rid"]) for each in bodies} == {32}


async def test_a_server_of_another_version_is_not_installed() -> None:
    async with scripted() as (script, engine):
        await publish(script, engine)
        script.answers["model_info"] = {"weight_version": "1.0"}
        await engine.prepare(PolicyVersion(incarnation=1, version=1), common_pb2.WeightPlan(), 5)
        with pytest.raises(TransientError, match=r"says that its weights are 1\.0, not 1\.1"):
            await engine.install(PolicyVersion(incarnation=1, version=1), "digest", 5)


async def test_a_cache_that_is_not_flushed_is_not_installed() -> None:
    async with scripted() as (script, engine):
        script.answers["flush_cache"] = Response("busy", status_code=400)
        with pytest.raises(TransientError, match="did not install"):
            await publish(script, engine)


async def test_in_place_every_installation_has_a_cache_of_its_own() -> None:
    async with scripted(in_flight=InFlight.IN_PLACE) as (script, engine):
        script.answers["flush_cache"] = Response("busy", status_code=400)
        script.answers["generate"] = tokens(5)
        salts = []
        for _ in range(2):
            # The same version twice: the first time it may have been damaged.
            await publish(script, engine)
            await engine.generate(make_request([1, 2], 1))
            salts.append(script.calls[-1][1]["extra_key"])
        assert len(set(salts)) == 2
        assert dict(script.calls)["pause_generation"] == {"mode": "in_place"}


async def test_a_control_call_that_does_not_come_back_ends_the_engine() -> None:
    async with scripted() as (script, engine):
        await publish(script, engine)
        script.answers["generate"] = lambda body: asyncio.sleep(3600)
        script.answers["begin_weight_update"] = lambda body: asyncio.sleep(3600)
        group = asyncio.create_task(engine.generate(make_request([1, 2], 2)))
        await until_async(lambda: script.paths().count("generate") == 2)
        with pytest.raises(TransientError, match=r"begin_weight_update has not answered for (2\.0|1\.\d) s"):
            await engine.prepare(PolicyVersion(incarnation=1, version=1), common_pb2.WeightPlan(), 2)
        with pytest.raises(TransientError, match="open an update session"):
            await asyncio.wait_for(engine.failed(), 20)
        with pytest.raises(AbandonedError):
            await asyncio.wait_for(group, 20)


async def test_a_server_that_stops_answering_ends_the_engine() -> None:
    async with scripted(engine_timeout_s=2) as (script, engine):
        await publish(script, engine)
        await until_async(lambda: "server_info" in script.paths())
        script.answers["server_info"] = lambda body: asyncio.sleep(30)
        with pytest.raises(TransientError, match="does not answer"):
            await asyncio.wait_for(engine.failed(), 20)


async def test_drain_waits_for_running_rollouts_and_keeps_others_out() -> None:
    async with scripted(in_flight=InFlight.DRAIN) as (script, engine):
        await publish(script, engine)

        async def slowly(body: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(0.3)
            return tokens(5)

        script.answers["generate"] = slowly
        first = asyncio.create_task(engine.generate(make_request([1, 2], 2)))
        await until_async(lambda: script.paths().count("generate") == 2)
        preparing = asyncio.create_task(
            engine.prepare(PolicyVersion(incarnation=1, version=1), common_pb2.WeightPlan(), 5)
        )
        await asyncio.sleep(0.05)
        second = asyncio.create_task(engine.generate(make_request([1, 2], 2)))
        await preparing
        assert first.done() and not second.done()
        assert script.paths().count("generate") == 2
        await engine.discard()
        await second


async def test_a_transfer_that_was_given_up_does_not_reach_into_the_next_update() -> None:
    async with scripted() as (script, engine):
        listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        plan = common_pb2.WeightPlan(buckets=[common_pb2.Bucket(dtype="float32") for _ in range(3)])
        group = rollout_pb2.CollectiveGroup(
            name="g", backend="gloo", store_host="127.0.0.1", store_port=listener.sockets[0].getsockname()[1]
        )
        gate = asyncio.Event()

        async def bucket(body: dict[str, Any]) -> dict[str, Any]:
            await gate.wait()
            return {"success": True}

        script.answers["update_weights_from_distributed"] = bucket
        await engine.prepare(V0, plan, 5)
        source = rollout_pb2.ReceiveWeightsRequest(publication_id="p", collective=group, deadline_s=5)
        receiving = asyncio.create_task(engine.receive(plan, source, 5))
        await until_async(lambda: "update_weights_from_distributed" in script.paths())
        await engine.discard()
        await engine.prepare(V0, plan, 5)
        gate.set()
        with pytest.raises(TransientError, match="given up"):
            await receiving
        assert script.paths().count("update_weights_from_distributed") == 1
        await engine.discard()
        listener.close()
        await listener.wait_closed()


async def test_checksums_of_several_ranks_keep_them_apart() -> None:
    async with scripted() as (script, engine):
        script.answers["weights_checker"] = {"success": True, "ranks": [{"checksums": {"w": "a"}}]}
        assert await engine.checksums(5) == {"w": "a"}
        script.answers["weights_checker"] = {
            "success": True,
            "ranks": [{"checksums": {"w": "a"}}, {"checksums": {"w": "b"}}],
        }
        assert await engine.checksums(5) == {"0/w": "a", "1/w": "b"}
        for wrong in ({"success": True}, {"success": False}, {"success": True, "ranks": [{}]}):
            script.answers["weights_checker"] = wrong
            with pytest.raises(ContractError):
                await engine.checksums(5)


async def test_requests_to_a_tracing_server_carry_the_callers_trace() -> None:
    script = Script()
    http = await serve_http(script.app, "127.0.0.1", 0)
    client = SGLangClient(f"http://127.0.0.1:{http.port}")
    caller = f"00-{'a' * 32}-{'b' * 16}-01"
    with recording(), tracing.under([("traceparent", caller)]):
        await client.model_info(5)
    assert script.callers["model_info"] == caller
    await client.model_info(5)
    assert script.callers["model_info"] == ""
    await client.close()
    await http.stop()


async def test_the_sizes_of_a_folder_are_read_from_its_headers(tmp_path: Path) -> None:
    header = {"w": {"dtype": "F32", "shape": [2**16, 2**16], "data_offsets": [0, 2**34]}, "__metadata__": {"a": "b"}}
    raw = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "a.safetensors"}}))
    script = Script()
    script.answers["weights_checker"] = {"success": True, "ranks": [{"checksums": {}}, {"checksums": {}}]}
    http = await serve_http(script.app, "127.0.0.1", 0)
    client = SGLangClient(f"http://127.0.0.1:{http.port}", api_key="user", admin_key="admin")
    for dtype, ranks, found in (("bfloat16", 1, {"w"}), ("float32", 2, {"0/w", "1/w"}), ("bfloat16", 2, set())):
        hashing = Hashing(client, ranks=ranks, on_gpu=True)
        script.answers["weights_checker"] = {"success": True, "ranks": [{"checksums": {}}] * ranks}
        hashing.expect_folder(tmp_path, dtype)
        assert (await hashing.checksums(5)).keys() == found
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 8)
    with pytest.raises(ContractError, match="sizes of its tensors cannot be read"):
        hashing.expect_folder(tmp_path, "bfloat16")
    await client.close()
    await http.stop()
