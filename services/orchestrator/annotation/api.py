"""The API of the page `/annotate`, which is part of the dashboard."""

from collections.abc import Awaitable

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.ballots import Choice
from headrace.services.orchestrator.annotation.votes import OtherVoteError, UnknownPairError
from headrace.services.orchestrator.http.replies import RequestRefusedError, Who, body_schema, read_body, refusal
from headrace.wire.api.annotation import AnnotationTurn
from headrace.wire.errors import HeadraceError
from headrace.wire.http import act_refusals, read_refusals
from headrace.wire.telemetry.logs import get_logger

log = get_logger("annotation")

_VOTE = act_refusals(400, 401, 404, 409, 422)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    annotator: Who
    pair: str


class Vote(_Body):
    """`POST /api/annotation/votes`."""

    choice: Choice


class Undo(_Body):
    """`POST /api/annotation/undo`."""


def add_annotation(app: FastAPI, service: AnnotationService) -> None:
    """Adds the routes to an app that has a guard."""
    app.add_exception_handler(RequestRefusedError, refusal)

    @app.get("/api/annotation/next", responses=read_refusals(401, 404, 409, 422, 503))
    async def get_next(annotator: Who) -> AnnotationTurn:
        """The next pair for the annotator to judge (null = none left), and their progress."""
        return await _answered(service.ask(lambda votes: votes.turn(annotator)))

    @app.post("/api/annotation/votes", responses=_VOTE, openapi_extra=body_schema(Vote))
    async def post_vote(request: Request) -> AnnotationTurn:
        """Records a vote; idempotent. Answers with the next pair."""
        vote = await read_body(request, Vote)
        return await _answered(service.ask(lambda votes: votes.vote(vote.annotator, vote.pair, vote.choice)))

    @app.post("/api/annotation/undo", responses=_VOTE, openapi_extra=body_schema(Undo))
    async def post_undo(request: Request) -> AnnotationTurn:
        """Withdraws the annotator's vote on a pair and answers with that pair as the next one."""
        undo = await read_body(request, Undo)
        return await _answered(service.ask(lambda votes: votes.undo(undo.annotator, undo.pair)))


async def _answered(asked: Awaitable[AnnotationTurn]) -> AnnotationTurn:
    try:
        return await asked
    except UnknownPairError as error:
        raise RequestRefusedError(404, str(error)) from error
    except OtherVoteError as error:
        raise RequestRefusedError(409, str(error)) from error
    except (HeadraceError, OSError) as error:
        log.warning("annotation_failed", error=str(error))
        raise RequestRefusedError(503, str(error)) from error
