"""Every route of the orchestrator, as its OpenAPI lists it, asks for a role's token; a new one is refused to all."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from headrace.services.orchestrator.http.pages import FREE, ROLES
from headrace.wire.access import process
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import token_of
from headrace.wire.http.route_roles import accepted, route_name
from tests.http_apps import TOKEN, Route, make_app, routes
from tests.http_tokens import bearer

BASE = "http://127.0.0.1:8080"
JSON = {"Content-Type": "application/json", "Origin": BASE}
ENDLESS = "/api/events"
"""A stream, which does not end by itself: a request without a page's number of it is enough to be refused or not."""


@dataclass(frozen=True, slots=True)
class Served:
    """The orchestrator's app, on a loop of its own, and the folder of the tokens that it accepts."""

    app: FastAPI
    tokens: Path
    runner: asyncio.Runner

    def status(self, route: Route, headers: dict[str, str]) -> int:
        """What a route answers; 200 for a stream that begins."""
        return self.asked(route, headers)[0]

    def asked(self, route: Route, headers: dict[str, str]) -> tuple[int, str]:
        """The status that a route answers, and its challenge; empty if there is none."""

        async def asked() -> tuple[int, str]:
            heard: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
            query = b"" if route.path != ENDLESS else b"after=s1"
            sent = {**JSON, "Host": "127.0.0.1:8080", **headers}
            scope = {
                "type": "http", "http_version": "1.1", "method": route.method, "path": route.plain, "scheme": "http",
                "raw_path": route.plain.encode(), "query_string": query, "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 8080), "root_path": "",
                "headers": [(key.lower().encode(), value.encode()) for key, value in sent.items()],
            }  # fmt: skip

            async def receive() -> dict[str, object]:
                if not given:
                    given.append(True)
                    return {"type": "http.request", "body": b"", "more_body": False}
                await asyncio.Future()
                return {}

            async def send(message: dict[str, object]) -> None:
                if message["type"] == "http.response.start":
                    challenge = Headers(scope=message).get("www-authenticate", "")
                    heard.set_result((int(str(message["status"])), challenge))

            given: list[bool] = []
            answering = asyncio.create_task(self.app(scope, receive, send))  # type: ignore[arg-type]
            found = await asyncio.wait_for(heard, 60)
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            return found

        return self.runner.run(asked())

    def answer(self, method: str, path: str, headers: list[tuple[str, str]]) -> tuple[int, bytes]:
        """Status and body; `path` as it is sent."""

        async def asked() -> tuple[int, bytes]:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE) as http:
                # In a URL that begins with two slashes the first part would be the host.
                url = httpx.URL(BASE).copy_with(raw_path=path.encode())
                got = await http.send(http.build_request(method, url, headers=headers))
                return got.status_code, got.content

        return self.runner.run(asked())

    def of(self, role: Role) -> dict[str, str]:
        return bearer(token_of(self.tokens, role))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with asyncio.Runner() as runner:
        process.use(Role.ORCHESTRATOR, tmp_path / "tokens", makes=True)
        app = runner.run(make_app("orchestrator", tmp_path))
        process.forget()
        yield Served(app, tmp_path / "tokens", runner)


def meant_for(method: str, path: str) -> set[Role]:
    """What a route does says which roles may call it: votes, acts, and reads."""
    if path.startswith("/api/annotation/"):
        return {Role.ANNOTATOR, Role.OPERATOR} | ({Role.VIEWER} if method == "GET" else set())
    if path.startswith("/v1/") or method == "GET":
        return {Role.VIEWER, Role.OPERATOR}
    return {Role.OPERATOR}


def guarded(served: Served) -> list[tuple[Route, frozenset[Role]]]:
    """Each route with the roles that may call it."""
    found = [(one, ROLES.get(route_name(one.method, one.path), frozenset())) for one in routes(served.app)]
    return [(route, roles) for route, roles in found if route_name(route.method, route.path) not in FREE]


def test_the_role_table_lists_exactly_the_existing_routes(served: Served) -> None:
    named = {route_name(route.method, route.path) for route in routes(served.app)}
    assert named == FREE | ROLES.keys() and not FREE & ROLES.keys()
    assert len(ROLES) >= 20
    for name, roles in ROLES.items():
        assert roles == meant_for(*name.split(" ")), name
    assert not any(name.startswith(("GET /api/", "GET /v1/")) or not name.startswith("GET ") for name in FREE)


def test_without_a_token_and_with_garbage_no_route_answers(served: Served) -> None:
    garbage = [
        {}, bearer(""), bearer("0" * 64), {"Authorization": token_of(served.tokens, Role.OPERATOR)},
        {"Authorization": f"Basic {token_of(served.tokens, Role.OPERATOR)}"}, bearer("\u00fc"),
        bearer(f"{token_of(served.tokens, Role.OPERATOR)} "),
    ]  # fmt: skip
    asked = 0
    for route, _ in guarded(served):
        for headers in garbage:
            assert served.status(route, headers) == 401, (route, headers)
            asked += 1
    assert asked == len(ROLES) * len(garbage)


@pytest.mark.parametrize("path", ["/api/status/", "//api/status", "/api%2Fstatus", "/API/status", "/api/./status"])
def test_no_other_spelling_of_a_path_answers_without_a_token(served: Served, path: str) -> None:
    """As a server passes it on: the path is decoded, `raw_path` is as it was sent."""
    heard = [served.answer("GET", path, given) for given in ([], [("Authorization", "Bearer ")])]
    for status, body in heard:
        assert status in (401, 404) and set(json.loads(body)) == {"error"}, (path, status, body)


def test_a_request_with_two_authorization_headers_is_unauthenticated(served: Served) -> None:
    right, wrong = served.of(Role.OPERATOR)["Authorization"], bearer("0" * 64)["Authorization"]
    for given in ((right, wrong), (wrong, right), (right, right)):
        status, body = served.answer("GET", "/api/status", [("Authorization", one) for one in given])
        assert status == 401 and set(json.loads(body)) == {"error"}, given
    status, body = served.answer("GET", "/api/status", [("Authorization", right)])
    assert status == 200 and "replicas" in json.loads(body)


def test_a_route_accepts_only_tokens_of_its_roles(served: Served) -> None:
    for route, roles in guarded(served):
        for role in Role:
            status, challenge = served.asked(route, served.of(role))
            assert (status == 403) is (role not in roles) and status != 401, (route, role, status)
            assert ("insufficient_scope" in challenge) is (status == 403), (route, role, challenge)


def test_the_token_of_the_operators_file_is_an_operators(served: Served) -> None:
    for route, roles in guarded(served):
        assert Role.OPERATOR in roles and served.status(route, bearer(TOKEN)) not in (401, 403), route


def test_routes_without_run_data_need_no_token(served: Served) -> None:
    free = [one for one in routes(served.app) if route_name(one.method, one.path) in FREE]
    assert len(free) == len(FREE)
    for route in free:
        assert served.status(route, {}) not in (401, 403), route


def test_a_route_without_roles_rejects_every_caller(served: Served) -> None:
    @served.app.get("/api/added/later")
    async def later() -> dict[str, str]:
        return {"secret": "of the run"}

    (added,) = [one for one in routes(served.app) if one.path == "/api/added/later"]
    assert served.status(added, {}) == 401
    assert {served.status(added, served.of(role)) for role in Role} == {403}


def test_other_http_methods_of_a_route_reject_callers_without_a_token(served: Served) -> None:
    """Methods that a route does not have, and reads of a path that acts: nothing is learned without a token."""
    for route, _ in guarded(served):
        for method in ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"):
            other = Route(method, route.path, {})
            if method != route.method:
                assert served.status(other, {}) in (401, 404), other


async def test_without_any_tokens_nothing_is_accepted(tmp_path: Path) -> None:
    process.forget()
    (tmp_path / "a").mkdir()
    app = await make_app("orchestrator", tmp_path / "a")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as http:
        assert (await http.get("/api/status")).status_code == 401
        assert (await http.get("/api/status", headers=bearer(""))).status_code == 401
        assert (await http.get("/api/status", headers=bearer(TOKEN))).status_code == 200
    assert accepted(None)("") == accepted(None)(TOKEN) == frozenset()
    assert accepted(None, TOKEN)(TOKEN) == {Role.OPERATOR} and not accepted(None, TOKEN)("")
