"""Serves the page for a run that has ended: `python -P -m services.orchestrator --annotate --config ...`."""

import asyncio
from pathlib import Path

from services.orchestrator.annotation.api import add_annotation
from services.orchestrator.annotation.desk import Desk
from services.orchestrator.guard import Guard
from wire.http import admin_app, serve_http
from wire.lifecycle import Shutdown
from wire.telemetry import get_logger

log = get_logger("annotation")


async def serve_annotation(run_dir: Path, *, host: str, port: int) -> int:
    """Until SIGTERM or SIGINT; returns the exit code. Raises ConfigError if another process has the votes."""
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    desk = Desk(run_dir)
    summary = await desk.ask(lambda book: book.summary())
    app = admin_app("annotation", lambda: None)
    app.add_middleware(Guard, bound=host)
    add_annotation(app, desk)
    http = await serve_http(app, host, port)
    log.info("serving", http_port=http.port, votes=summary["votes"])
    await shutdown.event.wait()
    await http.stop()
    await desk.close()
    return 0
