"""An agent's episode as people read it: the longest conversation, and what is known of the turns beside it. Pure."""

from collections.abc import Sequence

from headrace.services.environment.agent.tree import EpisodeTree, TreeTurn
from headrace.services.environment.child.frames import Json
from headrace.wire.contracts.transcript import NOTE


def record_of(tree: EpisodeTree, trained: Sequence[TreeTurn]) -> list[Json]:
    """Messages of the longest path, then a note for each turn that it does not hold; `trained`: turns in their order.

    A message of the policy has the number of its turn among those that are trained.
    """
    numbers = {one.number: place for place, one in enumerate(trained)}
    last = tree.last()
    if last is None:
        return []
    found: list[Json] = []
    shown: set[int] = set()
    names: dict[object, object] = {}
    for message, turn in zip(last.place.messages, last.place.recorded, strict=True):
        if turn is None:
            # A call that was answered is one that has a result.
            heard = {"outcome": "returned", "name": names.get(message.get("tool_call_id"), "")}
            found.append({**heard, **message} if message["role"] == "tool" else dict(message))
        else:
            names |= _names(turn)
            found.append(_said(turn, numbers))
            shown.add(turn.number)
    found.append(_said(last, numbers))
    others = [one for one in tree.turns if one.number not in shown and one is not last]
    return found + [_beside(one) for one in others]


def _said(turn: TreeTurn, numbers: dict[int, int]) -> Json:
    known = {"turn": numbers[turn.number]} if turn.number in numbers else {}
    return {**known, **turn.note, "role": "assistant", "content": turn.text}


def _names(turn: TreeTurn) -> dict[object, object]:
    """The names of the calls in an answer, by their ids."""
    calls = turn.said.get("tool_calls")
    return {call["id"]: call["function"]["name"] for call in calls} if isinstance(calls, list) else {}


def _beside(turn: TreeTurn) -> Json:
    why = (
        "not trained: the program went on from its context in another way"
        if turn.dropped
        else "trained, in another conversation or before an edit"
    )
    return {"role": NOTE, "content": f"call {turn.number + 1} of the policy, {why}: {turn.text}"}
