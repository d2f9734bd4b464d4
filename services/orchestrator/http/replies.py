"""Helpers of all routes: size-limited bodies, answers encoded beside the event loop, and refusals."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, Field, JsonValue, ValidationError

from headrace.wire.api.model import encode
from headrace.wire.config.json_text import is_text, read_strict
from headrace.wire.config.problems import first_problem
from headrace.wire.http.error_replies import error_response

B = TypeVar("B", bound=BaseModel)

_MOST_BYTES = 4096
# JSON schema reads `\w` as ASCII; the names of people are in all scripts.
_LETTERS = r"\p{L}\p{M}\p{N}_"
Who = Annotated[str, Field(pattern=rf"^[{_LETTERS}][{_LETTERS} .@'-]{{0,39}}$")]
"""Name of a person."""


class RequestRefusedError(Exception):
    """A refused request: HTTP status and reason."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


async def refusal(request: Request, error: Exception) -> Response:
    """Exception handler: the response to a `RequestRefusedError`."""
    assert isinstance(error, RequestRefusedError)
    return error_response(request.url.path, error.status, error.words)


async def busy(request: Request, error: Exception) -> Response:
    """Exception handler: 503 when the disk or a thread was not done in time."""
    return error_response(request.url.path, 503, str(error))


def answer(value: BaseModel | Sequence[BaseModel]) -> Response:
    """Responds with a model of the API, or a list of them; fields that were not set are absent."""
    return Response(encode(value), media_type="application/json")


async def on_thread(make: Callable[[], BaseModel | Sequence[BaseModel]]) -> Response:
    """Responds with the result of `make`; runs and encodes it on a thread."""
    return Response(await asyncio.to_thread(lambda: encode(make())), media_type="application/json")


async def read_body(request: Request, kind: type[B]) -> B:
    """Reads and validates a small JSON body; raises RequestRefusedError if it is too large or invalid."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise RequestRefusedError(413, f"an act has at most {_MOST_BYTES} bytes")
    try:
        found = read_strict(bytes(body))
        if not is_text(bytes(body)):
            raise ValueError("half a surrogate pair is no character")
        return kind.model_validate(found)
    except ValidationError as error:
        raise RequestRefusedError(422, first_problem(error)) from error
    except ValueError as error:
        raise RequestRefusedError(400, f"not valid JSON: {error}") from error


def body_schema(kind: type[BaseModel]) -> dict[str, JsonValue]:
    """OpenAPI schema of a body: FastAPI does not see what `read_body` reads."""
    schema = kind.model_json_schema()
    content: JsonValue = {"application/json": {"schema": _inlined(schema, schema.pop("$defs", {}))}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: JsonValue, definitions: Mapping[str, JsonValue]) -> JsonValue:
    """The schema without references: they are relative to a document that the OpenAPI description is not."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    place = schema.get("$ref")
    if isinstance(place, str):
        return _inlined(definitions[place.removeprefix("#/$defs/")], definitions)
    return {key: _inlined(one, definitions) for key, one in schema.items()}
