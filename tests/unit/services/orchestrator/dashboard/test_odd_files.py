"""Files with odd lines in them: what is odd is left out, and no answer is an error or has numbers that JSON has not."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from headrace.services.orchestrator.dashboard.api import add_dashboard
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from tests.dashboard_run import BEGAN, write_run

DEEP = "[" * 100_000
HUGE = "9" * 400
METRICS = (
    '{"step": 21, "t": NaN, "loss": NaN, "reward_mean": Infinity, "kl": 1e999, "text": "x", "list": [1]}',
    '{"step": 22, "t": "x", "loss": %s, "reward_mean": 1e308}' % HUGE,  # noqa: UP031
    '{"step": 9999999999999999999999, "loss": 1}',
    '{"step": 1.5, "loss": 1}',
    DEEP,
    '{"step": 23, "loss": 0.5, "t": 1e300}',
    '{"step": 24, "loss"',
)
EVALS = (
    '{"version": 21, "accuracy": NaN, "t": NaN}',
    '{"version": 22, "accuracy": "high", "t": "now"}',
    '{"version": 9999999999999999999999, "accuracy": 1}',
    '{"version": null}',
    DEEP,
)
EVENTS = (
    '{"t": NaN, "event": "odd"}',
    '{"t": 1e999, "event": "odd"}',
    f'{{"t": {BEGAN}, "event": "kept", "value": NaN}}',
    f'{{"t": {BEGAN}, "event": "publication", "id": 3, "phases": "x", "members": 7}}',
    DEEP,
)
CONFIG = 'run = 3\nmodel = ["x"]\ndate = 1979-05-27\nendless = [inf, nan]\n'
PATHS = (
    *("/api/status", "/api/evals", "/api/fleet", "/api/queues", "/api/log", "/api/runs", "/api/rollouts"),
    *("/api/series?names=loss,reward_mean,kl,t", "/api/compare?runs=odd,other&names=loss,reward_mean"),
)


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board]:
    for name in ("odd", "other"):
        run = write_run(tmp_path / name, steps=20, rollouts=8)
        logs = (run / "metrics.jsonl", METRICS), (run / "evals.jsonl", EVALS), (*(run / "events").iterdir(), EVENTS)
        for path, lines in logs:
            with path.open("a") as file:
                file.write("".join(line + "\n" for line in lines))
        if name == "other":
            (run / "config" / "run.toml").write_text(CONFIG)
    files = Files.of(tmp_path / "odd", tmp_path / "model")
    await files.curves.look()
    await files.evals.look()
    await files.log.look()
    await files.rollouts.look()
    made = Board(files, EndedRun(files))
    looking = asyncio.create_task(made.run())
    await made.missed(None)
    yield made
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture
async def http(board: Board) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    add_dashboard(app, board)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_is_json(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    json.loads(answer.text, parse_constant=pytest.fail)
