"""Columns of each preset, and the conversion of one row into a prompt with its reward columns.

The presets follow TRL (`prompt` and free columns), verl (`prompt` as messages, `reward_model.ground_truth`),
OpenRLHF (`input`, `label`) and chat logs (`messages`, whose last answer is the reference).
"""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.data import DataTable
from headrace.data.rows import DataRow
from headrace.services.environment.rendering.messages import without_absent
from headrace.wire.errors import DataError

Message = dict[str, object]

PROMPT_MESSAGES = "prompt_messages"
"""Reserved reward column: the messages of a prompt that was messages, as they go into the chat template."""

PRESETS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "plain": {"prompt": ("prompt",), "answer": ("answer",), "completion": ("completion", "answer")},
    "trl": {"prompt": ("prompt",), "answer": ("answer", "solution", "ground_truth")},
    "verl": {"prompt": ("prompt",), "answer": ("reward_model.ground_truth",)},
    "openrlhf": {"prompt": ("input",), "answer": ("label",), "completion": ("output",)},
    "messages": {"prompt": ("messages",), "answer": ("answer",)},
}
"""Columns tried for each role, first found first taken; a role that a preset does not name is a column of its name."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One parsed row."""

    place: str
    content: str | tuple[Message, ...]
    """Text, or messages for the chat template."""
    columns: Mapping[str, object]
    """JSON values that are passed to the reward."""
    given_id: str | None


def prompt_of(row: DataRow, table: DataTable) -> Prompt:
    """Parses one row. Raises DataError naming place and column."""
    if PROMPT_MESSAGES in row.values:
        raise DataError(f'{row.place}: the column name "{PROMPT_MESSAGES}" is reserved; rename the column')
    source, value = find_column(row, "prompt", table)
    content = content_of(row, source, value)
    columns = _extra_columns(row, without=source.partition(".")[0])
    if isinstance(content, tuple) and content[-1]["role"] == "assistant":
        columns.setdefault("answer", content[-1]["content"])
        content = content[:-1]
        if not content:
            raise DataError(f'{row.place}: column "{source}": there is nothing before the answer')
    for role in dict.fromkeys((*table.columns, "answer")):
        if role in ("prompt", "id"):
            continue
        found, inner = find_column(row, role, table)
        if found:
            columns[role] = _plain(row, found, inner)
    if isinstance(content, tuple):
        columns[PROMPT_MESSAGES] = [_plain(row, source, message) for message in asked(content, table)]
    found, given = find_column(row, "id", table)
    if found and not isinstance(given, str | int):
        raise DataError(f'{row.place}: column "{found}": an id must be text or an integer, not {_kind(given)}')
    return Prompt(row.place, content, columns, str(given) if found else None)


def asked(content: str | tuple[Message, ...], table: DataTable) -> list[Message]:
    """The messages for the chat template, preceded by `[data] system` unless they begin with a system message."""
    messages: list[Message] = list(content) if isinstance(content, tuple) else [{"role": "user", "content": content}]
    if table.system and not (messages and messages[0]["role"] == "system"):
        messages.insert(0, {"role": "system", "content": table.system})
    return messages


def find_column(
    row: DataRow, role: str, table: DataTable, needed: frozenset[str] = frozenset({"prompt"})
) -> tuple[str, object]:
    """Name and value of the role's column; an empty name if one that is not `needed` is absent. Raises DataError."""
    mapped = table.columns.get(role)
    candidates = (mapped,) if mapped else PRESETS[table.preset].get(role, (role,))
    for name in candidates:
        value = _look(row.values, name)
        if value is not None:
            return name, value
    if mapped or role in needed:
        have = ", ".join(row.values) or "none"
        missing = candidates[0]
        if _look(row.values, missing, default=...) is None:
            raise DataError(f'{row.place}: column "{missing}" ({role}) is empty')
        hint = "" if mapped else f"; name it with [data.columns] {role} = ..."
        raise DataError(f'{row.place}: there is no column "{missing}" ({role}); the row has: {have}{hint}')
    return "", None


def _look(values: Mapping[str, object], name: str, default: object = None) -> object:
    """The value of a column; `a.b` is a column of that name, else `b` within `a`."""
    if name in values:
        return values[name]
    head, dot, tail = name.partition(".")
    inner = values.get(head)
    if isinstance(inner, str) and dot and inner[:1] == "{":
        try:
            inner = json.loads(inner)
        except json.JSONDecodeError:
            return default
    return _look(inner, tail, default) if dot and isinstance(inner, dict) else default


def content_of(row: DataRow, source: str, value: object, what: str = "prompt") -> str | tuple[Message, ...]:
    """Text, or messages for the chat template; raises DataError naming row and column."""
    if isinstance(value, str):
        if not value:
            raise DataError(f'{row.place}: column "{source}": the {what} is empty')
        return value
    if not isinstance(value, list) or not value:
        raise DataError(
            f'{row.place}: column "{source}": a {what} must be text or a list of messages, not {_kind(value)}'
        )
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not _says(message):
            raise DataError(f'{row.place}: column "{source}": each message needs a "role" and a "content"')
    return tuple(_message(row, message) for message in value)


def _says(message: Mapping[str, object]) -> bool:
    return "content" in message or bool(message.get("tool_calls"))


def _message(row: DataRow, message: Mapping[str, object]) -> Message:
    found = {key: inner for key, inner in message.items() if inner is not None}
    if calls := found.get("tool_calls"):
        # A message that only calls tools has no content, or null, in the form of OpenAI's.
        found = {"content": "", **found, "tool_calls": without_absent(calls) if row.is_columnar else calls}
    return found


def _extra_columns(row: DataRow, *, without: str) -> dict[str, object]:
    """All columns except `without`. Skips values that JSON cannot hold: the caller reports those of named columns."""
    columns: dict[str, object] = {}
    for key, value in row.values.items():
        if key != without:
            with contextlib.suppress(DataError):
                columns[key] = _plain(row, key, value)
    return columns


def _plain(row: DataRow, column: str, value: object) -> object:
    """Converts the value to JSON types. Raises DataError if it has none."""
    if isinstance(value, dict):
        return {str(key): _plain(row, column, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(row, column, inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f'{row.place}: column "{column}": {value} is not a finite number')
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise DataError(f'{row.place}: column "{column}": {_kind(value)} cannot be a reward column')


def _kind(value: object) -> str:
    return {dict: "an object", list: "an empty list", str: "text", bool: "a boolean", type(None): "nothing"}.get(
        type(value), f"a {type(value).__name__}"
    )
