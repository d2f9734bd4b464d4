"""Where failpoints are struck that the runs of the campaign do not reach for certain, and which never are, and why."""

from headrace.wire.access.roles import Role

WITHOUT = {
    "services/orchestrator/annotation/vote_log.py:_load: fsync": "cuts a torn line; the next start cuts it too",
    "wire/host/disk_fault.py:probe: fsync": "of a file that is removed",
    "wire/streams/redis/consumer.py:_claim_behind: xclaim": "its caller has a point behind it",
    "wire/streams/redis/consumer.py:_claim_still: xclaim": "its caller has a point behind it",
    "wire/streams/redis/consumer.py:_give_up: xclaim": "the callers have points around it",
}
"""Effects in functions without a failpoint."""

CALLED = {
    "/wire.v1.OrchestratorService/GetStatus": ("orchestrator", Role.OPERATOR),
    "/wire.v1.RolloutService/GetReplica": ("rollout", Role.OPERATOR),
    "/wire.v1.TrainerService/GetTrainer": ("trainer", Role.OPERATOR),
    "/wire.v1.RewardService/ListScorers": ("reward", Role.OPERATOR),
    "/wire.v1.RewardService/Score": ("reward", Role.OPERATOR),
    "/wire.v1.RolloutService/AbortWeights": ("rollout", Role.ORCHESTRATOR),
    "/wire.v1.TrainerService/CloseGroup": ("trainer", Role.ORCHESTRATOR),
    "/wire.v1.TrainerService/GetFates": ("trainer", Role.ORCHESTRATOR),
    "/wire.v1.TrainerService/SaveWeights": ("trainer", Role.ORCHESTRATOR),
    "/wire.v1.TrainerService/GetChecksums": ("trainer", Role.ORCHESTRATOR),
}
"""Methods that a run calls by chance or never, the service that serves each, and a role that may call it.

`test_struck_alone.py` calls each on a live run whose service is killed there: in calls that people's commands make
alone, and in those of an orchestrator.
"""
SET_ASIDE = ("stream.before_settle", "stream.settled")
"""Points of a trainer that finds garbage among the scored groups: `test_struck_alone.py` adds some to a live run."""
CLAIMED = "stream.claimed"
"""Reached by a trainer whose own claim ran out, as it stood still: its next life takes what it has without one."""
MOVED = "folder.moved_aside"
"""Between the renames of a folder that is replaced, while there is an older one."""
OF_WORKERS = frozenset(
    {
        *(CLAIMED, "stream.before_release", "stream.released", "stream.before_renew", "stream.renewed"),
        *("stream.before_fail", "stream.failed"),
    }
)
"""Points that the worker of a service reaches by chance, or by a handler that fails: `test_struck_workers.py`."""
WORKERS = ("environment", "orchestrator", "reward", "rollout")
TURNS = tuple(
    f"{service}.rpc.{point}"
    for method, asks, serves in (("TakeTurn", "trainer", "orchestrator"), ("Sleep", "orchestrator", "rollout"))
    for service, point in (
        (asks, f"before_call.{method}Request"),
        (serves, f"served.{method}"),
        (asks, f"answered.{method}Request"),
    )
)
"""Points of engines that share the trainer's GPUs: `test_struck_turns.py`, in a run of its own."""
HASHED = tuple(f"orchestrator.rpc.{point}.GetChecksumsRequest" for point in ("before_call", "answered"))
"""Points of publications to engines that hash their weights, SGLang's: `test_struck_sglang.py`."""
LEFT_OUT = tuple(
    f"orchestrator.rpc.{point}.{method}Request"
    for method in ("AbortWeights", "SaveWeights")
    for point in ("before_call", "answered")
)
"""Points of an orchestrator whose publication leaves a replica out, behind the death of another process.

`test_struck_left_out.py` kills the trainer as it sends; runs of the campaign reach some of them by chance.
"""
AT_START = ("file.before_rename", "file.renamed")
"""Points of a service that makes the tokens of its run, as the first that starts does: `test_struck_at_start.py`."""
VOTES = ("vote.written", "vote.synced", "sync.before", "sync.done")
"""Points of an orchestrator that keeps votes."""

_HERE = "tests/chaos/failpoints"
ELSEWHERE = {
    **{
        f"{service}.rpc.served.{method.rpartition('/')[2]}": f"{_HERE}/test_struck_alone.py"
        for method, (service, _) in CALLED.items()
    },
    **{f"trainer.{point}": f"{_HERE}/test_struck_alone.py" for point in (MOVED, CLAIMED, *SET_ASIDE)},
    **{f"{service}.{point}": f"{_HERE}/test_struck_workers.py" for service in WORKERS for point in OF_WORKERS},
    **dict.fromkeys(TURNS, f"{_HERE}/test_struck_turns.py"),
    **dict.fromkeys(HASHED, f"{_HERE}/test_struck_sglang.py"),
    **dict.fromkeys(LEFT_OUT, f"{_HERE}/test_struck_left_out.py"),
    **{f"{service}.{point}": f"{_HERE}/test_struck_at_start.py" for service in WORKERS for point in AT_START},
    **{f"orchestrator.{point}": "tests/integration/orchestrator/test_killed_votes.py" for point in VOTES},
}
"""SERVICE.POINT that runs of the campaign reach by chance or never -> the file of a test that strikes it."""

_SETTLES = "its worker ends an entry by settling it, which acks it"
_PUTS = "what it adds to a stream goes with the settling of an entry"
_TOKENS = "of all that it replaces, the tokens of its run alone lie in a file, and are not synced"
_INBOX = "its inbox keeps what it cannot take, and gives nothing back"
NEVER = {
    **{f"{service}.{point}": _SETTLES for service in WORKERS for point in ("stream.before_ack", "stream.acked")},
    **{
        f"{service}.{point}": _PUTS
        for service in ("environment", "reward", "trainer")
        for point in ("stream.before_add", "stream.added")
    },
    **{
        f"{service}.{point}": _TOKENS
        for service in ("environment", "reward", "rollout")
        for point in ("sync.before", "sync.done")
    },
    **{
        f"trainer.{point}": _INBOX
        for point in ("stream.before_fail", "stream.failed", "stream.before_release", "stream.released")
    },
}
"""SERVICE.POINT that the source seems to lead to and the service cannot reach -> why."""

_GIVEN_UP = "a group of which one token is too old while it is generated, which a run of seconds does not come to"
NOT_STRUCK = {
    "rollout.stream.before_add": _GIVEN_UP,
    "rollout.stream.added": _GIVEN_UP,
}
"""SERVICE.POINT that no test strikes -> why."""

BY_CHANCE = frozenset(
    {
        *OF_WORKERS,
        *(f"rpc.{kind}.{name}Request" for kind in ("before_call", "answered") for name in ("CloseGroup", "GetFates")),
        *("rpc.served.CloseGroup", "rpc.served.GetFates", "rpc.served.AbortWeights"),
    }
)
"""Points that an undisturbed run reaches or not, by its timing: the sample, which must strike whole, has none."""
