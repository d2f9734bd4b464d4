"""An episode's messages as people and judges read them: what the policy was asked, and all that followed. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.wire.config.json_text import read_lenient

NOTE = "note"
"""Role of a record's entries that are not messages: turns of an agent beside the conversation that is shown."""


@dataclass(frozen=True, slots=True)
class Transcript:
    r"""A conversation in two parts.

    >>> read_transcript('[{"role": "user", "content": "1+2"}, {"role": "assistant", "content": "3", "turn": 0}]')
    Transcript(asked=({'role': 'user', 'content': '1+2'},), answer='assistant:\n  3')
    """

    asked: tuple[dict[str, JsonValue], ...]
    """Messages before the policy's first: `role` and `content`."""
    answer: str
    """The policy's first message and all that follow it, each below its role; tools have their names."""


def read_transcript(messages_json: str) -> Transcript:
    """The transcript of `Episode.messages_json`. Raises ValueError for invalid JSON."""
    return transcript_of(read_lenient(messages_json))


def transcript_of(messages: JsonValue) -> Transcript:
    """The transcript of a list of messages; entries that are not messages are left out, notes included."""
    found = messages_in(messages)
    first = next((place for place, one in enumerate(found) if _is_policys(one)), len(found))
    return Transcript(tuple(map(_plain, found[:first])), in_words(found[first:]))


def messages_in(record: JsonValue) -> list[dict[str, JsonValue]]:
    """The messages of a record, without its notes."""
    entries = record if isinstance(record, list) else []
    return [one for one in entries if isinstance(one, dict) and one.get("role") != NOTE]


_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)


def openai_message(message: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """One message in OpenAI's form: its calls as `tool_calls`, which its content does not repeat.

    `arguments` are an object, as TRL and chat templates have them.
    """
    found: dict[str, JsonValue] = {"role": _text(message, "role"), "content": _text(message, "content")}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        found["content"] = _CALL.sub("", _text(message, "content")).strip()
        found["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    for key in ("name", "reasoning_content"):
        if isinstance(message.get(key), str):
            found[key] = message[key]
    return found


def in_words(messages: Sequence[dict[str, JsonValue]]) -> str:
    """The messages one below the other, their contents indented: no content can pass for a further message."""
    return "\n\n".join(f"{_who(one)}:\n{_indented(_text(one, 'content'))}" for one in messages)


def _is_policys(message: dict[str, JsonValue]) -> bool:
    return message.get("role") == "assistant" and isinstance(message.get("turn"), int)


def _plain(message: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"role": _text(message, "role"), "content": _text(message, "content")}


def _indented(content: str) -> str:
    # `splitlines` ends a line wherever a reader may see one end, not at "\n" alone.
    return "\n".join(f"  {line}" for line in content.splitlines())


def _who(message: dict[str, JsonValue]) -> str:
    name = " ".join(_text(message, "name").split())  # Of a tool that the policy named.
    return _text(message, "role") + (f" {name}" if name else "")


def _text(message: dict[str, JsonValue], key: str) -> str:
    found = message.get(key)
    return found if isinstance(found, str) else ""
