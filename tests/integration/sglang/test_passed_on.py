"""The service's own /metrics passes on what the real server tells."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import REGISTRY

from headrace.services.rollout.engine_metrics import EngineReader
from headrace.wire.http import admin_app, serve_http
from tests.integration.metrics.prometheus import promtool
from tests.integration.metrics.replayed import engine_names
from tests.sglang import Server, attached, engine_of

pytestmark = pytest.mark.sglang


@asynccontextmanager
async def scraped(server: Server, run_dir: Path) -> AsyncIterator[str]:
    """URL of a rollout service's metrics."""
    async with engine_of(attached(server, run_dir)) as engine:
        http = await serve_http(admin_app("rollout", lambda: None, EngineReader(engine).read), "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{http.port}/metrics"
        finally:
            await http.stop()


async def get(url: str) -> str:
    async with httpx.AsyncClient() as client:
        answer = await client.get(url, timeout=10)
    assert answer.status_code == 200
    return answer.text


def failures() -> float:
    return REGISTRY.get_sample_value("headrace_rollout_engine_reads_total", {"outcome": "failed"}) or 0.0


async def test_all_names_that_dashboards_use_are_passed_on_beside_our_own(server: Server, tmp_path: Path) -> None:
    before = failures()
    async with scraped(server, tmp_path) as url:
        await server_has_worked(server)
        text = await get(url)
    assert failures() == before
    assert {name for name in engine_names() if f"\n{name}{{" not in text} == set()
    assert "\nheadrace_rollout_groups_in_flight" in text
    assert text.count("# TYPE process_cpu_seconds_total ") == 1
    ours = "".join(f"{line}\n" for line in text.splitlines() if "sglang:" not in line)
    assert not promtool("check", "metrics", stdin=ours).strip()


async def test_a_frozen_server_costs_its_own_metrics_and_not_ours(server: Server, tmp_path: Path) -> None:
    before = failures()
    async with scraped(server, tmp_path) as url:
        with server.frozen():
            text = await get(url)
        assert "sglang:" not in text and "\nheadrace_rollout_groups_in_flight" in text
        assert failures() == before + 1
        assert "\nsglang:" in await get(url)


async def server_has_worked(server: Server) -> None:
    """Histograms of requests are there when there was one."""
    body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 4}}
    headers = {"Authorization": f"Bearer {server.api_key_file.read_text()}"}
    async with httpx.AsyncClient() as client:
        (await client.post(f"{server.url}/generate", json=body, headers=headers, timeout=60)).raise_for_status()
