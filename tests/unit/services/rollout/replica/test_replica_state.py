"""The state machine of a replica, every pair of it, and the gate on top."""

import asyncio
from itertools import product

import pytest

from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import NEXT, IllegalTransitionError, ReplicaState, advance
from headrace.services.rollout.service import WIRE_STATES
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import WaitTimeoutError

S = ReplicaState

LEGAL = {
    (S.STARTING, S.PENDING_WEIGHTS),
    (S.PENDING_WEIGHTS, S.UPDATING),
    (S.SERVING, S.UPDATING),
    (S.UPDATING, S.SERVING),
    (S.UPDATING, S.PENDING_WEIGHTS),
    (S.QUARANTINED, S.UPDATING),
    (S.DRAINING, S.GONE),
    (S.PENDING_WEIGHTS, S.SLEEPING),
    (S.SERVING, S.SLEEPING),
    (S.QUARANTINED, S.SLEEPING),
    (S.SLEEPING, S.UPDATING),
    *((state, S.DRAINING) for state in S if state not in (S.DRAINING, S.GONE)),
    *((state, S.QUARANTINED) for state in S if state not in (S.DRAINING, S.GONE, S.QUARANTINED, S.SLEEPING)),
}


@pytest.mark.parametrize(("current", "target"), list(product(S, S)))
def test_every_pair_of_states_is_either_legal_or_refused(current: ReplicaState, target: ReplicaState) -> None:
    if (current, target) in LEGAL:
        assert advance(current, target) is target
    else:
        with pytest.raises(IllegalTransitionError):
            advance(current, target)


def test_every_state_has_its_successors_and_its_word_on_the_wire() -> None:
    assert set(NEXT) == set(S) == set(WIRE_STATES)


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
