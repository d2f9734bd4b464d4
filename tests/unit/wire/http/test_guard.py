"""Who may ask which part of the HTTP face."""

import httpx
import pytest
from fastapi import FastAPI, Request

from headrace.wire.access.roles import Role
from headrace.wire.http import HttpPolicy, RouteRoles, admin_app

BASE = "http://127.0.0.1:7001"
SAME = {"Origin": BASE}
TOKEN = "a-long-enough-token"
OTHER = "that-of-another-role"


def app(token: str = "") -> FastAPI:
    """`token`: that of a viewer; empty = no route needs one."""
    free, roles = frozenset({"GET /openapi.json"}), {"POST /{path:path}": frozenset({Role.VIEWER})}
    known = {token: frozenset({Role.VIEWER}), OTHER: frozenset({Role.TRAINER})}
    guarded = RouteRoles(free, roles, lambda given: known.get(given, frozenset())) if token else None
    policy = HttpPolicy(hosts=("orchestrator",), programs=("/v1/",), roles=guarded)
    made = admin_app("test", lambda: None, policy=policy)

    @made.post("/{path:path}")
    async def post(path: str, request: Request) -> dict[str, str]:
        return {"said": path}

    return made


def client(token: str = "") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app(token)), base_url=BASE)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_under_a_foreign_host_name_are_read_only(path: str) -> None:
    async with client() as http:
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            refused = await http.request(method, path, json={}, headers={"Host": "rebound.example"})
            assert refused.status_code == 403


async def test_other_routes_answer_only_under_the_services_own_names() -> None:
    async with client() as http:
        for host, status in (
            ("orchestrator:8080", 200),
            ("localhost", 200),
            ("rebound.example", 403),
            ("10.1.2.3", 403),
        ):
            assert (await http.get("/openapi.json", headers={"Host": host})).status_code == status


async def test_every_answer_has_a_policy_without_inline_scripts() -> None:
    async with client() as http:
        for path in ("/openapi.json", "/none"):
            headers = (await http.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "null", "", "http://\u00ff", "//", "http://127.0.0.1:99999999"]
)
async def test_a_malformed_origin_is_refused(origin: str) -> None:
    async with client() as http:
        headers = {"Origin": origin.encode("latin-1"), "Content-Type": "application/json"}
        assert (await http.post("/api/act", content=b"{}", headers=headers)).status_code == 403


async def test_a_route_with_roles_asks_for_a_token_and_names_whose() -> None:
    async with client(TOKEN) as http:
        refused = await http.post("/api/act", json={}, headers=SAME)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        other = await http.post("/api/act", json={}, headers={**SAME, "Authorization": f"Bearer {OTHER}"})
        assert other.status_code == 403 and other.json()["error"].endswith("is for viewer, not for trainer")


async def test_a_refusal_that_no_token_could_change_sends_no_challenge() -> None:
    async with client(TOKEN) as http:
        refusals = (
            {"Host": "rebound.example"}, {"Origin": "http://evil.example"}, {"Origin": ""},
            {"Content-Type": "text/plain"},
        )  # fmt: skip
        for given in (TOKEN, OTHER, "wrong-wrong-wrong-wrong"):
            for headers in refusals:
                sent = {**SAME, "Content-Type": "application/json", "Authorization": f"Bearer {given}", **headers}
                refused = await http.post("/api/act", content=b"{}", headers=sent)
                assert refused.status_code == 403 and "www-authenticate" not in refused.headers, headers
