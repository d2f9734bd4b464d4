"""Columns of each preset, and the conversion of one row into a prompt with its tools and reward columns.

The presets follow TRL (`prompt` and free columns), verl (`prompt` as messages, `reward_model.ground_truth`),
OpenRLHF (`input`, `label`) and chat logs (`messages`, whose last answer is the reference).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.data import DataTable
from headrace.data.rows import DataRow
from headrace.wire.errors import DataError
from headrace.wire.rendering.chat_template import begins_answer
from headrace.wire.rendering.messages import in_form, media_in, tools_of, without_absent

Message = dict[str, object]
Content = str | tuple[Message, ...]
"""Text, or messages for the chat template."""

PROMPT_MESSAGES = "prompt_messages"
"""Reserved reward column: the messages of a prompt that was messages, as they go into the chat template."""

_OF_COLUMNS = (
    '; a file of columns becomes one of rows: python -c "import pandas; '
    "pandas.read_json('FILE').to_json('rows.jsonl', orient='records', lines=True)\""
)

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
    content: Content
    tools: tuple[Message, ...]
    columns: Mapping[str, object]
    """JSON values that are passed to the reward."""
    given_id: str | None


def prompt_of(row: DataRow, table: DataTable) -> Prompt:
    """Parses one row. Raises DataError naming place and column."""
    if PROMPT_MESSAGES in row.values:
        raise DataError(f'{row.place}: the column name "{PROMPT_MESSAGES}" is reserved; rename the column')
    source, value = find_column(row, "prompt", table)
    content, tools = content_of(row, source, value), tools_for(row, table)
    left_out = {source.partition(".")[0], *(name for name, mapped in table.columns.items() if not mapped)}
    columns = {name: _plain(row, name, inner) for name, inner in row.values.items() if name not in left_out}
    if table.preset == "messages" and isinstance(content, tuple) and begins_answer(content):
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
    return Prompt(row.place, content, tools, columns, str(given) if found else None)


def asked(content: Content, table: DataTable) -> list[Message]:
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
    if mapped == "" and role not in needed:
        return "", None
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


def content_of(row: DataRow, source: str, value: object, what: str = "prompt") -> Content:
    """Text, or messages in form for the chat template, also as JSON text; raises DataError naming row and column."""
    value = _written_messages(value)
    if isinstance(value, str):
        if not value:
            raise DataError(f'{row.place}: column "{source}": the {what} is empty')
        return value
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        raise DataError(
            f'{row.place}: column "{source}": a {what} must be text or a list of messages, not {_kind(value)}'
            + (_OF_COLUMNS if value and isinstance(value, list | dict) else "")
        )
    try:
        return tuple(in_form([without_absent(one) for one in value] if row.is_columnar else value))
    except DataError as error:
        raise DataError(f'{row.place}: column "{source}": {error}') from None


def _written_messages(value: object) -> object:
    """The messages that a text is in JSON, as CSV has them; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] != "[":
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    is_messages = isinstance(found, list) and found and all(isinstance(one, dict) and "role" in one for one in found)
    return found if is_messages else value


def tools_for(row: DataRow, table: DataTable) -> tuple[Message, ...]:
    """Schemas of the tools that the template is given. Raises DataError naming the column, also one of no text.

    A column that `[data.columns]` names for something else is nothing of the model's.
    """
    own = {name: value for name, value in row.values.items() if name not in table.columns.values()}
    if media := media_in({name: value for name, value in own.items() if table.columns.get(name) != ""}):
        raise DataError(
            f'{row.place}: column "{media}" cannot be read: the model reads text alone; leave such rows out, or the '
            f'column ([data.columns] {media} = "")'
        )
    name, value = find_column(row, "tools", table, frozenset())
    if not name or (name not in own and "tools" not in table.columns):
        return ()
    try:
        return tools_of(without_absent(value) if row.is_columnar else value)
    except DataError as error:
        way_out = '; if it holds something else, name it so: [data.columns] other_name = "tools"'
        raise DataError(f'{row.place}: column "{name}": {error}{way_out}') from None


def _plain(row: DataRow, column: str, value: object) -> object:
    """Converts the value to JSON types. Raises DataError if it has none."""
    if isinstance(value, dict):
        return {str(key): _plain(row, column, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(row, column, inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f'{row.place}: column "{column}": {value} is not a finite number; {_way_out(column)}')
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise DataError(f'{row.place}: column "{column}": {_kind(value)} is not JSON; {_way_out(column)}')


def _way_out(column: str) -> str:
    return f'write it as text, or leave the column out: [data.columns] {column} = ""'


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list of something else" if value else "an empty list"
    return {dict: "an object", str: "text", bool: "a boolean", type(None): "nothing"}.get(
        type(value), f"a {type(value).__name__}"
    )
