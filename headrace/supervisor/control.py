"""The supervisor's control socket: a unix socket for this user only; `headrace.wire.peers.control` is the client."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from headrace.supervisor.socket_folder import SocketFolder
from headrace.wire.errors import ConfigError, HeadraceError, WaitTimeoutError
from headrace.wire.peers.control import LINE_BYTES
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.layout import RunPaths

_READ_S = 5.0

Answer = Callable[[dict[str, object]], list[str]]
"""Executes a request and returns what it did, in lines of text; raises ConfigError for a bad request."""


class Control:
    """Serves control requests from `open` to `close`."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = SocketFolder.make(RunPaths(run_dir).control_socket, "s")
        self.path = self._folder.path / "s"
        self._server: asyncio.Server | None = None

    async def open(self, answer: Answer) -> None:
        """Starts to listen; replaces a socket that a killed supervisor left behind."""
        self.path.unlink(missing_ok=True)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                writer.write(json.dumps(await _answer(reader, answer)).encode() + b"\n")
                await wait_for(writer.drain(), _READ_S, "the asker to read the answer")
            except (WaitTimeoutError, ConnectionError):
                return  # The client has gone; its request has been executed.
            finally:
                writer.close()

        self._server = await asyncio.start_unix_server(serve, self.path, limit=LINE_BYTES)

    def close(self) -> None:
        """Stops listening and removes the socket."""
        if self._server:
            self._server.close()
        self._folder.clean()


async def _answer(reader: asyncio.StreamReader, answer: Answer) -> dict[str, object]:
    try:
        line = await wait_for(reader.readline(), _READ_S, "a request")
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ConfigError("a request is one JSON object")
        return {"ok": True, "said": answer(request)}
    except (ValueError, HeadraceError) as error:
        # Our own errors, bad JSON, or a line that is too long.
        return {"ok": False, "error": str(error)}
