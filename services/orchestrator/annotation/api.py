"""The page `/annotate` and its API."""

import re
import unicodedata
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict

from services.orchestrator.annotation.ballots import Choice
from services.orchestrator.annotation.book import OtherVoteError, UnknownPairError
from services.orchestrator.annotation.desk import Desk
from services.orchestrator.replies import RefusedError, body_schema, read_body, refusal
from wire.errors import HeadraceError
from wire.telemetry import get_logger

log = get_logger("annotation")

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAME = re.compile(r"\w[\w .@'-]{0,39}")


def check_name(name: str) -> str:
    """An annotator's name as it is kept; raises ValueError for one that is none."""
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


def add_annotation(app: FastAPI, desk: Desk) -> None:
    """Adds page and API to an app that has a guard."""
    app.add_exception_handler(RefusedError, refusal)
    _add_page(app)

    @app.get("/api/annotation/next")
    async def get_next(annotator: str) -> dict[str, Any]:
        """The pair that the annotator is to judge next (null = none waits), and how far they are."""
        name = _name(annotator)
        return await _answered(desk.ask(lambda book: book.turn(name)))

    @app.get("/api/annotation/summary")
    async def get_summary() -> dict[str, Any]:
        """Counts, annotators, and how far they agree."""
        return await _answered(desk.ask(lambda book: book.summary()))

    @app.post("/api/annotation/votes", openapi_extra=body_schema(Vote))
    async def post_vote(request: Request) -> dict[str, Any]:
        """Keeps a vote; told again, it changes nothing. Answers with the next turn."""
        vote = await read_body(request, Vote)
        return await _answered(desk.change(lambda book: book.vote(vote.annotator, vote.pair, vote.choice)))

    @app.post("/api/annotation/undo", openapi_extra=body_schema(Undo))
    async def post_undo(request: Request) -> dict[str, Any]:
        """Takes the annotator's vote on a pair back and asks it again."""
        undo = await read_body(request, Undo)
        return await _answered(desk.change(lambda book: book.undo(undo.annotator, undo.pair)))


def _add_page(app: FastAPI) -> None:
    files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _STATIC.iterdir() if path.is_file()}

    @app.get("/annotate", include_in_schema=False)
    async def get_page() -> Response:
        """The page."""
        return Response(files["annotate.html"][0], media_type="text/html")

    @app.get("/annotate/{name}", include_in_schema=False)
    async def get_file(name: str) -> Response:
        """What the page is made of."""
        if name not in files:
            raise RefusedError(404, f"the page has no file {name!r}")
        return Response(files[name][0], media_type=files[name][1])


async def _answered(asked: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return await asked
    except UnknownPairError as error:
        raise RefusedError(404, str(error)) from error
    except OtherVoteError as error:
        raise RefusedError(409, str(error)) from error
    except (HeadraceError, OSError) as error:
        log.warning("annotation_failed", error=str(error))
        raise RefusedError(503, str(error)) from error


def _name(annotator: str) -> str:
    try:
        return check_name(annotator)
    except ValueError as error:
        raise RefusedError(422, str(error)) from error
