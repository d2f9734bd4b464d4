"""What the campaign does not strike, and why."""

WITHOUT = {
    "services/orchestrator/annotation/vote_log.py:_load: fsync": "cuts a torn line; the next start cuts it too",
    "wire/host/disk_fault.py:probe: fsync": "of a file that is removed",
    "wire/streams/redis/consumer.py:_claim_behind: xclaim": "its caller has a point behind it",
    "wire/streams/redis/consumer.py:_claim_still: xclaim": "its caller has a point behind it",
    "wire/streams/redis/consumer.py:_give_up: xclaim": "the callers have points around it",
}
"""Effects in functions without a failpoint."""

READ = {
    "/wire.v1.OrchestratorService/GetStatus": "orchestrator",
    "/wire.v1.RolloutService/GetReplica": "rollout",
    "/wire.v1.TrainerService/GetTrainer": "trainer",
    "/wire.v1.RewardService/ListScorers": "reward",
    "/wire.v1.RewardService/Score": "reward",
}
"""Methods that people's commands alone call, and the service that serves each: killed there by `test_struck_alone`."""
ALONE = frozenset({"stream.before_fail", "stream.failed", "folder.moved_aside"})
"""Points that a run reaches only by a fault of another kind: `test_struck_alone` strikes them outside of one."""

_CALLER = "in a command of people, which has no failpoints: nothing of a run dies with it"
_TURNS = "engines that share the trainer's GPUs, which no machine without one has: not struck"
_HASHED = "engines that hash their weights, with the real SGLang: not struck; tests/chaos/publication/test_sglang.py"
_VOTE = "tests/integration/orchestrator/test_killed_votes.py"


def _of(method: str, reason: str) -> dict[str, str]:
    points = (f"rpc.served.{method}", f"rpc.before_call.{method}Request", f"rpc.answered.{method}Request")
    return dict.fromkeys(points, reason)


ELSEWHERE = {
    **{point: _CALLER for method in READ for point in _of(method.rpartition("/")[2], "")},
    **{f"rpc.served.{method.rpartition('/')[2]}": "tests/chaos/failpoints/test_struck_alone.py" for method in READ},
    **dict.fromkeys(ALONE, "tests/chaos/failpoints/test_struck_alone.py"),
    **_of("Sleep", _TURNS),
    **_of("TakeTurn", _TURNS),
    **_of("GetChecksums", _HASHED),
    "vote.written": _VOTE,
    "vote.synced": _VOTE,
}
"""Failpoints that the runs of the campaign do not reach, and where each is struck, or why it is not."""

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
