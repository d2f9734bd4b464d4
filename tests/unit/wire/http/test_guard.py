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
async def test_probes_and_prometheus_ask_under_any_name(path: str) -> None:
    async with client() as http:
        assert (await http.get(path, headers={"Host": "10.1.2.3:8080"})).status_code == 200
        assert (await http.get(path, headers={"Host": "some-pod.svc:8080"})).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_is_open_to_any_name_is_only_read_under_it(path: str) -> None:
    async with client() as http:
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            refused = await http.request(method, path, json={}, headers={"Host": "rebound.example"})
            assert refused.status_code == 403


async def test_all_else_is_asked_for_under_this_services_names() -> None:
    async with client() as http:
        for host, status in (
            ("orchestrator:8080", 200),
            ("localhost", 200),
            ("rebound.example", 403),
            ("10.1.2.3", 403),
        ):
            assert (await http.get("/openapi.json", headers={"Host": host})).status_code == status


async def test_every_answer_of_the_face_has_a_policy_without_inline_scripts() -> None:
    async with client() as http:
        for path in ("/openapi.json", "/none"):
            headers = (await http.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"


async def test_acts_come_from_the_own_page_programs_need_tell_no_origin() -> None:
    async with client() as http:
        assert (await http.post("/api/act", json={}, headers=SAME)).status_code == 200
        assert (await http.post("/api/act", json={})).status_code == 403
        assert (await http.post("/api/act", json={}, headers={"Origin": "http://evil.example"})).status_code == 403
        assert (await http.post("/api/act", content="{}", headers=SAME)).status_code == 403
        assert (await http.post("/v1/chat/completions", json={})).status_code == 200
        assert (
            await http.post("/v1/chat/completions", json={}, headers={"Origin": "http://x.example"})
        ).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "null", "", "http://\u00ff", "//", "http://127.0.0.1:99999999"]
)
async def test_an_odd_origin_is_another_one(origin: str) -> None:
    async with client() as http:
        headers = {"Origin": origin.encode("latin-1"), "Content-Type": "application/json"}
        assert (await http.post("/api/act", content=b"{}", headers=headers)).status_code == 403


@pytest.mark.parametrize("given", [None, "Bearer wrong-wrong-wrong-wrong", TOKEN, f"bearer {TOKEN}", "Bearer \u00fc"])
async def test_where_routes_have_roles_they_need_a_token(given: str | None) -> None:
    async with client(TOKEN) as http:
        headers = [(b"origin", BASE.encode()), *([(b"authorization", given.encode())] if given else [])]
        refused = await http.post("/api/act", json={}, headers=headers)
        assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
        assert (
            await http.post("/api/act", json={}, headers={**SAME, "Authorization": f"Bearer {TOKEN}"})
        ).status_code == 200
        other = await http.post("/api/act", json={}, headers={**SAME, "Authorization": f"Bearer {OTHER}"})
        assert other.status_code == 403 and other.json()["error"].endswith("is for viewer, not for trainer")
        assert other.headers["www-authenticate"] == 'Bearer error="insufficient_scope"'
        assert (await http.get("/openapi.json")).status_code == 200
        assert (await http.get("/none")).status_code == 401
        assert (await http.get("/none", headers={"Authorization": f"Bearer {OTHER}"})).status_code in (404, 405)


async def test_a_refusal_that_no_token_would_change_does_not_ask_for_one() -> None:
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
