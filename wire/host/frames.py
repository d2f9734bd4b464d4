"""Messages between a process and its child on a socket of their own: frames of eight bytes of length and then JSON.

Numbers that are not finite pass as they are (`NaN`, `Infinity`) unless the sender refuses them.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

MAX_FRAME = 1 << 28
"""Bytes."""
CLOSED = 121
"""Exit status of a child whose code has closed the socket."""
_LENGTH = struct.Struct(">Q")


class ForeignFrameError(ConnectionError):
    """The data is not a frame, or answers no call or another one: the child's code wrote into the socket."""


def encode(
    message: Mapping[str, object], default: Callable[[object], object] | None = None, *, finite: bool = False
) -> bytes:
    """A frame; raises TypeError for what JSON cannot hold, ValueError for circles and for too large a one.

    `finite`: NaN and infinities are what JSON cannot hold, too (ValueError).
    """
    body = json.dumps(message, default=default, allow_nan=not finite).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"{len(body)} bytes of JSON: at most {MAX_FRAME} are passed")
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Waits for the next frame; None at the end of the stream. For the child, which waits."""
    head = _exactly(connection, _LENGTH.size)
    body = None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])
    return None if body is None else _decode(body)


async def read(connection: socket.socket, most: int = MAX_FRAME) -> dict[str, Any]:
    """The next frame, of at most `most` bytes.

    Raises ConnectionError at the end of the stream, ForeignFrameError for data that is not a frame.
    """
    (size,) = _LENGTH.unpack(await _read(connection, _LENGTH.size))
    if size > most:
        raise ForeignFrameError(f"what came is no frame of at most {most} bytes")
    try:
        return _decode(await _read(connection, size))
    except ValueError as error:
        raise ForeignFrameError("what came is no frame") from error


def is_quiet(connection: socket.socket) -> bool:
    """Whether the other side lives and has sent nothing unasked."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def keep_from_forks(connection: socket.socket) -> None:
    """What the child's code forks has no socket: it neither answers a second time nor hides the end of the child."""

    def close() -> None:
        with suppress(OSError):
            os.close(connection.detach())

    os.register_at_fork(after_in_child=close)


def _decode(body: bytes | bytearray) -> dict[str, object]:
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a frame holds one object")
    return message


def _exactly(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return data


async def _read(connection: socket.socket, size: int) -> bytearray:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        piece = await loop.sock_recv(connection, min(size - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the other side has ended")
        data += piece
    return data
