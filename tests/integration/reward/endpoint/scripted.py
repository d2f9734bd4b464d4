"""A real HTTP server on a socket that answers as it is told, byte for byte; a listener that counts connections."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.services.reward.scorer import Scorer

ScorerT = TypeVar("ScorerT", bound=Scorer)
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes an answer, or part of one."""
Reply = Callable[["Request"], Answer]


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Scripted:
    """What it was asked, and how it answers: the script first, then `otherwise`."""

    url: str
    port: int
    otherwise: Reply
    script: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def reply(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.script.pop(0) if self.script else self.otherwise(request)


def raw(data: bytes, *, close: bool = True) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    return write


def answer(status: int, body: bytes = b"{}", *headers: str) -> Answer:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body, close=False)


def ok(found: Any) -> Answer:
    return answer(200, json.dumps(found).encode(), "Content-Type: application/json")


def hang(begin: bytes = b"") -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        await writer.drain()
        await asyncio.sleep(3600)

    return write


def after(seconds: float, then: Answer) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await then(writer)

    return write


def reset() -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    return write


@asynccontextmanager
async def scripted(
    *script: Answer, otherwise: Reply | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Scripted]:
    """Serves on a free port of the loopback until the block ends."""
    found = Scripted("", 0, otherwise or (lambda request: ok({"echo": request.body})), list(script))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        found.connections += 1
        try:
            while not writer.is_closing() and (request := await _read(reader)) is not None:
                await found.reply(request)(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    found.url = f"http://127.0.0.1:{found.port}"
    try:
        yield found
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def asking(
    build: Callable[..., ScorerT], *script: Answer, otherwise: Reply | None = None, **options: Any
) -> AsyncIterator[tuple[Scripted, ScorerT]]:
    """A server by script, and the scorer that `build(server, **options)` makes of it."""
    async with scripted(*script, otherwise=otherwise) as server:
        scorer = build(server, **options)
        try:
            yield server, scorer
        finally:
            await scorer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, json.loads(body) if body else None)
