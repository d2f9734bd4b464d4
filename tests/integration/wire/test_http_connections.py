"""Connections that are no requests: cut off, bounded in number, counted, and of no harm to others."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import Response
from prometheus_client import REGISTRY

from headrace.wire.http import HttpServer, admin_app, app, connection, serve_http

LARGE = 32 << 20
"""Bytes of an answer that no buffer between the two ends holds."""
HEAD = b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpServer]:
    monkeypatch.setattr(connection, "HEAD_S", 0.3)
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 20)
    made = admin_app("test", lambda: None)

    @made.get("/slow")
    async def slow() -> dict[str, str]:
        await asyncio.sleep(1.0)
        return {"said": "slow"}

    @made.get("/large")
    async def large() -> Response:
        return Response(bytes(LARGE))

    serving = await serve_http(made, "127.0.0.1", 0)
    yield serving
    await serving.stop()


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("headrace_http_refused_total", {"reason": reason}) or 0.0


async def heard(port: int, *sent: bytes, every_s: float = 0.0) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            for piece in sent:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(every_s)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def alive(port: int) -> bool:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local", HEAD])
async def test_an_incomplete_request_is_cut_off(server: HttpServer, sent: bytes) -> None:
    before = refused("slow")
    assert await heard(server.port, sent) == b""
    assert refused("slow") == before + 1


async def test_a_head_that_trickles_is_cut_off_too(server: HttpServer) -> None:
    before, sent = refused("slow"), []
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError):
        writer.write(HEAD + b"X: ")
        while len(sent) < 1000:
            sent.append(b"x")
            writer.write(sent[-1])
            await writer.drain()
            await asyncio.sleep(0.02)
    writer.close()
    assert len(sent) < 1000, "each byte has put its end off"
    assert refused("slow") == before + 1 and await alive(server.port)


async def test_a_flood_of_silent_connections_keeps_out_none_that_asks(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 60.0)
    before = refused("connections")
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(25)]
    assert await alive(server.port)
    for reader, _ in opened[:6]:  # The oldest make room, the sixth for the one that asks.
        async with asyncio.timeout(60):
            assert await reader.read() == b""
    assert refused("connections") == before + 6
    reader, writer = opened[-1]
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(60):
        assert b"200" in (await reader.read())[:20]
    for _, one in opened:
        one.close()


@pytest.mark.parametrize("path", [b"/metrics", b"/none", b"/large"])
async def test_pipelined_requests_whose_answers_are_not_read_keep_out_none_that_asks(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 60.0)
    opened = [await asyncio.open_connection("127.0.0.1", server.port, limit=1) for _ in range(25)]
    for _, writer in opened:
        writer.write((b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n") * 2000)
    await asyncio.sleep(1.0)
    assert [await alive(server.port) for _ in range(5)] == [True] * 5
    for _, writer in opened:
        writer.transport.abort()


async def test_an_answer_that_is_not_read_is_cut_off_and_one_that_is_read_slowly_arrives(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 2.0)
    asks, close = b"GET /large HTTP/1.1\r\nHost: localhost\r\n%b\r\n", b"Connection: close\r\n"
    for ends in (b"", close):
        before, (_, mute) = refused("unread"), await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        mute.write(asks % ends)
        async with asyncio.timeout(60):
            while refused("unread") == before:
                await asyncio.sleep(0.05)
        mute.close()
    # Through buffers as the kernel makes them, of which a slow reader empties little in that time.
    before, (reader, writer) = refused("unread"), await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 15)
    writer.write(asks % close)
    slow_until, heard = asyncio.get_running_loop().time() + 7, 0
    while got := await reader.read(1 << 15):
        heard += len(got)
        await asyncio.sleep(0.1 if asyncio.get_running_loop().time() < slow_until else 0)
    writer.close()
    assert heard > LARGE and refused("unread") == before


async def test_metrics_are_rendered_once_a_second_for_all_askers(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = []
    monkeypatch.setattr(app, "exposition", lambda engine: rendered.append(engine) or b"%d" % len(rendered))
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{server.port}/metrics"
        monkeypatch.setattr(app, "RENDER_S", 0.0)
        assert [(await http.get(url)).text for _ in range(2)] == ["1", "2"]
        monkeypatch.setattr(app, "RENDER_S", 1e9)
        heard = await asyncio.gather(*(http.get(url) for _ in range(10)))
        assert {one.text for one in heard} == {"3"}


async def test_a_connection_beyond_as_many_requests_in_progress_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)
    made, finish, asked = admin_app("test", lambda: None), asyncio.Event(), asyncio.Semaphore(0)

    @made.get("/held")
    async def held() -> dict[str, str]:
        asked.release()
        await finish.wait()
        return {"said": "held"}

    server = await serve_http(made, "127.0.0.1", 0)
    before = refused("connections")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http, asyncio.timeout(60):
        asking = [asyncio.create_task(http.get(f"http://127.0.0.1:{server.port}/held")) for _ in range(3)]
        for _ in asking:
            await asked.acquire()
        assert await heard(server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        assert refused("connections") == before + 1
        finish.set()
        assert [(await one).status_code for one in asking] == [200] * 3
    await server.stop()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50),
        b"\x80\x04\x95\x10\x00\x00\x00.pickle" + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: " + b"a" * (1 << 20),
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_non_http_bytes_are_rejected_and_counted_without_filling_the_log(
    server: HttpServer, sent: bytes, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    before = refused("malformed")
    for _ in range(50):
        answer = await heard(server.port, sent)
        assert b" 400 " in answer[:20] or b" 403 " in answer[:20] or answer == b""
    assert refused("malformed") == before + 50
    assert faults == [] and capfd.readouterr().err.count("\n") <= 2
    assert logging.getLogger("uvicorn.error").level == logging.ERROR
    assert await alive(server.port)
