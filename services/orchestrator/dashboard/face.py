"""The dashboard's HTTP face: all its routes on one app."""

from fastapi import FastAPI

from services.orchestrator.dashboard.answers import RefusedError, refusal
from services.orchestrator.dashboard.board import Board
from services.orchestrator.dashboard.curve_api import add_curves
from services.orchestrator.dashboard.fleet_api import add_fleet
from services.orchestrator.dashboard.rollout_api import add_rollouts
from services.orchestrator.dashboard.static_files import add_static


def add_dashboard(app: FastAPI, board: Board) -> None:
    """Adds routes and page; `board.run()` must run beside the server."""
    app.add_exception_handler(RefusedError, refusal)
    add_fleet(app, board)
    add_curves(app, board)
    add_rollouts(app, board)
    add_static(app)
