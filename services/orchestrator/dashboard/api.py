"""The dashboard's HTTP API: adds all its routes to one app."""

from fastapi import FastAPI

from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.routes.acts import add_acts
from headrace.services.orchestrator.dashboard.routes.fleet import add_fleet
from headrace.services.orchestrator.dashboard.routes.queues import add_queues
from headrace.services.orchestrator.dashboard.routes.rollouts import add_rollouts
from headrace.services.orchestrator.dashboard.routes.runs import add_runs
from headrace.services.orchestrator.dashboard.routes.series import add_curves
from headrace.services.orchestrator.dashboard.static_files import add_static
from headrace.services.orchestrator.http.replies import RequestRefusedError, busy, refusal
from headrace.services.orchestrator.issuing.dead_letters import DeadLetters
from headrace.services.orchestrator.state.operator import Operator
from headrace.wire.errors import WaitTimeoutError


def add_dashboard(
    app: FastAPI, board: Board, operator: Operator | None = None, dead: DeadLetters | None = None
) -> None:
    """Adds routes and page to an app that has a guard; `board.run()` must run concurrently with the server.

    Without `operator` and `dead` the dashboard is read-only.
    """
    app.add_exception_handler(RequestRefusedError, refusal)
    app.add_exception_handler(WaitTimeoutError, busy)
    add_fleet(app, board)
    add_curves(app, board)
    add_rollouts(app, board)
    add_queues(app, board, dead)
    add_runs(app, board)
    add_acts(app, operator)
    add_static(app)
