"""`/api/queues` and `/api/dead`."""

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.routes.acts import ACT, ENDED, Act, said
from headrace.services.orchestrator.http.replies import RequestRefusedError, answer, body_schema, read_body
from headrace.services.orchestrator.issuing.dead_letters import DeadLetters
from headrace.wire.api.actions import Said
from headrace.wire.api.queues import DeadLetterPage, QueueList, QueueRow
from headrace.wire.api.status import StreamStatus
from headrace.wire.errors import TransientError
from headrace.wire.http import read_refusals


def add_queues(app: FastAPI, board: Board, dead: DeadLetters | None) -> None:
    """Adds the routes; without `dead` there are no dead letters to list or requeue."""

    @app.get("/api/queues", response_model=QueueList, responses=read_refusals(401))
    async def get_queues() -> Response:
        """The streams as of the last housekeeping pass, about once a second."""
        streams = board.source.status().streams
        rows = tuple(_row(name, stream) for name, stream in streams.items())
        return answer(QueueList(streams=rows, dead=streams["dead"].length if "dead" in streams else 0))

    @app.get("/api/dead", response_model=DeadLetterPage, responses=read_refusals(401, 422, 503))
    async def get_dead(
        offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=0, le=200)] = 50
    ) -> Response:
        """Groups that were given up, newest first."""
        if dead is None:
            return answer(DeadLetterPage(total=0, rows=()))
        try:
            return answer(await dead.page(offset, limit))
        except TransientError as error:
            raise RequestRefusedError(503, str(error)) from error

    @app.post("/api/dead/{entry}/requeue", response_model=Said, responses=ACT, openapi_extra=body_schema(Act))
    async def post_requeue(entry: str, request: Request) -> Response:
        """Issues the prompt of a dead group again, once, as a new group."""
        act = await read_body(request, Act)
        if dead is None:
            raise RequestRefusedError(409, ENDED)
        return await said(dead.requeue(entry, act.who))


def _row(name: str, stream: StreamStatus) -> QueueRow:
    return QueueRow(
        name=name,
        length=stream.length,
        pending=stream.pending,
        undelivered=stream.undelivered,
        oldest_pending_seconds=round(stream.oldest_pending_s, 3),
    )
