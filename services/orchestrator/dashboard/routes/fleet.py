"""`/api/status`, `/api/evals`, `/api/replicas` and `/api/fleet`."""

from fastapi import FastAPI, Response

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.http.replies import answer
from headrace.wire.api.fleet import Fleet
from headrace.wire.api.status import EvaluationRow, ReplicaStatus, RunStatus
from headrace.wire.http import read_refusals

_PUBLICATIONS = 50


def add_fleet(app: FastAPI, board: Board) -> None:
    """Adds the routes."""

    @app.get("/api/status", response_model=RunStatus, responses=read_refusals(401))
    async def get_status() -> Response:
        """The whole run in one object."""
        return answer(board.source.status())

    @app.get("/api/evals", response_model=list[EvaluationRow], responses=read_refusals(401))
    async def get_evals() -> Response:
        """All evaluations so far."""
        return answer(board.source.status().eval)

    @app.get("/api/replicas", response_model=list[ReplicaStatus], responses=read_refusals(401))
    async def get_replicas() -> Response:
        """Replicas with a live lease."""
        return answer(board.source.status().replicas)

    @app.get("/api/fleet", response_model=Fleet, responses=read_refusals(401))
    async def get_fleet() -> Response:
        """Replicas, trainer, and the last publications, newest first."""
        status, publications = board.source.status(), board.source.publications()[:_PUBLICATIONS]
        return answer(Fleet(replicas=status.replicas, trainer=status.trainer, publications=publications))
