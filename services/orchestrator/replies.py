"""What all routes share: bodies read within bounds, answers made without another look, refusals in words."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from services.orchestrator.json_text import read_strict

B = TypeVar("B", bound=BaseModel)

_MOST_BYTES = 4096


class RefusedError(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


async def refusal(_: Request, error: Exception) -> Response:
    """The answer to a `RefusedError`."""
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": error.words}, error.status)


async def busy(_: Request, error: Exception) -> Response:
    """The answer when a disk or a thread has not come to it in time."""
    return JSONResponse({"error": str(error)}, 503)


def answer(value: Any) -> Response:
    """JSON values, as they are."""
    return Response(_encoded(value), media_type="application/json")


async def on_thread(make: Callable[[], Any]) -> Response:
    """What `make` returns, as JSON; neither blocks the event loop."""
    return Response(await asyncio.to_thread(lambda: _encoded(make())), media_type="application/json")


async def read_body(request: Request, kind: type[B]) -> B:
    """A small JSON body; raises RefusedError for any other."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise RefusedError(413, f"an act has at most {_MOST_BYTES} bytes")
    try:
        return kind.model_validate(read_strict(bytes(body)))
    except ValidationError as error:
        first = error.errors()[0]
        raise RefusedError(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise RefusedError(400, f"not valid JSON: {error}") from error


def body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """For OpenAPI: `read_body` is not seen by it."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
