"""Every refusal has one shape: `{"error": "..."}`, and OpenAI's below `/v1/`."""

from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel

from headrace.wire.api.error_reply import NO_ROUTE
from headrace.wire.http import BodyLimits, HttpPolicy, act_refusals, admin_app, read_refusals

BASE = "http://127.0.0.1:7001"
JSON = {"Content-Type": "application/json"}


class Order(BaseModel):
    """A body."""

    count: int
    what: str


def app() -> FastAPI:
    made = admin_app("test", lambda: "it starts", policy=HttpPolicy(limits=BodyLimits(most_bytes=100)))

    async def order(order: Order) -> dict[str, int]:
        return {"count": order.count}

    for path in ("/order", "/v1/order"):
        made.post(path, responses=act_refusals(422))(order)

    @made.get("/list", responses=read_refusals(409, 422))
    async def listed(limit: Annotated[int, Query(le=9)] = 1) -> dict[str, int]:
        raise HTTPException(409, f"{limit} \ud800", headers={"Retry-After": "7"})

    return made


async def refused(method: str, path: str, **more: object) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app()), base_url=BASE) as http:
        return await http.request(method, path, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("under", ["", "/v1"])
@pytest.mark.parametrize(
    ("method", "path", "more", "status", "words"),
    [
        ("GET", "/none", {}, 404, f"{NO_ROUTE} '"),
        ("GET", "/order", {}, 405, "only for POST"),
        ("POST", "/order", {"json": {"count": "many"}}, 422, "body.count: Input should be a valid integer"),
        ("POST", "/order", {"json": {"count": "many"}}, 422, "(and 1 more)"),
        ("POST", "/order", {"content": b"{", "headers": JSON}, 422, "JSON decode error"),
        ("POST", "/order", {"content": b"", "headers": JSON}, 422, "Field required"),
        ("POST", "/order", {"content": b"\xff", "headers": JSON}, 400, "parsing the body"),
        ("POST", "/order", {"content": b"1" * 101, "headers": JSON}, 413, "at most 100 bytes"),
        ("POST", "/order", {"content": b"{}"}, 403, "application/json"),
        ("GET", "/order", {"headers": {"Host": "evil.example"}}, 403, "ask for it as localhost"),
    ],
)
async def test_every_refusal_has_the_shape(
    under: str, method: str, path: str, more: dict[str, object], status: int, words: str
) -> None:
    answer = await refused(method, under + path, **more)
    assert answer.status_code == status, answer.text
    error = answer.json().pop("error")
    assert answer.json().keys() == {"error"}
    if under:
        assert error.keys() == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert words in (error["message"] if under else error)
