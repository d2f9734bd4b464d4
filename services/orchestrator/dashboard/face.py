"""The dashboard's HTTP face: all its routes on one app."""

from fastapi import FastAPI

from services.orchestrator.dashboard.act_api import add_acts
from services.orchestrator.dashboard.board import Board
from services.orchestrator.dashboard.curve_api import add_curves
from services.orchestrator.dashboard.fleet_api import add_fleet
from services.orchestrator.dashboard.queue_api import add_queues
from services.orchestrator.dashboard.rollout_api import add_rollouts
from services.orchestrator.dashboard.run_api import add_runs
from services.orchestrator.dashboard.static_files import add_static
from services.orchestrator.dead_letters import DeadLetters
from services.orchestrator.operator import Operator
from services.orchestrator.replies import RefusedError, busy, refusal
from wire.errors import WaitTimeoutError


def add_dashboard(
    app: FastAPI, board: Board, operator: Operator | None = None, dead: DeadLetters | None = None
) -> None:
    """Adds routes and page to an app that has a guard; `board.run()` must run beside the server.

    Without `operator` and `dead` letters nothing can be changed.
    """
    app.add_exception_handler(RefusedError, refusal)
    app.add_exception_handler(WaitTimeoutError, busy)
    add_fleet(app, board)
    add_curves(app, board)
    add_rollouts(app, board)
    add_queues(app, board, dead)
    add_runs(app, board)
    add_acts(app, operator)
    add_static(app)
