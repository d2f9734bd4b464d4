"""A stream of events that was opened with a token ends when that token is retired, and no other stream does."""

import asyncio
from pathlib import Path

import httpx
import pytest

from headrace.operate.token_rotation import RotationPhase, rotate
from headrace.services.orchestrator.dashboard import event_feed
from headrace.wire.access import process, reread
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import token_of
from headrace.wire.http import revoked_streams, serve_http
from tests.http_apps import make_app
from tests.http_tokens import bearer

WAIT_S = 60.0


async def begun(http: httpx.AsyncClient, url: str, token: str) -> asyncio.Task[bool]:
    """A task that listens, and returns whether the server ended the stream; it does after the first event."""
    is_begun = asyncio.Event()

    async def listened() -> bool:
        async with http.stream("GET", url, headers=bearer(token)) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_lines():
                is_begun.set()
        return True

    listening = asyncio.create_task(listened())
    await asyncio.wait_for(is_begun.wait(), WAIT_S)
    return listening


async def test_a_stream_ends_with_its_token_and_one_with_the_new_token_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "LOOK_S", 0.0)
    monkeypatch.setattr(revoked_streams, "CHECK_S", 0.0)
    monkeypatch.setattr(event_feed, "_HEARTBEAT_S", 0.05)
    tokens = tmp_path / "tokens"
    process.use(Role.ORCHESTRATOR, tokens, makes=True)
    try:
        server = await serve_http(await make_app("orchestrator", tmp_path), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.port}/api/events"
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            old = await begun(http, url, token_of(tokens, Role.VIEWER))
            for phase in (RotationPhase.ACCEPT, RotationPhase.USE):
                rotate(tokens, phase)
            new = await begun(http, url, token_of(tokens, Role.VIEWER))
            await asyncio.sleep(0.5)
            assert not old.done(), "both tokens are accepted"
            rotate(tokens, RotationPhase.RETIRE)
            assert await asyncio.wait_for(old, WAIT_S)
            await asyncio.sleep(0.5)
            assert not new.done()
            new.cancel()
            await asyncio.gather(new, return_exceptions=True)
        await server.stop()
    finally:
        process.forget()
