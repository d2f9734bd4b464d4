"""Which calls of the policy an agent's run is trained on: those of its sampled messages, found by their ids. Pure.

Every sampled token is trained once: in the first branch that has it; in later ones it is context. A message of a branch
that is not trained (a compaction that was given up) is trained only where another branch has it.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.taskset.calls import EngineCall
from headrace.services.environment.taskset.frames import PlayedTrace
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.contracts.transcript import NOTE


def calls_of(trace: PlayedTrace, calls: Sequence[EngineCall]) -> dict[int, EngineCall]:
    """The call of each sampled node, by the node's number; of nodes that are equal in order of their calls.

    Raises EnvironmentFailedError for a node without exactly one: what was trained would not be what was sampled.
    """
    records: dict[tuple[bytes, bytes], list[EngineCall]] = defaultdict(list)
    for call in calls:
        records[call.turn.context_ids.tobytes(), call.turn.completion_ids.tobytes()].append(call)
    wanted: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for number, node in enumerate(trace["nodes"]):
        if node["sampled"]:
            context, completion = _ids(trace, number)
            wanted[context.tobytes(), completion.tobytes()].append(number)
    found: dict[int, EngineCall] = {}
    for ids, numbers in wanted.items():
        if len(records[ids]) != len(numbers):
            raise EnvironmentFailedError(
                f"message {numbers[0] + 1} of the agent's run has {len(records[ids])} calls of the policy with its "
                f"tokens, not {len(numbers)}: none of it can be trained"
            )
        found.update(zip(numbers, records[ids], strict=True))
    return found


def trained_calls(trace: PlayedTrace, found: dict[int, EngineCall]) -> list[EngineCall]:
    """The calls to train in the order of the branches, each once."""
    numbers = [number for one in trace["branches"] if one["trainable"] for number in one["nodes"] if number in found]
    return list(dict.fromkeys(found[number] for number in numbers))


def record_of(
    trace: PlayedTrace, found: dict[int, EngineCall], trained: Sequence[EngineCall], texts: dict[int, str]
) -> list[Json]:
    """The last branch as people read it, and a note for each message of the policy that it does not hold.

    `texts`: all that was sampled in each call, by its number.
    """
    turns = {one.number: place for place, one in enumerate(trained)}
    last = trace["branches"][-1]["nodes"] if trace["branches"] else []
    messages = [_message(trace, number, found, turns, texts) for number in last]
    beside = [number for number in found if number not in last]
    return messages + [_note(found[number], turns, texts) for number in beside]


def _message(
    trace: PlayedTrace, number: int, found: dict[int, EngineCall], turns: dict[int, int], texts: dict[int, str]
) -> Json:
    message = dict(trace["nodes"][number]["message"])
    call = found.get(number)
    if call is None:
        # A call that was answered is one that has a result.
        return {"outcome": "returned", "name": "", **message} if message["role"] == "tool" else message
    known = {"turn": turns[call.number]} if call.number in turns else {}
    calls = {"tool_calls": message["tool_calls"]} if "tool_calls" in message else {}
    return {**known, **call.note, **calls, "role": "assistant", "content": texts[call.number]}


def _note(call: EngineCall, turns: dict[int, int], texts: dict[int, str]) -> Json:
    why = "trained, in another branch" if call.number in turns else "not trained: its branch is not"
    return {"role": NOTE, "content": f"call {call.number + 1} of the policy, {why}: {texts[call.number]}"}


def _ids(trace: PlayedTrace, number: int) -> tuple[TokenIds, TokenIds]:
    """The context of a sampled node, int32 [context], and what was sampled, int32 [completion]."""
    node = trace["nodes"][number]
    border = len(node["ids"]) - node["sampled"]
    parts, above = [node["ids"][:border]], node["parent"]
    while above is not None:
        parts.append(trace["nodes"][above]["ids"])
        above = trace["nodes"][above]["parent"]
    context = [token for part in reversed(parts) for token in part]
    return np.array(context, np.int32), np.array(node["ids"][border:], np.int32)
