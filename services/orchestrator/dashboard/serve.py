"""Serves the dashboard of a run directory, without a broker and without a run: nothing can be changed."""

import asyncio
from pathlib import Path

from services.orchestrator.annotation.api import add_annotation
from services.orchestrator.annotation.desk import Desk
from services.orchestrator.dashboard.board import Board
from services.orchestrator.dashboard.ended import EndedRun, read_config, table_of
from services.orchestrator.dashboard.face import add_dashboard
from services.orchestrator.dashboard.files import Files
from services.orchestrator.guard import Guard
from wire.http import admin_app, serve_http
from wire.lifecycle import Shutdown
from wire.telemetry import get_logger

log = get_logger("dashboard")


async def serve_dashboard(run_dir: Path, *, host: str, port: int, takes_votes: bool = False) -> int:
    """Until SIGTERM or SIGINT; returns the exit code.

    Raises ConfigError if the folder is no run directory, or, if it `takes_votes`, if another process has them.
    """
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    model = table_of(read_config(run_dir), "model").get("path", ".")
    files = Files.of(run_dir, Path(str(model)))
    board = Board(files, EndedRun(files))
    desk = Desk(run_dir)
    if takes_votes:
        await desk.ask(lambda book: book.summary())
    app = admin_app("dashboard", lambda: None)
    app.add_middleware(Guard, bound=host)
    add_annotation(app, desk)
    add_dashboard(app, board)
    http = await serve_http(app, host, port)
    log.info("serving", url=f"http://{host}:{http.port}/", run_dir=str(run_dir))
    looking = asyncio.create_task(board.run())
    await asyncio.wait([looking, asyncio.ensure_future(shutdown.event.wait())], return_when=asyncio.FIRST_COMPLETED)
    looking.cancel()
    board.close()
    await http.stop()
    await desk.close()
    await asyncio.gather(looking, return_exceptions=True)
    return 0
