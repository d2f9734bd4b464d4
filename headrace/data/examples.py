"""Rows of the stages that train on given examples: a dialogue with trained answers, or a prompt with a ranked pair.

Column names follow TRL: `prompt` and `completion`, or `messages`; `prompt`, `chosen`, `rejected` and,
if it is known by how much the one is better, `margin`. `tools` holds the schemas of the tools that messages call, as a
list or as JSON text.
"""

import contextlib
import math
from dataclasses import dataclass

from headrace.config.data import DataTable
from headrace.data.presets import Content, Message, content_of, find_column, tools_for
from headrace.data.rows import DataRow
from headrace.wire.errors import DataError


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One row of supervised data: a prompt and the answer to learn."""

    place: str
    prompt: Content
    answer: Content
    """Text, or the messages after the prompt: each one of the role `assistant` is trained."""
    tools: tuple[Message, ...] = ()
    """Schemas of the tools that the conversation may call, in the form of OpenAI's `tools`."""


@dataclass(frozen=True, slots=True)
class RankedPair:
    """One row of preferences."""

    place: str
    prompt: Content
    chosen: Content
    rejected: Content
    margin: float
    """Least difference that the scores should have; 0 without the column."""
    tools: tuple[Message, ...] = ()
    """Schemas of the tools that both answers may call."""


def dialogue_of(row: DataRow, table: DataTable) -> Dialogue:
    """Reads `messages` as a whole, or `prompt` and `completion`. Raises DataError naming place and column."""
    name, value = find_column(row, "messages", table, frozenset())
    if name and (table.preset == "messages" or not find_column(row, "prompt", table, frozenset())[0]):
        messages = content_of(row, name, value, "conversation")
        if isinstance(messages, str):
            raise DataError(f'{row.place}: column "{name}": a conversation must be a list of messages, not text')
        first = _first_answer(row, name, messages)
        return Dialogue(row.place, messages[:first], messages[first:], tools_for(row, table))
    source, value = find_column(row, "prompt", table)
    prompt = content_of(row, source, value)
    source, value = find_column(row, "completion", table, frozenset({"completion"}))
    answer = content_of(row, source, [value] if isinstance(value, dict) else value, "completion")
    if isinstance(answer, tuple):
        _first_answer(row, source, answer)
    return Dialogue(row.place, prompt, answer, tools_for(row, table))


def ranked_pair_of(row: DataRow, table: DataTable) -> RankedPair:
    """Reads `chosen` and `rejected` with their `prompt`, or two conversations that differ in the last message only.

    Raises DataError naming place and column.
    """
    needed = frozenset({"chosen", "rejected"})
    sides = {role: find_column(row, role, table, needed) for role in ("chosen", "rejected")}
    chosen, rejected = (content_of(row, name, value, role) for role, (name, value) in sides.items())
    source, value = find_column(row, "prompt", table, frozenset())
    if source:
        prompt = content_of(row, source, value)
    else:
        prompt, chosen, rejected = _common_prompt(row, chosen, rejected)
    if chosen == rejected:
        raise DataError(f'{row.place}: "chosen" and "rejected" are the same')
    return RankedPair(row.place, prompt, chosen, rejected, _margin(row, table), tools_for(row, table))


def _first_answer(row: DataRow, column: str, messages: tuple[Message, ...]) -> int:
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            return index
    raise DataError(f'{row.place}: column "{column}": no message has the role "assistant": there is nothing to learn')


def _common_prompt(
    row: DataRow, chosen: Content, rejected: Content
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise DataError(f'{row.place}: there is no column "prompt"; name it with [data.columns] prompt = ...')
    if chosen[:-1] != rejected[:-1] or len(chosen) < 2:
        raise DataError(
            f'{row.place}: without a column "prompt", "chosen" and "rejected" must be conversations that differ in '
            "their last message only"
        )
    return chosen[:-1], chosen[-1:], rejected[-1:]


def _margin(row: DataRow, table: DataTable) -> float:
    name, value = find_column(row, "margin", table, frozenset())
    if not name:
        return 0.0
    if isinstance(value, str):  # A CSV file has texts alone.
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DataError(f'{row.place}: column "{name}": a margin must be a number of 0 or more, not {value!r}')
    return float(value)
