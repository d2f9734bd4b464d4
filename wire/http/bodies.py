"""Bounds what bodies of requests may cost: the size of each, the sum of those held at a time, the time to send one.

A body is read whole before the app sees the request: routes get it at once or not at all. It counts against the sum
until the response is complete, because what a route parses from it lives as long.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.wire.errors import WaitTimeoutError
from headrace.wire.http.error_replies import error_response
from headrace.wire.http.refusals import note_refusal
from headrace.wire.process.lifecycle import wait_for

READS = ("GET", "HEAD")
"""Methods whose bodies no route reads; the server holds no more than 64 KiB of them."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large bodies may be, in bytes, and how long they may take."""

    most_bytes: int = 64 << 10
    """Longest body of one request."""
    larger: Mapping[str, int] = field(default_factory=dict)
    """A path, or with a slash at its end all paths below it -> longest body there."""
    total_bytes: int = 64 << 20
    """Sum over all requests in progress."""
    wait_s: float = 30.0
    """Seconds for which a request waits until others have made room; then 503."""
    read_s: float = 60.0
    """Seconds for a body to arrive whole; then 408."""

    def __post_init__(self) -> None:
        """Raises ValueError for a body that would never find room."""
        if max(self.most_bytes, *self.larger.values(), 0) > self.total_bytes:
            raise ValueError(f"total_bytes = {self.total_bytes} holds no body of the largest size")

    def most(self, path: str) -> int:
        """Longest body of a request to `path`."""
        for place, most in self.larger.items():
            if path == place or (place.endswith("/") and path.startswith(place)):
                return most
        return self.most_bytes


SMALL = BodyLimits()
"""For routes that take a few words."""


class BodyBudget:
    """A number of bytes that requests share; those that wait for theirs get them in turn. For one event loop."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """Bytes that nothing holds."""
        return self._free

    async def take(self, size: int, wait_s: float) -> None:
        """Takes `size` bytes. Raises WaitTimeoutError."""
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await wait_for(turn, wait_s, "room for the request's body")
        except BaseException:
            if turn.done() and not turn.cancelled():  # It got them in the very moment in which it gave up.
                self.give(size)
            else:
                self._waiting.remove((size, turn))
                self._serve()
            raise

    def give(self, size: int) -> None:
        """Gives bytes back."""
        self._free += size
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if turn.done() or size > self._free:  # One that is done was cancelled: `take` removes it, and calls again.
                return
            self._waiting.popleft()
            self._free -= size
            turn.set_result(None)


class BodyRefusedError(Exception):
    """A body that is not taken: HTTP status, the reason as a label of the metric, and in words."""

    def __init__(self, status: int, reason: str, words: str) -> None:
        super().__init__(words)
        self.status, self.reason, self.words = status, reason, words


class Bodies:
    """ASGI middleware that reads the body of each request within its bounds."""

    def __init__(
        self,
        app: ASGIApp,
        limits: BodyLimits,
        error_of: Callable[[int, str], dict[str, object]] | None = None,
    ) -> None:
        """`error_of(status, words)`: the JSON of a refusal, if it is not the usual one of a service."""
        self._app, self._limits, self._error_of = app, limits, error_of
        self.budget = BodyBudget(limits.total_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards the request with its whole body, or refuses it: 408, 413, 503."""
        if scope["type"] != "http" or scope["method"] in READS:
            await self._app(scope, receive, send)
            return
        held = 0
        try:
            size = self._size(scope)
            held = await self._take(size)
            body = await self._read(receive, size)
            if body is None:
                return
            self.budget.give(held - len(body))
            held = len(body)
            await self._app(scope, _replay(body, receive), send)
        except BodyRefusedError as error:
            note_refusal(error.reason, error.words)
            headers = {"Retry-After": str(max(1, round(self._limits.wait_s)))} if error.status == 503 else None
            await self._response(scope["path"], error, headers)(scope, receive, send)
        finally:
            self.budget.give(held)

    def _response(self, path: str, error: BodyRefusedError, headers: dict[str, str] | None) -> JSONResponse:
        if self._error_of is None:
            return error_response(path, error.status, error.words, headers)
        return JSONResponse(self._error_of(error.status, error.words), error.status, headers)

    def _size(self, scope: Scope) -> int:
        """Bytes that the body may have: as many as it declares, else as the path takes."""
        most = self._limits.most(scope["path"])
        declared = Headers(scope=scope).get("content-length", "")
        if not declared.isdecimal():
            return most
        # Sizes of thousands of digits are not converted.
        if len(declared) > 20 or int(declared) > most:
            raise BodyRefusedError(413, "too_large", f"a body here has at most {most} bytes")
        return int(declared)

    async def _take(self, size: int) -> int:
        try:
            await self.budget.take(size, self._limits.wait_s)
        except WaitTimeoutError as error:
            words = f"too many large bodies at a time: {error}; try again later"
            raise BodyRefusedError(503, "busy", words) from error
        return size

    async def _read(self, receive: Receive, size: int) -> bytes | None:
        """The whole body; None if the client leaves."""
        try:
            return await wait_for(_whole(receive, size), self._limits.read_s, "the request's body")
        except WaitTimeoutError as error:
            raise BodyRefusedError(408, "slow", str(error)) from error


async def _whole(receive: Receive, size: int) -> bytes | None:
    pieces = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces += message.get("body", b"")
        if len(pieces) > size:
            raise BodyRefusedError(413, "too_large", f"the body has more than {size} bytes")
        if not message.get("more_body", False):
            return bytes(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hands out the body once, and then what follows it: that the client has left."""
    rest = [body]

    async def replayed() -> Message:
        return {"type": "http.request", "body": rest.pop(), "more_body": False} if rest else await receive()

    return replayed
