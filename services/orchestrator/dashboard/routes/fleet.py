"""`/api/status` and `/api/fleet`."""

from fastapi import FastAPI, Response

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.http.replies import answer
from headrace.wire.api.fleet import Fleet
from headrace.wire.api.status import RunStatus
from headrace.wire.http import read_refusals

_PUBLICATIONS = 50


def add_fleet(app: FastAPI, board: Board) -> None:
    """Adds the routes."""

    @app.get("/api/status", response_model=RunStatus, responses=read_refusals(401))
    async def get_status() -> Response:
        """The whole run in one object."""
        return answer(board.source.status())

    @app.get("/api/fleet", response_model=Fleet, responses=read_refusals(401))
    async def get_fleet() -> Response:
        """Replicas, trainer, and the last publications, newest first."""
        status, publications = board.source.status(), board.source.publications()[:_PUBLICATIONS]
        return answer(Fleet(replicas=status.replicas, trainer=status.trainer, publications=publications))
