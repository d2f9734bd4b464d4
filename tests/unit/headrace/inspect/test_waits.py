"""Who waits for whom: every party has a line, and what is not known is not told."""

from typing import Any

from headrace.inspect.waits import parties
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


def test_every_party_has_a_line_with_since_and_until() -> None:
    processes = dict.fromkeys(("orchestrator", "trainer", "rollout-0", "reward-0"), "ready")
    found = {party.who: party for party in parties(run_status(**STATUS), processes)}
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
