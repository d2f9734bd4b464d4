"""The one shape of all refusals, those of the framework too, and how a route lists its own in OpenAPI."""

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.wire.api.error_reply import NO_ROUTE, ChatErrorReply, ErrorReply

CHAT = "/v1/"
"""Below it refusals have OpenAI's format."""
Refusals = dict[int | str, dict[str, object]]
"""`responses=` of a route: status -> its model and meaning."""
_LONGEST = 300
"""Characters of a refusal of the framework: part of it comes from the caller."""
_MEANING = {
    400: "The body is not valid JSON, or asks for what is not served.",
    401: "The request lacks a token that is accepted here.",
    403: "The Host, the origin, the content type or the role of the token is not accepted here.",
    404: "What the request names is not there.",
    408: "The body did not arrive in time.",
    409: "The run's state does not allow it.",
    413: "The body is too large.",
    422: "A parameter or a field of the body is missing or wrong.",
    429: "Too many requests are in progress.",
    500: "The replica failed.",
    503: "What answers it is not available now.",
    504: "The answer took too long.",
}


def read_refusals(*own: int) -> Refusals:
    """Refusals of a route that only reads: of its Host, and statuses of its own; 401 where it needs a token."""
    return _refusals(ErrorReply, {403, *own})


def act_refusals(*own: int) -> Refusals:
    """Refusals of a route with a body: those of the guard and of the body's bounds, and statuses of its own."""
    return _refusals(ErrorReply, {403, 408, 413, 503, *own})


def chat_refusals(*own: int) -> Refusals:
    """Refusals of a route below `/v1/`."""
    return _refusals(ChatErrorReply, {403, *own})


def _refusals(model: type, statuses: set[int]) -> Refusals:
    return {status: {"model": model, "description": _MEANING[status]} for status in sorted(statuses)}


def error_body(path: str, status: int, words: str) -> dict[str, object]:
    """The JSON of a refusal of a request to `path`."""
    # Half a surrogate pair, which a caller can name, cannot be sent.
    plain = words.encode(errors="replace").decode()
    if path.startswith(CHAT):
        return ChatErrorReply.of(status, plain).model_dump()
    return ErrorReply(error=plain).model_dump()


def error_response(path: str, status: int, words: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The refusal of a request to `path`."""
    return JSONResponse(error_body(path, status, words), status, headers)


def add_error_replies(app: FastAPI) -> None:
    """Gives the framework's own refusals the shape: unknown routes, methods, parameters, bodies."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, words, headers = request.url.path, str(error.detail), error.headers
    # The framework's own words are the bare names of the statuses.
    if error.status_code == 404 and words == "Not Found":
        words = f"{NO_ROUTE} {path[:_LONGEST]!r}; /openapi.json lists all"
    elif error.status_code == 405 and words == "Method Not Allowed":
        words = f"{path[:_LONGEST]!r} is not there for {request.method}, only for {(headers or {}).get('Allow', '')}"
    return error_response(path, error.status_code, words, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """Without the input, which may have 64 MB, or numbers that JSON lacks."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    words = f"{'.'.join(map(str, found[0]['loc']))}: {found[0]['msg']}"[:_LONGEST]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return error_response(request.url.path, 422, words + more)
