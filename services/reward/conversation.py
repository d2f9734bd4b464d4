"""The conversation of an episode as scorers get it: messages in OpenAI's form, and which of them the policy said. Pure.

`Episode.messages_json` is a record for people: it has notes, which are not messages, and calls in a form of its own.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.wire.config.json_text import read_lenient
from headrace.wire.contracts import Episode
from headrace.wire.contracts.transcript import in_words, messages_in, openai_message

Message = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """All messages of an episode, in order. Axis: messages."""

    messages: tuple[Message, ...]
    """[messages] In OpenAI's form; `arguments` of calls are objects, as TRL and chat templates have them."""
    turns: tuple[int | None, ...]
    """[messages] Which turn of the policy a message is; None where others wrote it, or where it is not trained."""
    text: str
    """For readers of plain text: each message below its role, calls of tools as the policy wrote them."""

    @property
    def first(self) -> int:
        """Place of the policy's first message."""
        return next(place for place, turn in enumerate(self.turns) if turn is not None)

    @property
    def last(self) -> int:
        """Place of the policy's last message."""
        return max(place for place, turn in enumerate(self.turns) if turn is not None)

    @property
    def asked(self) -> list[Message]:
        """What stands before the policy's first message."""
        return list(self.messages[: self.first])

    @property
    def said(self) -> list[Message]:
        """The policy's first message and all that follow it."""
        return list(self.messages[self.first :])


def read_conversation(episode: Episode) -> Conversation | None:
    """The conversation of an episode; None if its record is no JSON, or has no message of the policy."""
    try:
        record = read_lenient(episode.messages_json)
    except ValueError:
        return None
    messages = messages_in(record)
    turns = tuple(_turn(one) for one in messages)
    if all(turn is None for turn in turns):
        return None
    return Conversation(
        messages=tuple(openai_message(_with_plain_calls(one)) for one in messages), turns=turns, text=in_words(messages)
    )


def episode_of_messages(asked: Sequence[Mapping[str, object]], said: Sequence[Mapping[str, object]]) -> Episode:
    """A conversation that came as text: every message of the assistant in `said` is a turn of the policy."""
    # A key `turn` of the sender's would make what others said a turn of the policy.
    record = [{key: value for key, value in one.items() if key != "turn"} for one in (*asked, *said)]
    policys = (one for one in record[len(asked) :] if one.get("role") == "assistant")
    for turn, one in enumerate(policys):
        one |= {"content": _with_markup(one), "turn": turn}
    return Episode(messages_json=json.dumps(record))


def _turn(message: Message) -> int | None:
    turn = message.get("turn")
    return turn if message.get("role") == "assistant" and isinstance(turn, int) else None


def _with_plain_calls(message: Message) -> Message:
    """Calls as the record has them (`name`, `arguments`), also where a program sent them in OpenAI's form."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_plain_call(one) for one in calls if isinstance(one, dict)]}


def _plain_call(call: Mapping[str, object]) -> Message:
    function = call.get("function", call)
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        # What is no JSON stays the policy's own text: a scorer may judge it.
        with contextlib.suppress(ValueError):
            arguments = read_lenient(arguments)
    return {"name": str(function.get("name", "")), "arguments": arguments}


def _with_markup(message: Mapping[str, object]) -> str:
    """Content with the calls as a policy writes them: a reader of text would not see them otherwise."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    calls = message.get("tool_calls")
    if "<tool_call>" in text or not isinstance(calls, list):
        return text
    written = [f"<tool_call>{json.dumps(_plain_call(one))}</tool_call>" for one in calls if isinstance(one, dict)]
    return "\n".join([text, *written] if text else written)
