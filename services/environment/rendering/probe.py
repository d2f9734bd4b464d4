"""Short conversations that a family's renderer and the model's chat template must render to the same ids. Pure.

They have no thoughts, which a family may keep where the template drops them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from headrace.services.environment.child.frames import Json
from headrace.wire.contracts.messages import TokenIds

_AROUND = 8
"""Tokens shown before and after the first difference."""
_BEGIN: list[Json] = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "Is 12 + 34 = 46?\nWhy?"},
]
_END: list[Json] = [{"role": "assistant", "content": "It is 46."}, {"role": "user", "content": "Merci, l'été!"}]


def probes(tools: Sequence[Json]) -> Iterator[tuple[str, list[Json], Sequence[Json]]]:
    """What it is, messages and tools of each: without any, and with a call of the first one if there are `tools`."""
    yield "a short conversation", [*_BEGIN, *_END], ()
    if not tools:
        return
    function = tools[0].get("function")
    name = function.get("name") if isinstance(function, dict) else None
    made = f"functions.{name}:0"
    call = {"type": "function", "id": made, "function": {"name": name, "arguments": {"a": 12, "text": "l'été"}}}
    called: list[Json] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": name, "tool_call_id": made, "content": "46"},
    ]
    yield "a short conversation with the environment's tools", [*_BEGIN, *called, *_END], tools


def difference(found: TokenIds, wanted: TokenIds, decode: Callable[[TokenIds], str]) -> str:
    """Where two renderings, int32 [tokens] each, begin to differ, with the text around; empty if they are the same."""
    length = min(len(found), len(wanted))
    unlike = np.flatnonzero(found[:length] != wanted[:length])
    if not len(unlike) and len(found) == len(wanted):
        return ""
    place = int(unlike[0]) if len(unlike) else length
    before = decode(wanted[max(place - _AROUND, 0) : place])
    own, theirs = (decode(ids[place : place + _AROUND]) for ids in (found, wanted))
    return f"at token {place}, behind {before!r}, it has {own!r}, the template {theirs!r}"
