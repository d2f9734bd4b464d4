"""`/api/status` and `/api/fleet`."""

from typing import Any

from fastapi import FastAPI, Response

from services.orchestrator.dashboard.board import Board
from services.orchestrator.replies import answer


def add_fleet(app: FastAPI, board: Board) -> None:
    """Adds the routes."""

    @app.get("/api/status")
    async def get_status() -> Response:
        """The run in one object."""
        return answer(board.source.status())

    @app.get("/api/evals")
    async def get_evals() -> list[dict[str, Any]]:
        """All evaluations so far."""
        evals: list[dict[str, Any]] = board.source.status()["eval"]
        return evals

    @app.get("/api/replicas")
    async def get_replicas() -> list[dict[str, Any]]:
        """Replicas with a live lease."""
        replicas: list[dict[str, Any]] = board.source.status()["replicas"]
        return replicas

    @app.get("/api/fleet")
    async def get_fleet() -> Response:
        """Replicas, trainer, and the last publications, newest first."""
        status = board.source.status()
        publications = board.source.publications()
        return answer({"replicas": status["replicas"], "trainer": status["trainer"], "publications": publications[:50]})
