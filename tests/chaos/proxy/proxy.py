"""A TCP proxy in a thread of its own, whose faults a test sets while connections are open."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Iterator, Sequence
from typing import TypeVar

from tests.chaos.proxy.faults import BlackHole, Cut, Delay, Duplicate, Fault, Hold, Refuse, Reset, Throttle
from tests.chaos.proxy.resp import RequestSplitter
from tests.ports import free_port

T = TypeVar("T")
_CALL_S = 30.0
_CHUNK = 65536
_LAST_S = 1.0
"""For the last bytes before a cut."""
_REPLAY_S = 1.0
"""For the answer to a request that is executed a second time: blocking reads have none."""


class _Link:
    """One connection of a client, and its other half to the server."""

    def __init__(
        self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, requests: RequestSplitter | None
    ) -> None:
        self.client, self.server = client, server
        self.left: int | None = None
        """Bytes until it is cut."""
        self.lost = False
        """Whether bytes were swallowed: what follows them would be read as something else."""
        self.requests = requests

    def reset(self) -> None:
        """Ends both halves with RST."""
        for writer in (self.client, self.server):
            _reset(writer)


class FaultProxy:
    """Passes bytes on in both directions between clients of `port` and servers on this machine.

    `hits` counts what the current fault did: connections that it refused or reset, chunks that it delayed, throttled,
    held or swallowed, requests that it duplicated.
    """

    def __init__(self, upstream: int | None, *, redis: bool = False, seed: int = 0) -> None:
        """`upstream`: the server's port; None = the one that each client asks for by CONNECT, which meets no fault.

        `redis`: what it serves, which `Duplicate` must know.
        """
        self.upstream, self.port = upstream, free_port()
        self._redis = redis
        self.asked: set[int] = set()
        """Ports that clients have asked for by CONNECT."""
        self.hits = 0
        self._draw = random.Random(seed)
        self._fault: Fault | None = None
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._server: asyncio.Server | None = None
        self._requests = 0
        self._replays: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)

    def start(self) -> None:
        """Listens."""
        self._thread.start()
        self._in_loop(self._set(None))

    def set(self, fault: Fault | None) -> None:
        """Replaces the fault, of connections that are open too; None lifts it."""
        self._in_loop(self._set(fault))

    def stop(self) -> None:
        """Closes everything, and waits for its thread."""
        self._in_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def _in_loop(self, work: "Awaitable[T]") -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_S)

    async def _set(self, fault: Fault | None) -> None:
        self._fault, self.hits = fault, 0
        for link in list(self._links.values()):
            link.left = self._drawn()
            if link.lost or isinstance(fault, Refuse | Reset):
                self.hits += 1
                link.reset()
        if isinstance(fault, Hold):
            self._open.clear()
        else:
            self._open.set()
        if isinstance(fault, Refuse):
            await self._stop_listening()
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _close(self) -> None:
        await self._stop_listening()
        tasks = [*self._links, *self._replays]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drawn(self) -> int | None:
        fault = self._fault
        return self._draw.randint(fault.least, fault.most) if isinstance(fault, Cut) else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if isinstance(self._fault, Reset):
            self.hits += 1
            _reset(writer)
            return
        try:
            answers, server = await asyncio.open_connection("127.0.0.1", await self._wanted(reader))
        except (OSError, EOFError):
            # The server itself is away: so is what stands for it.
            _reset(writer)
            return
        if self.upstream is None:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        link = self._links[task] = _Link(writer, server, RequestSplitter() if self._redis else None)
        link.left = self._drawn()
        pumps = [
            asyncio.create_task(self._pump(link, reader, server, asks=True)),
            asyncio.create_task(self._pump(link, answers, writer, asks=False)),
        ]
        try:
            await asyncio.gather(*pumps)
        except (OSError, asyncio.CancelledError):
            # One half has ended, or the proxy does: so does the other. A task that ended as cancelled would make a
            # callback of asyncio fail.
            link.reset()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for half in (writer, server):
                half.close()
            del self._links[task]

    async def _wanted(self, reader: asyncio.StreamReader) -> int:
        """The port that a connection leads to. Raises OSError, EOFError."""
        if self.upstream is not None:
            return self.upstream
        async with asyncio.timeout(_CALL_S):
            head = await reader.readuntil(b"\r\n\r\n")
        port = int(head.split(b" ", 2)[1].rpartition(b":")[2])
        self.asked.add(port)
        return port

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asks: bool
    ) -> None:
        """Passes one direction on until its end; raises OSError for a connection that was reset, also by a fault."""
        while data := await reader.read(_CHUNK):
            for piece in self._pieces(data):
                if await self._passes(link, piece):
                    await self._write(link, writer, piece)
            if asks and link.requests is not None:
                self._duplicate(link.requests.feed(data))
        writer.write_eof()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        size = max(1, self._fault.bytes_per_s // 10) if isinstance(self._fault, Throttle) else len(data)
        return (data[start : start + size] for start in range(0, len(data), size))

    async def _passes(self, link: _Link, data: bytes) -> bool:
        """Applies what the fault does to time; False if it swallows the bytes."""
        fault = self._fault
        if isinstance(fault, BlackHole | Delay | Throttle | Hold):
            self.hits += 1
        match fault:
            case BlackHole():
                link.lost = True
                return False
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Throttle(bytes_per_s):
                await asyncio.sleep(len(data) / bytes_per_s)
            case Hold():
                await self._open.wait()
        return True

    async def _write(self, link: _Link, writer: asyncio.StreamWriter, data: bytes) -> None:
        if link.left is not None and link.left <= len(data):
            writer.write(data[: link.left])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await writer.drain()
            self.hits += 1
            link.reset()
            raise ConnectionResetError
        if link.left is not None:
            link.left -= len(data)
        writer.write(data)
        await writer.drain()

    def _duplicate(self, requests: Sequence[bytes]) -> None:
        if not isinstance(self._fault, Duplicate):
            return
        for request in requests:
            self._requests += 1
            if self._requests % self._fault.every == 0:
                task = asyncio.ensure_future(self._replay(request))
                self._replays.add(task)
                task.add_done_callback(self._replays.discard)

    async def _replay(self, request: bytes) -> None:
        assert self.upstream is not None
        answers, server = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            server.write(request)
            async with asyncio.timeout(_REPLAY_S):
                await answers.read(1)
            self.hits += 1
        except (TimeoutError, OSError):
            return
        finally:
            server.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with RST in place of FIN."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
