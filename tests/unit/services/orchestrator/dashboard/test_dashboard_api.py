"""The HTTP API over a synthetic run directory."""

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headrace.services.orchestrator.dashboard.api import add_dashboard
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.exported import as_csv
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.readers.rollout_index import RolloutIndex
from headrace.services.orchestrator.dashboard.readers.texts import shared_beginning
from headrace.services.orchestrator.http.pages import page_policy
from headrace.wire.api.rollouts import RolloutRow
from headrace.wire.http import Guard
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import rollout_file
from headrace.wire.rundir.metrics import steps_of
from headrace.wire.why.measure import step_differences
from tests.dashboard_run import write_run
from tests.http_tokens import any_role

BASE = "http://127.0.0.1:7001"
SAME = {"Origin": BASE}
STEPS = 300


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    run = write_run(tmp_path / "mine", steps=STEPS, rollouts=400)
    files = Files.of(run, run / "model")
    made = Board(files, EndedRun(files))
    looking = asyncio.create_task(made.run())
    await made.missed(0)
    while files.rollouts.reading or not len(files.rollouts.facts):
        await asyncio.sleep(0.01)
    yield made
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture
async def http(board: Board) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.add_middleware(Guard, policy=page_policy("127.0.0.1", any_role))
    add_dashboard(app, board)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        yield client


async def get(http: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_status_of_an_ended_run_has_the_keys_of_a_live_one(http: httpx.AsyncClient, board: Board) -> None:
    status = await get(http, "/api/status")
    assert status["state"] == "finished" and status["step"] == STEPS
    assert status["run"]["name"] == "mine" and status["run"]["began"] == 1_790_000_000.0
    assert status["run"]["ended"] == 1_790_000_000.0 + 0.8 * (STEPS + 1)
    rows = list(steps_of(board.files.run_dir).values())
    assert status["averages"]["loss"] == pytest.approx(sum(row["loss"] for row in rows) / STEPS, rel=1e-9)
    assert status["step_seconds"] == pytest.approx(0.8) and status["trainer"]["metrics"]["loss"] == rows[-1]["loss"]
    assert status["groups"] == {"issued": 102, "trained": 100, "dropped": {"scorer_failed": 1, "stale": 1}, "open": 0}
    assert status["bottleneck"] == {"side": "none", "text": "The run is finished."}
    assert status["operator"] == {"paused": False, "stopping": False, "checkpoint_asked": False, "draining": []}


async def test_why_compares_a_step_as_the_verb_does_and_refuses_one_that_is_not_done(
    http: httpx.AsyncClient, board: Board
) -> None:
    shown = await get(http, "/api/why/290")
    run_dir = board.files.run_dir
    own = json.loads(step_differences(run_dir, steps_of(run_dir), 290).model_dump_json())
    assert [(row["measure"], row["label"]) for row in shown["rows"][:5]] == [
        (row["measure"], row["label"]) for row in own["rows"][:5]
    ]
    assert shown["rollouts"] == own["rollouts"] == 4 and shown["steps_before"] == own["steps_before"]
    refused = await http.get("/api/why/301")
    assert refused.status_code == 404 and "the run has no step 301: its steps are 1 to 300" in refused.json()["error"]


async def test_rollouts_are_narrowed_by_a_component_drawn_at_random_and_go_out_whole(http: httpx.AsyncClient) -> None:
    page = await get(http, "/api/rollouts", component="format", component_min=0.9, sort="random", limit=200)
    assert page["components"] == ["correct", "format"] and 0 < page["total"] < 100
    assert all(row["component"] >= 0.9 and row["answer"].isdigit() for row in page["rows"])
    again = await get(http, "/api/rollouts", component="format", component_min=0.9, sort="random", offset=5)
    assert again["rows"] == page["rows"][5:105] and page["rows"] != sorted(page["rows"], key=lambda row: row["step"])
    query = {"component": "format", "component_min": 0.9, "sort": "random"}
    text = (await http.get("/api/rollouts/export", params=query | {"format": "jsonl"})).text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["group_id"] for row in rows] == [row["group_id"] for row in page["rows"]]
    table = csv.DictReader((await http.get("/api/rollouts/export", params=query | {"format": "csv"})).text.splitlines())
    assert [float(row["component"]) for row in table] == [row["component"] for row in page["rows"]]
    group = await get(http, f"/api/rollouts/{rows[0]['step']}/{rows[0]['group_index']}")
    assert (group["answer"], group["columns"]["source"]) == (rows[0]["answer"], "=sums")


async def test_rollouts_of_evaluations_are_listed_by_set_and_opened(http: httpx.AsyncClient, board: Board) -> None:
    group = {"step": 4, "group_id": "mine/e000004-000000", "group_index": 0, "prompt": "1+1=", "completion": "2"}
    rows = [group | {"rollout_index": at, "set": name, "reward": 1.0} for at, name in enumerate(("easy", "hard"))]
    rollouts.write(board.files.evaluations.folder, 4, rows)
    await board.files.evaluations.look()
    page = await get(http, "/api/rollouts", of="evaluations", set="hard")
    assert (page["total"], page["sets"], page["rows"][0]["set"]) == (1, ["easy", "hard"], "hard")
    assert len((await get(http, "/api/rollouts/4/0", of="evaluations"))["rollouts"]) == 2
    assert (await get(http, "/api/rollouts"))["sets"] == []


async def test_an_export_waits_for_the_index_and_leaves_out_what_cannot_be_read(
    http: httpx.AsyncClient, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"format": "jsonl", "sort": "step"}
    whole = [json.loads(line) for line in (await http.get("/api/rollouts/export", params=query)).text.splitlines()]
    with monkeypatch.context() as patched:
        still = property(lambda index: True, lambda index, value: None)
        patched.setattr(RolloutIndex, "reading", still, raising=False)
        assert (await http.get("/api/rollouts/export", params=query)).status_code == 503
    first = whole[0]["step"]
    board.files.rollouts._texts.forget(first)
    rollout_file(board.files.rollouts.folder, first).write_bytes(b"PAR1")
    rest = [json.loads(line) for line in (await http.get("/api/rollouts/export", params=query)).text.splitlines()]
    assert rest == [row for row in whole if row["step"] != first] and len(rest) < len(whole)


def test_a_text_that_a_spreadsheet_would_run_is_quoted_and_long_beginnings_of_prompts_are_told_apart() -> None:
    row = RolloutRow.model_construct(prompt="=1+1", completion="a,b", reward=-1.0)
    assert as_csv([row], head=False) == '-1.0,\'=1+1,"a,b",\r\n'
    system = "<|system|> You solve sums and say no more than is asked. "
    assert shared_beginning([f"{system}What is 1?", f"{system}Where is 2?"]) == len(system)
    assert shared_beginning(["What is 1?", "What is 2?"]) == 0 == shared_beginning([system])


async def test_an_ended_run_accepts_no_actions(http: httpx.AsyncClient) -> None:
    assert await get(http, "/api/queues") == {"streams": [], "dead": 0}
    assert await get(http, "/api/dead") == {"total": 0, "rows": []}
    for path in ("actions/pause", "actions/stop", "actions/checkpoint", "actions/resume", "dead/1-0/requeue"):
        refused = await http.post(f"/api/{path}", json={}, headers=SAME)
        assert refused.status_code == 409 and "no process of this run is alive" in refused.json()["error"]
    scale = await http.post("/api/actions/scale", json={"service": "rollout", "count": 2}, headers=SAME)
    assert scale.status_code == 409


async def test_no_comparison_shows_the_password_of_a_broker(http: httpx.AsyncClient, tmp_path: Path) -> None:
    write_run(tmp_path / "other", steps=50, rollouts=0, seed=1, state="stopped")
    config = tmp_path / "other" / "config" / "run.toml"
    config.write_text(config.read_text() + '[broker]\nurl = "redis://me:planted@host:6379/0"\n')
    compared = await get(http, "/api/compare", runs="mine,other")
    (row,) = [row for row in compared["config"] if row["key"] == "broker.url"]
    assert row["values"][1] == "redis://host:6379/0" and "planted" not in json.dumps(compared)
