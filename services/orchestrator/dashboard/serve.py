"""Serves the dashboard of an ended run's directory, read-only, without a broker."""

import asyncio
from pathlib import Path

from fastapi import FastAPI

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.api import add_annotation
from headrace.services.orchestrator.dashboard.api import add_dashboard
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun, table_of
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.http.pages import page_policy
from headrace.wire.config.kept import kept_tables
from headrace.wire.http import RolesOf, admin_app, serve_http
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.telemetry.logs import get_logger

log = get_logger("dashboard")


def page_app(board: Board, annotation: AnnotationService, roles_of: RolesOf, host: str = "127.0.0.1") -> FastAPI:
    """The read-only dashboard and the annotation page, for a server that listens on `host`; `roles_of`: of a token."""
    app = admin_app("dashboard", lambda: None, policy=page_policy(host, roles_of))
    add_annotation(app, annotation)
    add_dashboard(app, board)
    return app


async def serve_dashboard(run_dir: Path, roles_of: RolesOf, *, host: str, port: int, takes_votes: bool = False) -> int:
    """Serves until SIGTERM or SIGINT, to callers with a token; returns the exit code.

    Raises ConfigError if the folder is not a run directory, or with `takes_votes` if another process holds the votes.
    """
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    model = table_of(kept_tables(run_dir), "model").get("path", ".")
    files = Files.of(run_dir, Path(str(model)))
    board = Board(files, EndedRun(files))
    annotation = AnnotationService(run_dir)
    if takes_votes:
        await annotation.ask(lambda votes: None)
    app = page_app(board, annotation, roles_of, host)
    http = await serve_http(app, host, port)
    log.info("serving", url=f"http://{host}:{http.port}/", run_dir=str(run_dir))
    looking = asyncio.create_task(board.run())
    await asyncio.wait([looking, asyncio.ensure_future(shutdown.event.wait())], return_when=asyncio.FIRST_COMPLETED)
    looking.cancel()
    board.close()
    await http.stop()
    await annotation.close()
    await asyncio.gather(looking, return_exceptions=True)
    return 0
