"""The page `/annotate` and its API."""

import re
import unicodedata
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.ballots import Choice
from headrace.services.orchestrator.annotation.votes import OtherVoteError, UnknownPairError
from headrace.services.orchestrator.http.replies import RequestRefusedError, body_schema, read_body, refusal
from headrace.wire.api.annotation import AnnotationSummary, AnnotationTurn, VoteRecorded, VoteWithdrawn
from headrace.wire.errors import HeadraceError
from headrace.wire.http import act_refusals, read_refusals
from headrace.wire.telemetry.logs import get_logger

log = get_logger("annotation")

A = TypeVar("A", AnnotationTurn, AnnotationSummary, VoteRecorded, VoteWithdrawn)
_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_VOTE = act_refusals(400, 401, 404, 409, 422)
_NAME = re.compile(r"\w[\w .@'-]{0,39}")


def check_name(name: str) -> str:
    """Normalizes an annotator's name; raises ValueError if it is invalid."""
    plain = " ".join(unicodedata.normalize("NFC", name).split())
    if not _NAME.fullmatch(plain):
        raise ValueError("a name has 1 to 40 letters, digits, spaces and .@'-_, and begins with a letter or digit")
    return plain


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    annotator: Annotated[str, AfterValidator(check_name)]
    pair: str


class Vote(_Body):
    """`POST /api/annotation/votes`."""

    choice: Choice


class Undo(_Body):
    """`POST /api/annotation/undo`."""


def add_annotation(app: FastAPI, service: AnnotationService) -> None:
    """Adds the page and its API to an app that has a guard."""
    app.add_exception_handler(RequestRefusedError, refusal)
    _add_page(app)

    @app.get("/api/annotation/next", responses=read_refusals(401, 404, 409, 422, 503))
    async def get_next(annotator: str) -> AnnotationTurn:
        """The next pair for the annotator to judge (null = none left), and their progress."""
        name = _name(annotator)
        return await _answered(service.ask(lambda votes: votes.turn(name)))

    @app.get("/api/annotation/summary", responses=read_refusals(401, 503))
    async def get_summary() -> AnnotationSummary:
        """Counts, annotators and their agreement."""
        return await _answered(service.ask(lambda votes: votes.summary()))

    @app.post("/api/annotation/votes", responses=_VOTE, openapi_extra=body_schema(Vote))
    async def post_vote(request: Request) -> VoteRecorded:
        """Records a vote; idempotent. Returns the next pair."""
        vote = await read_body(request, Vote)
        return await _answered(service.change(lambda votes: votes.vote(vote.annotator, vote.pair, vote.choice)))

    @app.post("/api/annotation/undo", responses=_VOTE, openapi_extra=body_schema(Undo))
    async def post_undo(request: Request) -> VoteWithdrawn:
        """Withdraws the annotator's vote on a pair and returns that pair as the next one."""
        undo = await read_body(request, Undo)
        return await _answered(service.change(lambda votes: votes.undo(undo.annotator, undo.pair)))


def _add_page(app: FastAPI) -> None:
    files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _STATIC.iterdir() if path.is_file()}

    @app.get("/annotate", include_in_schema=False)
    async def get_page() -> Response:
        """The page."""
        return Response(files["annotate.html"][0], media_type="text/html")

    @app.get("/annotate/{name}", include_in_schema=False)
    async def get_file(name: str) -> Response:
        """A static file of the page."""
        if name not in files:
            raise RequestRefusedError(404, f"the page has no file {name!r}")
        return Response(files[name][0], media_type=files[name][1])


async def _answered(asked: Awaitable[A]) -> A:
    try:
        return await asked
    except UnknownPairError as error:
        raise RequestRefusedError(404, str(error)) from error
    except OtherVoteError as error:
        raise RequestRefusedError(409, str(error)) from error
    except (HeadraceError, OSError) as error:
        log.warning("annotation_failed", error=str(error))
        raise RequestRefusedError(503, str(error)) from error


def _name(annotator: str) -> str:
    try:
        return check_name(annotator)
    except ValueError as error:
        raise RequestRefusedError(422, str(error)) from error
