"""`/api/status` and `/api/fleet`."""

from typing import Any

from fastapi import FastAPI, Response

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.http.replies import answer


def add_fleet(app: FastAPI, board: Board) -> None:
    """Adds the routes."""

    @app.get("/api/status")
    async def get_status() -> Response:
        """The whole run in one object."""
        return answer(board.source.status())

    @app.get("/api/evals")
    async def get_evals() -> list[dict[str, Any]]:
        """All evaluations so far."""
        return board.source.evals()

    @app.get("/api/replicas")
    async def get_replicas() -> list[dict[str, Any]]:
        """Replicas with a live lease."""
        return board.source.replicas()

    @app.get("/api/fleet")
    async def get_fleet() -> Response:
        """Replicas, trainer, and the last publications, newest first."""
        source = board.source
        publications = source.publications()[:50]
        return answer({"replicas": source.replicas(), "trainer": source.trainer(), "publications": publications})
