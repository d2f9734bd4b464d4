"""What bodies of requests may cost, whatever their sender says of them."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from headrace.wire.errors import WaitTimeoutError
from headrace.wire.http.bodies import Bodies, BodyBudget, BodyLimits
from tests.waiting import until_async

LIMITS = BodyLimits(most_bytes=10, larger={"/large": 100, "/v1/": 40}, total_bytes=150, wait_s=0.05, read_s=0.05)


class Echo:
    """Says how long the body was; with `hold` it keeps its requests until they may end."""

    def __init__(self, limits: BodyLimits = LIMITS) -> None:
        self.hold: asyncio.Event | None = None
        self.entered = 0
        self.bodies = Bodies(self._answer, limits)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        size = len(await request.body())
        self.entered += 1
        if self.hold is not None:
            await self.hold.wait()
        await JSONResponse({"size": size})(scope, receive, send)

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.bodies)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("headrace_http_refused_total", {"reason": reason}) or 0.0


async def test_a_body_comes_whole_up_to_the_limit_of_its_path() -> None:
    app = Echo()
    async with app.client() as http:
        assert (await http.post("/small", content=b"x" * 10)).json() == {"size": 10}
        assert (await http.post("/v1/one/two", content=b"x" * 40)).json() == {"size": 40}
        for other in ("/larger", "/large/one", "/v1", "/v11", "/x/v1/"):
            assert (await http.post(other, content=b"x" * 11)).status_code == 413, other
        assert (await http.post("/large", content=pieces(50, 0, 50))).json() == {"size": 100}
        assert (await http.post("/small")).json() == {"size": 0}
    assert app.bodies.budget.free == 150


async def test_an_overlong_body_is_rejected_and_counted_whether_declared_or_not() -> None:
    app, before = Echo(), refused("too_large")
    async with app.client() as http:
        for content in (b"x" * 11, pieces(6, 5), pieces(11)):
            answer = await http.post("/small", content=content)
            assert answer.status_code == 413 and "10 bytes" in answer.json()["error"]
        lies = await http.post("/large", content=pieces(3, 3), headers={"Content-Length": "5"})
        assert lies.status_code == 413
        # Python converts no integer of so many digits.
        endless = await http.post("/large", content=pieces(1), headers={"Content-Length": "9" * 5000})
        assert endless.status_code == 413
    assert (app.entered, app.bodies.budget.free, refused("too_large") - before) == (0, 150, 5)


async def test_all_bodies_together_have_a_bound_until_their_requests_end() -> None:
    app, before = Echo(), refused("busy")
    app.hold = asyncio.Event()
    async with app.client() as http:
        first = asyncio.create_task(http.post("/large", content=b"x" * 100))
        await until_async(lambda: app.entered == 1)
        assert app.bodies.budget.free == 50
        second = await http.post("/large", content=b"x" * 51)
        assert (second.status_code, second.headers["retry-after"]) == (503, "1")
        # One that says not how long it is needs room for the longest.
        assert (await http.post("/large", content=pieces(1))).status_code == 503
        third = asyncio.create_task(http.post("/large", content=b"x" * 50))
        await until_async(lambda: app.entered == 2)
        app.hold.set()
        assert [(await one).json()["size"] for one in (first, third)] == [100, 50]
    assert (app.bodies.budget.free, refused("busy") - before) == (150, 2)


async def call(app: Echo, receive: Receive) -> list[Message]:
    """The messages of the answer to a request whose body `receive` hands out."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/large", "headers": []}
    await app.bodies(scope, receive, send)
    return sent


async def test_a_body_that_does_not_end_is_aborted() -> None:
    app, begun = Echo(), iter([{"type": "http.request", "body": b"x", "more_body": True}])

    async def stalls() -> Message:
        for message in begun:
            return message
        await asyncio.Event().wait()
        raise AssertionError("it never comes")

    assert (await call(app, stalls))[0]["status"] == 408
    assert (app.entered, app.bodies.budget.free) == (0, 150)


async def test_a_cancelled_waiter_lets_the_next_waiters_through() -> None:
    budget = BodyBudget(10)
    await budget.take(5, 60.0)
    large = asyncio.create_task(budget.take(9, 60.0))
    await asyncio.sleep(0)
    small = asyncio.create_task(budget.take(1, 60.0))
    await asyncio.sleep(0)
    large.cancel()
    await small
    with pytest.raises(WaitTimeoutError, match="room for the request's body"):
        await budget.take(5, 0.01)
    assert budget.free == 4
