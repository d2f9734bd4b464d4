"""Every route of every service, as its OpenAPI lists it: foreign pages and strangers get nothing from it."""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headrace.wire.access import process
from headrace.wire.access.roles import Role
from tests.http_apps import SERVICES, TOKEN, Route, make_app, routes
from tests.json_values import ODD_BODIES

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
}
"""Acts without a token, and why."""


@dataclass(frozen=True, slots=True)
class Served:
    """The app of one service, on a loop of its own."""

    app: FastAPI
    http: httpx.AsyncClient
    runner: asyncio.Runner

    def ask(self, method: str, path: str, **more: object) -> httpx.Response:
        # Not by `run`, which exchanges handlers of signals each time.
        asked = self.http.request(method, path, **more)  # type: ignore[arg-type]
        return self.runner.get_loop().run_until_complete(asked)


@pytest.fixture(scope="module", params=SERVICES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with asyncio.Runner() as runner:
        folder: Path = tmp_path_factory.mktemp(request.param)
        # `/drain` asks for the token of a role, which this process accepts from here on.
        process.use(Role.ROLLOUT, folder / "tokens", makes=True)
        app = runner.run(make_app(request.param, folder))
        yield Served(app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE), runner)
        process.forget()


def acts(served: Served) -> list[Route]:
    return [one for one in routes(served.app) if one.method != "GET"]


def words_of(answer: httpx.Response) -> str:
    """Why a request is refused; below `/v1/` in OpenAI's format."""
    error = answer.json()["error"]
    return error["message"] if answer.request.url.path.startswith("/v1/") else error


def test_a_rebound_name_reaches_no_route(served: Served) -> None:
    for route in routes(served.app):
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.1.2.3", ""):
            answer = served.ask(route.method, route.plain, headers={**JSON, "Host": host})
            if route.method == "GET" and route.path in OPEN:
                assert answer.status_code != 403, route
            else:
                assert answer.status_code == 403 and "ask for it as localhost" in words_of(answer), (route, host)


def test_actions_reject_cross_origin_and_form_requests(served: Served) -> None:
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
            assert words_of(answer).startswith("an act must come"), (route, headers)


def test_every_action_outside_the_allowlist_requires_a_token(served: Served) -> None:
    for route in acts(served):
        wrong = {**JSON, "Authorization": "Bearer 0000000000000000000000000000000000000000"}
        codes = {served.ask(route.method, route.plain, content="{}", headers=one).status_code for one in (JSON, wrong)}
        assert (codes == {401}) is (route.path not in TOKENLESS), (route, codes)


def test_route_allowlists_name_only_existing_routes(tmp_path: Path) -> None:
    async def listed() -> set[str]:
        found: set[str] = set()
        for service in SERVICES:
            (tmp_path / service).mkdir()
            found |= {route.path for route in routes(await make_app(service, tmp_path / service))}
        return found

    assert OPEN.keys() | TOKENLESS.keys() <= asyncio.run(listed())


ENDLESS = {"/api/events": "a stream of events, which does not end by itself; its query is read as all others are"}
"""Paths that are not asked by their description, and why."""
EXAMPLES = {"/score": 15, "/v1/chat/completions": 20}
"""Examples of a kind where not 40: conversations take up to thirty times as long to draw as a query."""
HELD = [status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]
UNREADABLE = (400, 413, 422)
"""What a body gets that its schema does not allow."""
ODD_QUERIES = ("%ED%A0%80", "%FF", "%00", "%", "../../etc/passwd", "1" * 5000)
"""What no schema describes: half a surrogate pair, no UTF-8, a zero byte, and what is longer than any number."""


def test_the_openapi_description_lists_exactly_the_routes_of_the_app(served: Served) -> None:
    own = {
        (method, route.path)  # type: ignore[attr-defined]
        for route in served.app.routes
        if getattr(route, "include_in_schema", False)
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert {(one.method.upper(), one.path) for one in operations(served.app)} == own != set()


# A thread that draws a random number while a strategy does (a library's back-off) is taken for the strategy's own use.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_every_generated_request_gets_a_response_that_openapi_documents(served: Served) -> None:
    """Status, content type and JSON. No answer is a fault, and no body is taken that its schema does not allow."""
    for operation in operations(served.app):
        if operation.path not in ENDLESS:
            ways = asked_by_its_description(served, operation)
            takes = operation.definition.raw.get("parameters") or operation.definition.raw.get("requestBody")
            assert len(ways) > 1 or not takes, f"{operation.label}: all requests end alike, {ways}"


def operations(app: FastAPI) -> list[APIOperation]:
    return [one.ok() for one in schemathesis.openapi.from_dict(app.openapi()).get_all_operations()]


def asked_by_its_description(served: Served, operation: APIOperation) -> set[int]:
    """Statuses of the answers to requests that the description allows, and to such as it does not."""
    seen: set[int] = set()
    taken: list[Case] = []
    body = body_of(served.app, operation)
    takes = body or operation.query or operation.path_parameters
    # A reference that leads nowhere takes the body from the operation, and nothing is said of it.
    assert bool(operation.body) is (body is not None), operation.label
    for mode in GenerationMode if takes else (GenerationMode.POSITIVE,):

        @settings(
            max_examples=EXAMPLES.get(operation.path, 40) if takes else 1, suppress_health_check=list(HealthCheck)
        )
        @given(operation.as_strategy(mode))
        def ask(case: Case) -> None:
            sent = requests.Request(**case.as_transport_kwargs(BASE, headers_of(case.path))).prepare()
            answer = served.ask(case.method, sent.url, content=sent.body, headers=dict(sent.headers))
            holds(case, answer)
            if body is not None and not is_allowed(body, sent.body):
                assert answer.status_code in UNREADABLE, (sent.body, answer.text)
            elif body is not None and answer.status_code not in UNREADABLE:
                taken.append(case)
            seen.add(answer.status_code)

        ask()
    if body is not None:
        fields_of_other_types_are_refused(served, taken[0], body)
    return seen


def fields_of_other_types_are_refused(served: Served, case: Case, body: jsonschema_rs.Validator) -> None:
    """Values that a lax reader would turn into the field's type; random ones are rarely so near."""
    known = case.operation.definition.raw["requestBody"]["content"]["application/json"]["schema"].get("properties", {})
    for name, value in itertools.product({*known, *case.body}, (True, 0, 1, 1.5, "1", "true", None, [], {})):
        sent = json.dumps({**case.body, name: value})
        answer = served.ask(case.method, case.formatted_path, content=sent, headers=headers_of(case.path))
        if not is_allowed(body, sent):
            assert answer.status_code in UNREADABLE, (sent, answer.text)


def body_of(app: FastAPI, operation: APIOperation) -> jsonschema_rs.Validator | None:
    """What reads the schema of its body."""
    if "requestBody" not in operation.definition.raw:
        return None
    schema = operation.definition.raw["requestBody"]["content"]["application/json"]["schema"]
    return jsonschema_rs.validator_for({**schema, "components": app.openapi().get("components", {})})


def is_allowed(body: jsonschema_rs.Validator, sent: bytes | str | None) -> bool:
    try:
        return body.is_valid(json.loads(sent or b"", parse_constant=no_constant))
    except ValueError:
        return False


def no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def headers_of(path: str) -> dict[str, str]:
    access = process.current()
    assert access is not None
    return {**JSON, "Authorization": f"Bearer {access.tokens().token if path == '/drain' else TOKEN}"}


def holds(case: Case, answer: httpx.Response) -> None:
    """The answer is no fault, and one that the description lists."""
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.headers.get("content-type") == "application/json":
        json.loads(answer.content, parse_constant=no_constant)
    case.validate_response(answer, checks=HELD)


def test_requests_outside_the_schema_get_documented_responses_too(served: Served) -> None:
    for operation in operations(served.app):
        if operation.path in ENDLESS:
            continue
        places = re.findall(r"{(\w+)}", operation.path)
        case, headers = operation.Case(path_parameters=dict.fromkeys(places, "1")), headers_of(operation.path)
        path = case.formatted_path
        if operation.method == "post":
            for body in ODD_BODIES:
                holds(case, served.ask("POST", path, content=body, headers=headers))
        for odd in ODD_QUERIES:
            for parameter in operation.query:
                holds(case, served.ask(case.method, f"{path}?{parameter.name}={odd}", content=b"{}", headers=headers))
            # An encoded slash makes it another path.
            for place in places if "/" not in odd else ():
                target = operation.path.format_map(case.path_parameters | {place: odd})
                holds(case, served.ask(case.method, target, content=b"{}", headers=headers))
