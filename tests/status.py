"""Whole statuses of a run for tests that care for a few fields."""

from typing import Any

from headrace.wire.api.status import RunStatus

REPLICA: dict[str, Any] = {
    "id": "rollout-0", "address": "host:1", "state": "serving", "version": "1.0", "proof": "", "proof_note": "",
    "in_flight_rollouts": 0, "waiting_share": 0.0, "waiting_for": "", "waiting_since": None, "seen": 1000.0,
    "tokens_per_second": 0.0, "publication": "", "route": "", "route_reason": "", "refused": "", "engine": "torch",
}  # fmt: skip
TRAINER: dict[str, Any] = {"state": "alive", "waiting_for": "", "waiting_share": 0.0, "metrics": {}}
STREAM: dict[str, Any] = {"length": 0, "pending": 0, "undelivered": 0, "oldest_pending_s": 0.0}
PUBLICATION: dict[str, Any] = {
    "version": "1.0", "phase": "prepare", "waiting_for": "", "seconds": 0.0, "since": 1000.0, "deadline_s": 60.0,
    "routes": {},
}  # fmt: skip
STATUS: dict[str, Any] = {
    "state": "running", "reason": "", "step": 0, "max_steps": 10, "version": 0, "incarnation": 1, "eval": [],
    "evaluating": "", "waiting_for": "", "credit": {"issued": 0, "limit": 8},
    "groups": {"issued": 0, "trained": 0, "dropped": {}, "open": 0}, "trainer": TRAINER, "replicas": [],
    "streams": {}, "publication": None, "run": {"id": "demo", "run_dir": "runs/demo", "name": "demo", "began": None},
    "operator": {"paused": False, "stopping": False, "checkpoint_asked": False, "draining": []}, "now": 1000.0,
    "bottleneck": {"side": "none", "text": ""},
}  # fmt: skip


def status_json(**changes: Any) -> dict[str, Any]:
    """A status as `/api/status` answers it: objects in `changes` replace those of their keys that they name."""
    status = STATUS | changes
    for key in ("credit", "groups", "trainer", "run", "operator", "bottleneck"):
        status[key] = STATUS[key] | status[key]
    status["replicas"] = [REPLICA | one for one in status["replicas"]]
    status["streams"] = {name: STREAM | one for name, one in status["streams"].items()}
    if status["publication"]:
        status["publication"] = PUBLICATION | status["publication"]
    return status


def run_status(**changes: Any) -> RunStatus:
    """The same as a model."""
    return RunStatus.model_validate(status_json(**changes))
