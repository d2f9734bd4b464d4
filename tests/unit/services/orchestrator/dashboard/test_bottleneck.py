"""The two dials and the backlog say which side to scale."""

from typing import Any

import pytest

from headrace.services.orchestrator.dashboard.bottleneck import SIDES, bottleneck
from headrace.wire.api.status import RunStatus
from tests.status import run_status


def status(waits: float = 0.0, rollout: float = 0.0, unscored: int = 0, **others: Any) -> RunStatus:
    replicas = [{"state": "serving", "waiting_share": rollout}, {"state": "updating", "waiting_share": rollout}]
    told: dict[str, Any] = {
        "trainer": {"waiting_share": waits},
        "replicas": replicas,
        "streams": {"rollouts": {"pending": unscored - unscored // 2, "undelivered": unscored // 2}},
        "credit": {"issued": 100, "limit": 100},
    }
    return run_status(**told | others)


IN_TURNS = {"state": "alive", "waiting_share": 0.53, "metrics": {"phase_seconds_turn": 0.1}}


@pytest.mark.parametrize(
    ("given", "side", "words"),
    [
        (status(0.6, 0.05), "rollout", "Scale rollout beyond 2 replicas"),
        (status(0.05, 0.6), "trainer", "Scale the trainer"),
        (status(0.6, 0.7), "trainer", "replicas 70 % for credit"),
        (status(0.6, 0.7, unscored=80), "reward", "80 of 100 open groups wait for scores"),
        (status(0.6, 0.0, unscored=10), "rollout", "waits 60 %"),
        (status(0.1, 0.1), "none", "keep up"),
        (status(trainer=IN_TURNS), "none", "take turns on the GPU: generation has 53 % of the time"),
        (status(trainer=IN_TURNS, replicas=[]), "rollout", "No rollout replica serves"),
        (status(0.9, 0.0, operator={"paused": True}), "none", "paused"),
        (status(state="finished"), "none", "finished"),
        (status(state="starting"), "none", ""),
        (status(trainer={"state": "absent", "waiting_share": 0}), "trainer", "No trainer"),
        (status(0.9, replicas=[]), "rollout", "No rollout replica serves"),
        (status(0.9, replicas=[{"state": "starting", "waiting_share": 0}]), "rollout", "No rollout replica serves"),
    ],
)
def test_the_bottleneck_names_its_side_and_advice(given: RunStatus, side: str, words: str) -> None:
    said = bottleneck(given, paused=given.operator.paused)
    assert said.side == side and side in SIDES
    assert words in said.text
