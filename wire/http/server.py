"""Serves an app on a port or a unix socket, within the bounds of `connection.py`."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from headrace.wire.errors import ConfigError
from headrace.wire.http.connection import BoundedConnection
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.metrics import LoopWatch

_BACKLOG = 128


class HttpServer:
    """A running uvicorn server on a loop it does not own."""

    def __init__(self, server: uvicorn.Server, task: asyncio.Task[None], port: int) -> None:
        self.port = port
        self._server = server
        self._task = task
        self._watch = LoopWatch()

    async def stop(self) -> None:
        """Stops within two seconds."""
        self._watch.stop()
        self._server.should_exit = True
        await wait_for(self._task, 5.0, "the HTTP server to stop")


async def serve_http(app: FastAPI, host: str, port: int) -> HttpServer:
    """Serves `app`; port 0 takes a free one. Raises ConfigError if the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on a client waits for the loop; without it, it would be refused until the task below has begun.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another http_port") from error
    server = _QuietServer(_config(app))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    return HttpServer(server, task, listener.getsockname()[1])


@asynccontextmanager
async def serve_socket(app: FastAPI, path: Path) -> AsyncIterator[None]:
    """Serves `app` on a unix socket, which is there from the start; without metrics of the loop."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    server = _QuietServer(_config(app))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        # A client may keep its connection open for as long as it likes.
        server.should_exit = server.force_exit = True
        await wait_for(task, 60.0, "the endpoint to stop")
        listener.close()


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        # A line for each request that is no HTTP would fill the disk: they are counted instead.
        log_level=logging.ERROR,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals alone: the service has its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Replaces uvicorn's signal handlers by nothing."""
        yield
