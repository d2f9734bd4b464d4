"""What the campaign does not strike, and why."""

WITHOUT = {
    "services/orchestrator/annotation/vote_log.py:_load: fsync": "cuts a torn line; the next start cuts it too",
    "wire/host/disk_fault.py:probe: fsync": "of a file that is removed",
    "wire/streams/redis/consumer.py:_claim_still: xclaim": "its caller has a point behind it",
    "wire/streams/redis/consumer.py:_give_up: xclaim": "the callers have points around it",
}
"""Effects in functions without a failpoint."""

_READ = "only people's commands call it, and it changes nothing"
_TURNS = "engines that share the trainer's GPUs: tests/integration/rollout/test_turns.py"
_HASHED = "engines that hash their weights: tests/chaos/publication/test_sglang.py"
_FAILED = "a handler that fails: tests/chaos/test_streams.py"
_VOTE = "tests/integration/orchestrator/test_killed_votes.py"
_REPLACED = "a folder that replaces one: tests/unit/services/trainer/durability/test_crash_of_a_checkpoint.py"


def _of(method: str, reason: str) -> dict[str, str]:
    points = (f"rpc.served.{method}", f"rpc.before_call.{method}Request", f"rpc.answered.{method}Request")
    return dict.fromkeys(points, reason)


ELSEWHERE = {
    **_of("GetReplica", _READ),
    **_of("GetStatus", _READ),
    **_of("GetTrainer", _READ),
    **_of("ListScorers", _READ),
    **_of("Score", _READ),
    **_of("Sleep", _TURNS),
    **_of("TakeTurn", _TURNS),
    **_of("GetChecksums", _HASHED),
    "stream.before_fail": _FAILED,
    "stream.failed": _FAILED,
    "vote.written": _VOTE,
    "vote.synced": _VOTE,
    "folder.moved_aside": _REPLACED,
}
"""Failpoints that the runs of the campaign do not reach."""

RARE = {
    "rpc.served.AbortWeights": "a replica that lives and missed a phase: chaos/publication/test_frozen_replica.py",
}
"""Failpoints that some runs reach and others do not."""

BY_CHANCE = frozenset(
    {
        *("stream.claimed", "stream.before_release", "stream.released", "stream.before_renew", "stream.renewed"),
        *(f"rpc.{kind}.{name}Request" for kind in ("before_call", "answered") for name in ("CloseGroup", "GetFates")),
        *("rpc.served.CloseGroup", "rpc.served.GetFates"),
    }
)
"""Those that an undisturbed run reaches or not, by its timing: the sample, which must strike whole, has none."""
