"""The state machine of a replica, and the gate on top."""

import asyncio

import pytest

from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import IllegalTransitionError, ReplicaState, advance
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import WaitTimeoutError

S = ReplicaState


def test_an_ended_or_empty_replica_never_serves() -> None:
    for state in (S.GONE, S.DRAINING, S.STARTING, S.PENDING_WEIGHTS, S.QUARANTINED, S.SLEEPING):
        with pytest.raises(IllegalTransitionError):
            advance(state, S.SERVING)


async def test_the_gate_is_open_only_while_serving() -> None:
    gate = Gate()
    seen = [gate.is_open]
    for act in (
        lambda: gate.move(S.PENDING_WEIGHTS),
        lambda: gate.move(S.UPDATING),
        lambda: gate.commit(Serving(PolicyVersion(incarnation=1, version=0), "d")),
        lambda: gate.move(S.UPDATING),
        lambda: gate.disown(S.QUARANTINED, "damaged"),
    ):
        act()
        seen.append(gate.is_open)
    assert seen == [False, False, False, True, False, False]
    assert gate.serving is None and gate.why_not_ready() == "quarantined: damaged"


async def test_a_waiter_sees_the_change_it_waits_for_or_its_deadline() -> None:
    gate = Gate()
    waiter = asyncio.ensure_future(gate.wait_until(lambda: gate.state is S.UPDATING, 5, "an update"))
    await asyncio.sleep(0)
    gate.move(S.PENDING_WEIGHTS)
    await asyncio.sleep(0)
    gate.move(S.UPDATING)
    await waiter
    with pytest.raises(WaitTimeoutError, match="weights of version 7"):
        await gate.wait_until(lambda: False, 0.01, "weights of version 7")
