"""The child's side: `python -P -m headrace.services.reward.workers.child FD PARENT`. Its first frame is its order.

It answers jobs one at a time. What the function prints goes where stderr goes: the frames have a socket of their own.
"""

import importlib
import os
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.wire.errors import ConfigError
from headrace.wire.host.frames import CLOSED, encode, keep_from_forks, receive
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.process.users_code import bug_of

Function = Callable[[dict[str, object]], dict[str, object]]
_OUR_CODE = Path(__file__).parents[1]


def main(fd: int, parent: int) -> None:
    """Loads the function and answers jobs until the pool closes the socket."""
    die_with_parent()
    if os.getppid() != parent:
        return
    connection = socket.socket(fileno=fd)
    keep_from_forks(connection)
    order = receive(connection)
    if order is None:
        return
    try:
        function = load(order)
    except (Exception, SystemExit) as error:
        connection.sendall(encode({"error": _words(error)}))
        return
    connection.sendall(encode({"ready": True}))
    serve(connection, function, order["memory_mb"])


def load(order: dict[str, Any]) -> Function:
    """Imports the factory and calls it; `main` sends what it raises to the pool."""
    if order["path"] is not None:
        sys.path.append(order["path"])
    module, _, name = order["target"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    function: Function = factory(**order["arguments"])
    return function


def serve(connection: socket.socket, function: Function, memory_mb: int | None) -> None:
    """Answers jobs until the pool closes the socket."""
    if memory_mb is not None:
        most = _address_space() + (memory_mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        while (asked := receive(connection)) is not None:
            connection.sendall(answer(function, asked))
    except OSError:
        os._exit(CLOSED)  # Other descriptors may be gone with the socket: nothing can be tidied up.


def _address_space() -> int:
    """Bytes that are mapped already: libraries with threads map gigabytes on large machines. 0 = not known."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return 0


def answer(function: Function, asked: Mapping[str, Any]) -> bytes:
    """The frame with the result, or with what the function raised; it has the key of what was asked."""
    key = asked["key"]
    try:
        result = function(asked["job"])
        if not isinstance(result, dict):
            raise TypeError(f"the function returned {type(result).__name__}, not a dict")
        return encode({"key": key, "result": result}, _plain)
    except BaseException as error:  # The user's code may raise KeyboardInterrupt, or what derives from none other.
        bug = bug_of(error, _OUR_CODE)
        problem = {"key": key, "error": type(error).__name__, "message": _message(error)}
        return encode({**problem, "bug": asdict(bug)} if bug else problem)


def _plain(value: Any) -> object:
    """NumPy's and torch's single numbers as Python's."""
    with suppress(AttributeError, ValueError, RuntimeError):
        found = value.item()
        if isinstance(found, bool | int | float | str):
            return found
    raise TypeError(f"the result holds a {type(value).__module__}.{type(value).__name__}, which JSON cannot")


def _message(error: BaseException) -> str:
    return str(error.args[0]) if error.args else ""


def _words(error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return _message(error)
    return f"{type(error).__name__}: {_message(error)}".removesuffix(": ")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
