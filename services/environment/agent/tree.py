"""The turns of one episode as a tree of messages, found again in what the program sends. Pure.

A program sends a whole conversation with each call. An assistant message in it that equals a recorded answer stands for
the ids that were sampled; what the program makes of its conversations (retries, sub-agents, compaction, edits) becomes
branches, and each branch is trained as what the engine really saw and sampled.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from headrace.services.environment.child.frames import Json
from headrace.wire.contracts import Turn
from headrace.wire.rendering.chat_template import Seen

Begins = Literal["", "first", "opened", "edited", "branched", "template"]
"""Why a turn begins a segment: `first` of the episode, `opened` (a conversation of its own), `edited` (an answer that
it holds is none that was sampled there), `branched` (the turn before was continued already), `template` (the chat
template does not write on from what was seen); empty = it continues the turn before."""
Key = str
"""One message in a form in which equal messages are equal texts."""


def message_key(message: Json) -> Key:
    """The message as it is compared: content, reasoning and tool calls, arguments as JSON; without ids of calls."""
    calls = message.get("tool_calls")
    found = {
        "role": message["role"],
        "content": message.get("content") or "",
        "reasoning": message.get("reasoning_content") or message.get("reasoning") or "",
        "calls": [_call_key(call) for call in calls] if isinstance(calls, list) else [],
        "name": message.get("name") or "",
        "of": message.get("tool_call_id") or "",
    }
    return json.dumps(found, sort_keys=True)


def _call_key(call: Json) -> list[object]:
    function = call["function"]
    assert isinstance(function, dict)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # Else it is compared as the text that it is.
            arguments = json.loads(arguments)
    return [function.get("name"), arguments]


@dataclass(slots=True, kw_only=True, eq=False)
class TreeTurn:
    """One call of the policy that was answered."""

    number: int
    """The number of the call in the episode, from 0."""
    place: "Place"
    """Where its context stands."""
    turn: Turn
    seen: Seen
    """Context and answer, as the engine has them."""
    said: Json
    """The answer as the program got it."""
    raw: Json
    """The answer as the renderer reads it in later contexts."""
    text: str
    """All that was sampled, without the stop token that ended it."""
    begins: Begins = ""
    note: Json = field(default_factory=dict)
    """What is known of it beside its text, for people."""
    children: list["TreeTurn"] = field(default_factory=list)
    used: bool = False
    """A later context holds its answer."""
    passed: bool = False
    """A later context goes on from its context with another message than its answer, or an edit of it."""

    @property
    def answer(self) -> Key:
        """Its answer as it is compared."""
        return message_key(self.said)

    @property
    def dropped(self) -> bool:
        """Whether it is not trained: the program went another way, so nothing that came later depends on it."""
        return self.passed and not self.used


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where a context stands in the tree."""

    messages: tuple[Json, ...]
    """As the program sent them."""
    path: tuple[Key, ...]
    options: Key
    """What else it asks for: tools, most tokens."""
    recorded: tuple[TreeTurn | None, ...]
    """One a message: the turn whose answer it is; None = the message stands for itself."""
    edited: bool
    """It holds an answer where another one was sampled, or an answer that was sampled elsewhere."""
    since: int
    """Contexts that came before it."""

    @property
    def parent(self) -> TreeTurn | None:
        """The last turn whose context and answer the context begins with."""
        return next((one for one in reversed(self.recorded) if one is not None), None)

    def rendered(self) -> list[Json]:
        """The messages as the chat template reads them: recorded answers as they were read when they were sampled."""
        both = zip(self.messages, self.recorded, strict=True)
        return [_for_template(message) if one is None else one.raw for message, one in both]


class EpisodeTree:
    """All answered calls of one episode."""

    def __init__(self) -> None:
        self.turns: list[TreeTurn] = []
        """In the order of their answers."""
        self._contexts: list[tuple[Key, ...]] = []

    def take(self, messages: Sequence[Json], options: object = None) -> Place:
        """Finds a context, and notes which answers it uses and which it passes by; messages as OpenAI has them.

        Requests with equal messages and equal `options` (JSON) are the same.
        """
        path = tuple(map(message_key, messages))
        recorded: list[TreeTurn | None] = [None] * len(path)
        for one in self.turns:
            if _goes_on(path, one) and path[len(one.place.path)] == one.answer:
                recorded[len(one.place.path)] = one
            self._mark(one, path)
        foreign = {
            place for place, one in enumerate(messages) if one["role"] == "assistant" and recorded[place] is None
        }
        answers = {one.answer for one in self.turns}
        self._contexts.append(path)
        return Place(
            messages=tuple(messages),
            path=path,
            options=json.dumps(options, sort_keys=True),
            recorded=tuple(recorded),
            edited=any(path[place] in answers for place in foreign)
            or any(_goes_on(path, one) and len(one.place.path) in foreign for one in self.turns),
            since=len(self._contexts),
        )

    def repeated(self, place: Place) -> TreeTurn | None:
        """The answer to the same context, while no later one holds it."""
        same = [
            one
            for one in self.turns
            if one.place.path == place.path and one.place.options == place.options and not one.used
        ]
        return same[-1] if same else None

    def add(self, turn: TreeTurn) -> Begins:
        """Takes an answer; returns why it begins a segment."""
        turn.begins = self._begins(turn)
        self.turns.append(turn)
        if turn.place.parent is not None:
            turn.place.parent.children.append(turn)
        for path in self._contexts[turn.place.since :]:  # The program may have gone on without waiting.
            self._mark(turn, path)
        return turn.begins

    def trained(self) -> list[TreeTurn]:
        """The turns to train, each once: depth first, and after each turn the one that continues its ids."""
        found: list[TreeTurn] = []
        waiting = [one for one in reversed(self.turns) if one.place.parent is None]
        while waiting:
            one = waiting.pop()
            found.append(one)
            # What continues it comes last on the stack, so next in the order.
            waiting += sorted(one.children, key=lambda child: (not child.begins and not child.dropped, -child.number))
        return [one for one in found if not one.dropped]

    def last(self) -> TreeTurn | None:
        """The last turn of the longest path, by messages; None without a turn."""
        kept = [one for one in self.turns if not one.dropped]
        return max(kept, key=lambda one: (len(one.place.path), one.number), default=None)

    def _begins(self, turn: TreeTurn) -> Begins:
        parent, ids = turn.place.parent, turn.turn.context_ids
        if not self.turns:
            return "first"
        if parent is not None and np.array_equal(ids[: len(parent.seen.token_ids)], parent.seen.token_ids):
            return "branched" if any(not one.begins for one in parent.children) else ""
        if turn.place.edited:
            return "edited"
        return "opened" if parent is None else "template"

    def _mark(self, one: TreeTurn, path: tuple[Key, ...]) -> None:
        """Notes what a context makes of a turn: it uses its answer, passes it by, or neither."""
        if not _goes_on(path, one):
            return
        key = path[len(one.place.path)]
        if key == one.answer:
            one.used = True
        elif not self._is_edit(key, one):
            one.passed = True

    def _is_edit(self, key: Key, one: TreeTurn) -> bool:
        """Whether a message is the program's version of an answer: said by the assistant, and never sampled there."""
        if json.loads(key)["role"] != "assistant":
            return False
        return not any(other.place.path == one.place.path and other.answer == key for other in self.turns)


def _for_template(message: Json) -> Json:
    """The message with the arguments of its calls as objects, which chat templates write as JSON themselves."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return dict(message)
    read = []
    for call in calls:
        function = dict(call["function"])
        with contextlib.suppress(ValueError, TypeError):
            function["arguments"] = json.loads(function["arguments"])
        read.append({**call, "function": function})
    return {**message, "tool_calls": read}


def _goes_on(path: tuple[Key, ...], one: TreeTurn) -> bool:
    """Whether a context begins with a turn's context and continues it."""
    here = len(one.place.path)
    return len(path) > here and path[:here] == one.place.path
