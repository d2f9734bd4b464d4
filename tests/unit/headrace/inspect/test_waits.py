"""Who waits for whom: every party has a line, and what is not known is not told."""

from typing import Any

from headrace.inspect.waits import Party, episode_waits, parties
from tests.status import run_status

STATUS: dict[str, Any] = {
    "state": "running",
    "step": 6,
    "version": 6,
    "credit": {"issued": 8, "limit": 8},
    "groups": {"trained": 24, "dropped": {}},
    "trainer": {
        "state": "alive",
        "waiting_for": "a batch for step 7",
        "waiting_since": 1000.0,
        "waiting_until": 2800.0,
    },
    "replicas": [
        {"id": "rollout-0", "state": "serving", "version": "1.6", "waiting_for": "prompts", "waiting_since": 1010.0},
        {
            "id": "elsewhere",
            "state": "updating",
            "version": "1.5",
            "waiting_for": "the weights",
            "publication": "transfer of 1.6 over gloo",
            "publication_since": 1005.0,
            "publication_until": 1125.0,
        },
    ],
    "streams": {"rollouts": {"pending": 0, "undelivered": 0}},
}


def by_name(status: dict[str, Any], processes: dict[str, str]) -> dict[str, Party]:
    return {party.who: party for party in parties(run_status(**status), processes)}


WORKER = {
    "id": "environment-0",
    "slots": 8,
    "playing": 3,
    "waiting": 1,
    "seen": 1011.0,
    "waits": [
        {"id": "demo/g7/1", "kind": "tool", "waits_for": "the tools search", "since": 1000.0},
        {"id": "demo/g7/0", "kind": "engine", "waits_for": "turn 1 of the policy", "since": 1010.0},
    ],
    "notes": [],
}


def test_an_environment_worker_names_its_slots_and_the_episode_that_waits_longest() -> None:
    idle = {**WORKER, "id": "environment-1", "playing": 0, "waiting": 0, "waits": []}
    status = {**STATUS, "environments": [WORKER, idle]}
    processes = {"environment-0": "ready", "environment-1": "ready", "environment-2": "starting"}
    found = by_name(status, processes)
    first = found["environment-0"]
    assert first.process == "ready" and first.state == "alive"
    assert first.in_words(1012.0) == ("waits for the tools search (demo/g7/1), 12 s; 3 of 8 slots play, 1 wait")
    assert found["environment-1"].in_words(1012.0) == "waits for tasks from orchestrator; 0 of 8 slots play"
    assert found["environment-2"].in_words(1012.0) == ""
    assert list(by_name(status, {}))[-2:] == ["environment-0", "environment-1"]
    assert episode_waits(run_status(**status), 1012.0) == [
        "demo/g7/1 on environment-0 waits for the tools search, 12 s",
        "demo/g7/0 on environment-0 waits for turn 1 of the policy from the engine, 2.0 s",
        "and 2 more episodes",
    ]
    assert episode_waits(run_status(**STATUS), 1012.0) == []


def test_everybody_has_a_line_with_since_and_until() -> None:
    found = by_name(STATUS, {"orchestrator": "ready", "trainer": "ready", "rollout-0": "ready", "reward-0": "ready"})
    assert list(found) == ["orchestrator", "trainer", "rollout-0", "reward-0", "elsewhere"]
    trainer = found["trainer"]
    assert (trainer.waits_for, trainer.source, trainer.since, trainer.until) == (
        "a batch for step 7",
        "rollout",
        1000.0,
        2800.0,
    )
    assert trainer.in_words(1012.0) == "waits for a batch for step 7 from rollout, 12 s of 30 min"
    assert found["rollout-0"].in_words(1012.0) == "waits for prompts from orchestrator, 2.0 s"
    assert found["elsewhere"].in_words(1012.0) == "waits for transfer of 1.6 over gloo, 7.0 s of 120 s"
    assert found["reward-0"].in_words(1012.0) == "waits for rollouts from rollout"
    assert found["orchestrator"].in_words(1012.0) == "credit 8/8, groups trained 24"
