"""What a stranger may throw at a port: bytes of no protocol, of another one, too many, too few, and none at all."""

import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass

import psutil

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))
PICKLE = b"\x80\x04\x95\x1f\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94."
HTTP1 = b"POST /drain HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", b"\xff\xff\xff\x01\x25\x00\x00\x00\x01"
"""Frames of HTTP/2: the first of a connection, and one of 16 MiB that never comes."""
SCORE = b"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ENDLESS = SCORE + b"Content-Length: 999999999999999\r\n\r\n"
CHUNKED = SCORE + b"Transfer-Encoding: chunked\r\n\r\n"
_ANSWER_S = 0.7
"""For an answer that need not come."""


def payloads(seed: int) -> dict[str, bytes]:
    """Name -> bytes, the same for a seed."""
    dice = random.Random(seed)
    return {
        "random": dice.randbytes(2000),
        "more_random": dice.randbytes(300_000),
        "pickle": PICKLE,
        "pickle_with_length": len(PICKLE).to_bytes(8, "little") + PICKLE,
        "tls": TLS_HELLO,
        "http1": HTTP1,
        "http1_to_another_host": HTTP1.replace(b"evil.example", b"127.0.0.1"),
        "http2": HTTP2 + SETTINGS + HEADERS + dice.randbytes(5000),
        "http2_upgrade": HTTP1.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
        "large_header": b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * (1 << 20),
        "endless_length": ENDLESS + b"[" * (16 << 20),
        "endless_chunks": CHUNKED + (b"100000\r\n" + b"[" * (1 << 20) + b"\r\n") * 16,
        "redis": b"*1\r\n$8\r\nSHUTDOWN\r\n",
        "zeros": bytes(100_000),
        "lengths": b"\xff" * 64,
    }


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port, or a socket of gRPC, on which a process of a run listens."""

    process: psutil.Process
    name: str
    host: str
    number: int
    path: str = ""
    """Where the socket is; a port has none."""

    def connect(self) -> socket.socket:
        """A connection to it; raises OSError."""
        if not self.path:
            return socket.create_connection((self.host, self.number), 5)
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.settimeout(5)
            opened.connect(self.path)
        except OSError:
            opened.close()
            raise
        return opened

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same as a pair of streams."""
        if self.path:
            return await asyncio.open_unix_connection(self.path)
        return await asyncio.open_connection(self.host, self.number)


def ports_of(processes: list[psutil.Process]) -> list[Port]:
    """Every port, and every socket of gRPC, on which one of the processes listens."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in process.net_connections("inet"):
                if one.status == psutil.CONN_LISTEN:
                    found.append(Port(process, process.name(), one.laddr.ip, one.laddr.port))
            paths = {one.laddr for one in process.net_connections("unix") if one.laddr.endswith(".sock")}
            found += [Port(process, process.name(), "", 0, path) for path in sorted(paths) if "control" not in path]
    return found


async def throw(port: Port, data: bytes) -> bytes:
    """Sends the bytes as far as the port takes them; returns the beginning of what comes back."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await port.open()
            try:
                writer.write(data)
                await writer.drain()
                return await reader.read(4096)
            finally:
                writer.transport.abort()
    return b""


@contextlib.contextmanager
def half_open(ports: list[Port], count: int):
    """Holds connections on which nothing, or the beginning of a request, is sent."""
    held = []
    try:
        for port in ports:
            for index in range(count):
                try:
                    one = port.connect()
                except OSError:
                    continue
                held.append(one)
                with contextlib.suppress(OSError):
                    one.sendall([b"", HTTP1[:20], HTTP2, TLS_HELLO[:7], b"\x00"][index % 5])
        yield len(held)
    finally:
        for one in held:
            one.close()
