"""Who may ask the annotators' API, for what, and what it says to those who may not."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.api import add_annotation
from headrace.services.orchestrator.http.pages import page_policy
from headrace.wire.http import admin_app
from tests.annotation import write_run
from tests.http_tokens import any_role

BASE = "http://127.0.0.1:7001"
SAME = {"Origin": BASE}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    service = AnnotationService(write_run(tmp_path))
    app = admin_app("annotation", lambda: None, policy=page_policy("127.0.0.1", any_role, hosts=("judge.example",)))
    add_annotation(app, service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        yield client
    await service.close()


async def vote(client: httpx.AsyncClient, name: str, choice: str, pair: str = "") -> httpx.Response:
    pair = pair or (await client.get("/api/annotation/next", params={"annotator": name})).json()["pair"]["id"]
    body = {"annotator": name, "pair": pair, "choice": choice}
    return await client.post("/api/annotation/votes", json=body, headers=SAME)


async def test_a_vote_can_be_undone_and_the_last_one_ranks_the_pair(client: httpx.AsyncClient, tmp_path: Path) -> None:
    first = (await vote(client, "ann", "left")).json()
    assert first["judged"] == 1
    undone = (await client.post(
        "/api/annotation/undo", json={"annotator": "ann", "pair": first["undo"]}, headers=SAME
    )).json()  # fmt: skip
    assert undone["judged"] == 0 and undone["pair"]["id"] == first["undo"]
    assert (await vote(client, "ann", "right")).status_code == 200
    ranked = (tmp_path / "annotations" / "pairs.jsonl").read_text().splitlines()
    assert [json.loads(line)["chosen"] for line in ranked] == [undone["pair"]["right"]["text"]]


async def test_a_vote_is_idempotent_and_a_different_one_a_conflict(client: httpx.AsyncClient) -> None:
    pair = (await vote(client, "ann", "left")).json()["undo"]
    assert (await vote(client, "ann", "left", pair)).json()["judged"] == 1
    refused = await vote(client, "ann", "tie", pair)
    assert refused.status_code == 409 and "undo that first" in refused.json()["error"]
    assert (await vote(client, "ann", "left", "1-0000000000000000")).status_code == 404


@pytest.mark.parametrize("name", ["", " ", "<script>", "a" * 41, "a\x00b", "-x", "a/b"])
async def test_names_are_checked(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get("/api/annotation/next", params={"annotator": name})).status_code == 422
