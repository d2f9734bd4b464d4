"""`/api/queues` and `/api/dead`."""

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from services.orchestrator.dashboard.act_api import ENDED, Act, said
from services.orchestrator.dashboard.board import Board
from services.orchestrator.dead_letters import DeadLetters
from services.orchestrator.replies import RefusedError, answer, body_schema, read_body
from wire.errors import TransientError


def add_queues(app: FastAPI, board: Board, dead: DeadLetters | None) -> None:
    """Adds the routes; without a broker there is nothing in any queue."""

    @app.get("/api/queues")
    async def get_queues() -> Response:
        """The streams as the last look, a second ago at most, found them."""
        streams = board.source.streams()
        return answer(
            {
                "streams": [
                    {
                        "name": name,
                        "length": stats["length"],
                        "pending": stats["pending"],
                        "undelivered": stats["undelivered"],
                        "oldest_pending_seconds": round(float(stats["oldest_pending_s"]), 3),
                    }
                    for name, stats in streams.items()
                ],
                "dead": streams.get("dead", {}).get("length", 0),
            }
        )

    @app.get("/api/dead")
    async def get_dead(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=0, le=200)] = 50
    ) -> Response:
        """Groups that were given up, newest first."""
        if dead is None:
            return answer({"total": 0, "rows": []})
        try:
            return answer(await dead.page(offset, limit))
        except TransientError as error:
            raise RefusedError(503, str(error)) from error

    @app.post("/api/dead/{entry}/requeue", openapi_extra=body_schema(Act))
    async def post_requeue(entry: str, request: Request) -> Response:
        """The prompt of a buried group is issued again, once, as a new group."""
        act = await read_body(request, Act)
        if dead is None:
            raise RefusedError(409, ENDED)
        return await said(dead.requeue(entry, act.who))
