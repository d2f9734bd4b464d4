"""The HTTP API that every service has: `/healthz`, `/readyz`, `/metrics`, and whatever routes it adds."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from headrace.wire.errors import ConfigError
from headrace.wire.lifecycle import wait_for
from headrace.wire.metrics import LoopWatch, exposition

_BACKLOG = 128


async def _no_engine() -> Iterable[Metric]:
    return ()


def admin_app(
    service: str,
    ready: Callable[[], str | None],
    engine_metrics: Callable[[], Awaitable[Iterable[Metric]]] = _no_engine,
) -> FastAPI:
    """An app with the three routes; `ready()` returns None, or the reason why the service is not ready.

    `engine_metrics()` returns, soon, the metrics of an engine that the service drives; it does not raise.
    """
    app = FastAPI(
        title=f"headrace {service}",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        # A field with a default may be absent from an answer, too.
        separate_input_output_schemas=False,
    )

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz")
    def readyz(response: Response) -> dict[str, str]:
        """The service can do its work now."""
        reason = ready()
        if reason is None:
            return {"status": "ready"}
        response.status_code = 503
        return {"status": "not ready", "reason": reason}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        text = await asyncio.to_thread(exposition, await engine_metrics())
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return app


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
    return uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2)


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals alone: the service has its own."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Replaces uvicorn's signal handlers by nothing."""
        yield
