"""The HTTP app of each service as it serves it, in this process: what its OpenAPI lists is what is asked."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from headrace.services.environment.settings import EnvironmentSettings
from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.dashboard.api import add_dashboard
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.http.chat import ChatRoutes, add_chat
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.service import rest_app
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.operator import Operator
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.reward.app import http_policy
from headrace.services.reward.http_api import HttpScorer, add_routes
from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.settings import RewardSettings
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.service import http_app
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.http import HttpPolicy, admin_app
from headrace.wire.rundir.events import EventLog
from tests.dashboard_run import write_run
from tests.reward_scorers import rubrics

SERVICES = ("environment", "orchestrator", "reward", "rollout", "trainer")
TOKEN = "the-operators-own-token"


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of an app."""

    method: str
    path: str
    """With names of its parameters in braces."""
    described: dict[str, Any]
    """Its OpenAPI operation."""

    @property
    def plain(self) -> str:
        """A path that it serves."""
        return self.path.replace("{", "").replace("}", "")


def routes(app: FastAPI) -> Iterator[Route]:
    """Every operation of the OpenAPI description, and every route that it leaves out."""
    paths = app.openapi()["paths"]
    for path, operations in paths.items():
        for method, described in operations.items():
            yield Route(method.upper(), path, described)
    for route in app.routes:
        for method in getattr(route, "methods", None) or ():
            if getattr(route, "path", "") not in paths and method != "HEAD":
                yield Route(method, route.path, {})  # type: ignore[attr-defined]


async def make_app(service: str, folder: Path) -> FastAPI:
    """The app of a service, of a run in `folder`; to be called on the loop that asks it."""
    match service:
        case "environment":
            return admin_app("environment", lambda: None, policy=HttpPolicy.of(EnvironmentSettings()))
        case "orchestrator":
            return await orchestrator_app(folder)
        case "reward":
            made = rubrics({"name": "exact_match"}, {"name": "numeric", "optional": True})
            app = admin_app("reward", made.trouble, policy=http_policy(RewardSettings()))
            add_routes(app, HttpScorer(made, RequestLimiter(4, 60.0)))
            return app
        case "rollout":
            return ReplicaHttpServer().app(HttpPolicy.of(RolloutSettings()))
        case _:
            return http_app(lambda: None, TrainerSettings())


async def orchestrator_app(folder: Path) -> FastAPI:
    """That of a run that has ended: its files are read, and operators' requests are taken down."""
    run = write_run(folder / "mine", steps=20, rollouts=40)
    token = folder / "token"
    token.write_text(TOKEN)
    chat = {"wait_s": 0.001, "deadline_s": 1.0}
    settings = OrchestratorSettings.model_validate(
        {"run_dir": run, "orchestrator": {"operator_token_file": token, "chat": chat}}
    )
    files = Files.of(run, run / "model")
    for reader in (files.curves, files.evals, files.log, files.rollouts):
        await reader.look()
    store = Store(folder / "state.sqlite")
    state, registry = RunState(store, max_steps=20), Registry(60.0)
    operator = Operator(state, registry, EventLog(folder, "orchestrator", secrets.token_hex(4)), run)
    app = rest_app(lambda: None, AnnotationService(run), settings)
    add_dashboard(app, Board(files, EndedRun(files)), operator)
    add_chat(app, ChatRoutes(settings, registry, Clients(), state.operator_requests))
    return app
