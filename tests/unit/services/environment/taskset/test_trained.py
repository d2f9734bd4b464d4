"""Which calls of the policy a trace of `verifiers` is trained on."""

from typing import Any

import numpy as np
import pytest

from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.services.environment.taskset.calls import EngineCall, TokenRequest
from headrace.services.environment.taskset.frames import PlayedTrace
from headrace.services.environment.taskset.trained import calls_of, record_of, trained_calls
from headrace.wire.contracts import FinishReason, PolicyVersion, Turn, VersionSpan

VERSION = PolicyVersion(incarnation=1, version=0)


def call(number: int, context: list[int], said: list[int]) -> EngineCall:
    turn = Turn(
        context_ids=np.array(context, np.int32),
        completion_ids=np.array(said, np.int32),
        logprobs=np.full(len(said), -1.0, np.float32),
        finish_reason=FinishReason.STOP,
        spans=(VersionSpan(start=0, end=len(said), version=VERSION, weights_digest="d"),),
    )
    asked = TokenRequest(session="s", context_ids=turn.context_ids, max_tokens=0, stop_token_ids=())
    return EngineCall(number=number, asked=asked, turn=turn, replica_id="r")


def node(parent: int | None, ids: list[int], sampled: int = 0) -> dict[str, Any]:
    role = "assistant" if sampled else "user"
    return {"parent": parent, "ids": ids, "sampled": sampled, "message": {"role": role, "content": str(ids)}}


def trace(nodes: list[dict[str, Any]], *branches: tuple[list[int], bool]) -> PlayedTrace:
    found: Any = {
        "nodes": nodes,
        "branches": [{"nodes": numbers, "trainable": trainable} for numbers, trainable in branches],
        "rewards": {},
        "scored": False,
        "metrics": {},
        "stopped": "",
        "truncated": False,
        "late": False,
        "error": "",
        "where": "",
    }
    return PlayedTrace(**found)


FORK = [node(None, [1]), node(0, [9, 2, 3], 2), node(1, [4]), node(2, [9, 5], 1), node(1, [6]), node(4, [9, 7], 1)]
CALLS = [call(0, [1, 9], [2, 3]), call(1, [1, 9, 2, 3, 4, 9], [5]), call(2, [1, 9, 2, 3, 6, 9], [7])]


def test_a_turn_of_two_branches_is_trained_in_the_first() -> None:
    forked = trace(FORK, ([0, 1, 2, 3], True), ([0, 1, 4, 5], True))
    found = calls_of(forked, CALLS)
    assert {number: one.number for number, one in found.items()} == {1: 0, 3: 1, 5: 2}
    assert [one.number for one in trained_calls(forked, found)] == [0, 1, 2]


def test_a_branch_that_is_not_trained_keeps_its_own_turns_out() -> None:
    given_up = trace(FORK, ([0, 1, 2, 3], False), ([0, 1, 4, 5], True))
    found = calls_of(given_up, CALLS)
    trained = trained_calls(given_up, found)
    assert [one.number for one in trained] == [0, 2]
    record = record_of(given_up, found, trained, {0: "a", 1: "b", 2: "c"})
    assert [one["content"] for one in record] == [
        "[1]",
        "a",
        "[6]",
        "c",
        "call 2 of the policy, not trained: its branch is not: b",
    ]
    assert [one.get("turn") for one in record] == [None, 0, None, 1, None]


def test_what_the_policy_did_not_say_there_ends_the_episode() -> None:
    one = trace(FORK[:2], ([0, 1], True))
    for calls in ([], [call(0, [1, 8], [2, 3])], [call(0, [1, 9], [2])]):
        with pytest.raises(EnvironmentFailedError, match="message 2 of the agent's run has 0 calls of the policy"):
            calls_of(one, calls)
    with pytest.raises(EnvironmentFailedError, match="has 2 calls of the policy with its tokens, not 1"):
        calls_of(one, [CALLS[0], call(3, [1, 9], [2, 3])])


def test_equal_answers_are_as_many_turns_as_were_sampled() -> None:
    twice = trace([*FORK[:2], node(0, [9, 2, 3], 2)], ([0, 1], True), ([0, 2], True))
    again = call(1, [1, 9], [2, 3])
    assert [one.number for one in trained_calls(twice, calls_of(twice, [CALLS[0], again]))] == [0, 1]
    with pytest.raises(EnvironmentFailedError, match="has 1 calls of the policy with its tokens, not 2"):
        calls_of(twice, CALLS[:1])
