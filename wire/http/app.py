"""The app that every service begins with: `/healthz`, `/readyz`, `/metrics`, and the guard before what it adds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from headrace.wire.http.error_replies import Refusals, add_error_replies
from headrace.wire.http.guard import Guard, HttpPolicy
from headrace.wire.telemetry.metrics import exposition

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

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", responses=_NOT_READY)
    def readyz(response: Response) -> dict[str, str]:
        """The service can do its work now."""
        reason = ready()
        if reason is None:
            return {"status": "ready"}
        response.status_code = 503
        return {"status": "not ready", "reason": reason}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus metrics."""
        text = await asyncio.to_thread(exposition, await engine_metrics())
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return app
