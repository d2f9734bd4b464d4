"""How the dashboard's routes answer: JSON made on a thread, refusals as `{"error": words}`."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse


class RefusedError(Exception):
    """A request that cannot be answered."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


async def refusal(_: Request, error: Exception) -> Response:
    """The answer to a `RefusedError`."""
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": error.words}, error.status)


async def on_thread(make: Callable[[], Any]) -> Response:
    """What `make` returns, as JSON; neither blocks the event loop."""
    return Response(await asyncio.to_thread(lambda: _bytes(make())), media_type="application/json")


def answer(value: Any) -> Response:
    """JSON without another look at each value."""
    return Response(_bytes(value), media_type="application/json")


def _bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
