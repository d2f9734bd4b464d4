"""The app that every service begins with: `/healthz`, `/readyz`, `/metrics`, and the guard before what it adds."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from headrace.wire.http.error_replies import Refusals, add_error_replies
from headrace.wire.http.guard import Guard, HttpPolicy
from headrace.wire.telemetry.metrics import exposition

RENDER_S = 1.0
"""Seconds for which rendered metrics are answered again: a page takes a tenth of a second of a core."""
_LOCAL = HttpPolicy()
_NOT_READY: Refusals = {503: {"model": dict[str, str], "description": "Not ready; `reason` says why."}}


async def _no_engine() -> Iterable[Metric]:
    return ()


def admin_app(
    service: str,
    ready: Callable[[], str | None],
    engine_metrics: Callable[[], Awaitable[Iterable[Metric]]] = _no_engine,
    *,
    policy: HttpPolicy = _LOCAL,
) -> FastAPI:
    """An app with the three routes; `ready()` returns None, or the reason why the service is not ready.

    `engine_metrics()` returns, soon, the metrics of an engine that the service drives; it does not raise. Routes that
    are added later are guarded too.
    """
    app = FastAPI(
        title=f"headrace {service}",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        # A field with a default may be absent from an answer, too.
        separate_input_output_schemas=False,
    )
    app.add_middleware(Guard, policy=policy)
    add_error_replies(app)

    rendered = _OncePerSecond(engine_metrics)

    # On the loop: threads are for routes that work, and a flood may hold them all.
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", responses=_NOT_READY)
    async def readyz(response: Response) -> dict[str, str]:
        """The service can do its work now."""
        reason = ready()
        if reason is None:
            return {"status": "ready"}
        response.status_code = 503
        return {"status": "not ready", "reason": reason}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(await rendered.text(), media_type=CONTENT_TYPE_LATEST)

    return app


class _OncePerSecond:
    """The metrics for all that ask: rendered when somebody asks, and not again within a second."""

    def __init__(self, engine_metrics: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
        self._engine_metrics = engine_metrics
        self._one_renders = asyncio.Lock()
        self._text, self._until = b"", 0.0

    async def text(self) -> bytes:
        """At most a second old, or as long as others' rendering took."""
        async with self._one_renders:
            if time.monotonic() >= self._until:
                self._text = await asyncio.to_thread(exposition, await self._engine_metrics())
                self._until = time.monotonic() + RENDER_S
        return self._text
