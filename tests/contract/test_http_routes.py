"""Every route of every service, as its OpenAPI lists it: foreign pages and strangers get nothing from it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings

from headrace.wire.access import process
from headrace.wire.access.roles import Role
from tests.http_apps import SERVICES, TOKEN, Route, make_app, routes
from tests.openapi import Schema, bodies, targets

BASE = "http://127.0.0.1:8080"
JSON = {"Content-Type": "application/json", "Origin": BASE}
OPEN = {
    "/healthz": "a probe asks a pod by its address: it learns that a process answers",
    "/readyz": "the same: it learns what the process waits for",
    "/metrics": "Prometheus asks by names that no setting lists: it learns numbers",
}
"""Routes that are read under any Host, and why that is bearable."""
TOKENLESS = {
    "/score": "a person's curl; it spends what a judge costs (SECURITY.md)",
    "/api/annotation/votes": "votes are no acts of an operator",
    "/api/annotation/undo": "the same",
}
"""Acts without a token, and why."""


@dataclass(frozen=True, slots=True)
class Served:
    """The app of one service, on a loop of its own."""

    app: FastAPI
    runner: asyncio.Runner

    def ask(self, method: str, path: str, **more: object) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
                return await http.request(method, path, **more)  # type: ignore[arg-type]

        return self.runner.run(asked())


@pytest.fixture(scope="module", params=SERVICES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with asyncio.Runner() as runner:
        folder: Path = tmp_path_factory.mktemp(request.param)
        # `/drain` asks for the token of a role, which this process accepts from here on.
        process.use(Role.ROLLOUT, folder / "tokens", makes=True)
        yield Served(runner.run(make_app(request.param, folder)), runner)
        process.forget()


def acts(served: Served) -> list[Route]:
    return [one for one in routes(served.app) if one.method != "GET"]


def test_a_rebound_name_reaches_no_route(served: Served) -> None:
    for route in routes(served.app):
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.1.2.3", ""):
            answer = served.ask(route.method, route.plain, headers={**JSON, "Host": host})
            if route.method == "GET" and route.path in OPEN:
                assert answer.status_code != 403, route
            else:
                assert answer.status_code == 403 and "ask for it as localhost" in answer.json()["error"], (route, host)


def test_no_act_comes_from_a_foreign_page_or_as_a_form(served: Served) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for route in acts(served):
        for headers in (
            {**JSON, "Origin": "http://evil.example"},
            {**JSON, "Origin": "null"},
            {**JSON, "Origin": "http://127.0.0.1:9999"},
            {**JSON, "Sec-Fetch-Site": "cross-site"},
            {**JSON, "Content-Type": "text/plain"},
            {**JSON, "Content-Type": "application/x-www-form-urlencoded"},
            {**JSON, "Content-Type": "multipart/form-data; boundary=x"},
            {"Origin": BASE},
        ):
            answer = served.ask(route.method, route.plain, content="{}", headers={**bearer, **headers})
            assert answer.status_code == 403, (route, headers)
            assert answer.json()["error"].startswith("an act must come"), (route, headers)


def test_no_act_needs_no_token_but_those_with_a_reason(served: Served) -> None:
    for route in acts(served):
        wrong = {**JSON, "Authorization": "Bearer 0000000000000000000000000000000000000000"}
        codes = {served.ask(route.method, route.plain, content="{}", headers=one).status_code for one in (JSON, wrong)}
        assert (codes == {401}) is (route.path not in TOKENLESS), (route, codes)


def test_nothing_is_allowed_that_is_not_there(tmp_path: Path) -> None:
    async def listed() -> set[str]:
        found: set[str] = set()
        for service in SERVICES:
            (tmp_path / service).mkdir()
            found |= {route.path for route in routes(await make_app(service, tmp_path / service))}
        return found

    assert OPEN.keys() | TOKENLESS.keys() <= asyncio.run(listed())


ENDLESS = {"/api/events": "a stream of events, which does not end by itself; its query is read as all others are"}
"""Routes that are not asked for at random, and why."""


# A thread that draws a random number while a strategy does (a library's back-off) is taken for the strategy's own use.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_no_request_that_the_description_allows_or_not_is_a_fault_of_the_service(served: Served) -> None:
    """A fault is an exception of the app, or a status of 500 and more other than 503."""
    defined = served.app.openapi().get("components", {}).get("schemas", {})
    for route in routes(served.app):
        if route.described and route.path not in ENDLESS:
            is_asked_at_random(served, route, defined)


def is_asked_at_random(served: Served, route: Route, defined: Mapping[str, Schema]) -> None:
    takes = route.described.get("parameters") or route.described.get("requestBody")

    @settings(
        max_examples=150 if takes else 1, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(targets(route.path, route.described, defined), bodies(route.described, defined))
    def ask(target: str, body: bytes) -> None:
        access = process.current()
        assert access is not None
        bearer = {"Authorization": f"Bearer {access.tokens().token if route.path == '/drain' else TOKEN}"}
        content = body if route.method != "GET" else b""
        answer = served.ask(route.method, target, content=content, headers={**JSON, **bearer})
        assert answer.status_code < 500 or answer.status_code == 503, (route, answer.text)
        if answer.headers.get("content-type") == "application/json":
            json.loads(answer.content, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        seen.add(answer.status_code)

    seen: set[int] = set()
    ask()
    assert not takes or len(seen) > 1, f"{route}: all requests end alike, {seen}"
