"""Messages between a pool and its children: a socket of their own, frames of eight bytes of length and then JSON.

Numbers that are not finite pass as they are (`NaN`, `Infinity`): the requester judges them.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

MAX_FRAME = 1 << 28
"""Bytes."""
CLOSED = 121
"""Exit status of a child whose function has closed the socket."""
_LENGTH = struct.Struct(">Q")


class ForeignFrameError(ConnectionError):
    """What came is no frame, or answers no job, or another one: the function wrote into the socket."""


def encode(message: Mapping[str, object], default: Callable[[object], object] | None = None) -> bytes:
    """A frame; raises TypeError for what JSON cannot hold, ValueError for circles and for too large a one."""
    body = json.dumps(message, default=default).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(f"{len(body)} bytes of JSON: at most {MAX_FRAME} are passed")
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Waits for the next frame; None at the end of the stream. For the child."""
    head = _exactly(connection, _LENGTH.size)
    body = None if head is None else _exactly(connection, _LENGTH.unpack(head)[0])
    return None if body is None else _decode(body)


async def read(connection: socket.socket) -> dict[str, Any]:
    """The next frame. For the pool.

    Raises ConnectionError at the end of the stream, ForeignFrameError for what is no frame.
    """
    (size,) = _LENGTH.unpack(await _read(connection, _LENGTH.size))
    if size > MAX_FRAME:
        raise ForeignFrameError("what came is no frame")
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
