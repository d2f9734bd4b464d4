"""Every answer of the dashboard's API is what its route declares, no field more and none less."""

from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.serve import page_app
from tests.dashboard_run import write_run
from tests.http_tokens import any_role

PATHS = {
    "/api/annotation/next": "?annotator=ann",
    "/api/status": "",
    "/api/evals": "",
    "/api/replicas": "",
    "/api/fleet": "",
    "/api/series": "?names=loss,reward_mean",
    "/api/log": "",
    "/api/rollouts": "",
    "/api/rollouts/{step}/{group_index}": "",
    "/api/queues": "",
    "/api/dead": "",
    "/api/runs": "",
    "/api/compare": "?runs=mine",
}
STREAMS = {"/api/rollouts/export", "/api/events"}


@pytest.fixture
async def board(tmp_path: Path) -> Board:
    run = write_run(tmp_path / "mine", steps=20, rollouts=40)
    files = Files.of(run, run / "model")
    for reader in (files.curves, files.evals, files.log, files.rollouts):
        await reader.look()
    return Board(files, EndedRun(files))


async def test_each_answer_is_read_strictly_by_the_model_of_its_route(board: Board) -> None:
    service = AnnotationService(board.files.run_dir)
    app = page_app(board, service, any_role)
    routes = {
        route.path: route.response_model
        for route in app.routes
        if isinstance(route, APIRoute) and route.path.startswith("/api") and "GET" in route.methods
    }
    assert routes.keys() - STREAMS == PATHS.keys()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
        row = (await http.get("/api/rollouts?limit=1")).json()["rows"][0]
        for path, query in PATHS.items():
            answer = await http.get(path.format(**row) + query)
            assert answer.status_code == 200, answer.text
            adapter = TypeAdapter(routes[path])
            assert adapter.dump_python(adapter.validate_json(answer.content), mode="json", exclude_unset=True) == (
                answer.json()
            ), path
    await service.close()
