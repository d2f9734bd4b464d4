"""The end of a live run's orchestrator as the pages see it."""

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.services.orchestrator.app import serve
from headrace.services.orchestrator.issuing.prompts import COLUMNS
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.wire.access import process
from headrace.wire.access.roles import Role
from headrace.wire.rpc import RpcServer
from headrace.wire.rundir.layout import RunPaths
from tests.http_tokens import of_run
from tests.ports import free_port
from tests.valkey import Valkey


def settings_of(folder: Path, valkey: Valkey) -> OrchestratorSettings:
    row = ("p0", [5, 6, 7], "1+2=", json.dumps({}))
    pq.write_table(
        pa.table({name: [value] for name, value in zip(COLUMNS, row, strict=True)}), folder / "prompts.parquet"
    )
    return OrchestratorSettings.model_validate(
        {
            "run": {"id": "ends", "max_steps": 5},
            "broker": {"url": valkey.url},
            "run_dir": folder,
            "grpc_port": free_port(),
            "http_port": free_port(),
        }
    )


async def listen(url: str, headers: dict[str, str], begun: asyncio.Event) -> None:
    """Until the stream ends."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        http.stream("GET", f"{url}/api/events", headers=headers) as answer,
    ):
        async for _ in answer.aiter_lines():
            begun.set()


async def test_a_page_keeps_its_stream_until_it_can_ask_for_no_other(
    tmp_path: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, valkey)
    kept: list[bool] = []
    stop = RpcServer.stop

    async def take_a_while(self: RpcServer, grace_s: float = 1.0) -> None:
        """As with a call under way. Meanwhile who asks for a stream would be refused it."""
        await stop(self, grace_s)
        await asyncio.sleep(0.5)
        kept.append(not page.done())

    monkeypatch.setattr(RpcServer, "stop", take_a_while)
    url, begun = f"http://127.0.0.1:{settings.http_port}", asyncio.Event()
    process.use(Role.ORCHESTRATOR, RunPaths(tmp_path).tokens, makes=True)
    service = asyncio.create_task(serve(settings))
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                await http.get(f"{url}/healthz")
                break
            except httpx.TransportError:
                await asyncio.sleep(0.05)
    page = asyncio.create_task(listen(url, of_run(tmp_path), begun))
    await asyncio.wait_for(begun.wait(), 60)
    signal.raise_signal(signal.SIGTERM)
    assert await asyncio.wait_for(service, 60) == 0
    await asyncio.wait_for(page, 60)
    assert kept == [True]
    process.forget()
