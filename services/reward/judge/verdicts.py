"""The form of a judge's answer: one JSON object with given keys. Anything else is an error, never a number. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

Allowed = Sequence[int] | Sequence[str] | None
"""The values that a key may have; None = any text."""


class MalformedVerdictError(ValueError):
    """The judge did not answer in the form asked for."""


def schema(form: Mapping[str, Allowed]) -> dict[str, object]:
    """The form as a JSON schema, in the part of the language that all servers' strict modes know."""
    kinds: dict[str, object] = {
        key: {"type": "string"} if values is None else _enum(values) for key, values in form.items()
    }
    return {"type": "object", "properties": kinds, "required": list(form), "additionalProperties": False}


def _enum(values: Sequence[int] | Sequence[str]) -> dict[str, object]:
    return {"type": "integer" if isinstance(values[0], int) else "string", "enum": list(values)}


def read_verdict(text: str, form: Mapping[str, Allowed]) -> dict[str, object]:
    """The object if the text is exactly one, with exactly the form's keys and allowed values.

    Raises MalformedVerdictError: also for a repeated key, and for a fence or a word around the object.
    """
    try:
        found = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedVerdictError(f"no JSON object alone: {str(error)[:80]}") from None
    if not isinstance(found, dict) or found.keys() != form.keys():
        wrong = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise MalformedVerdictError(f"it must have the keys {', '.join(form)} and no others, not {str(wrong)[:80]}")
    for key, values in form.items():
        value = found[key]
        kind = str if values is None else type(values[0])
        # `type`, as True is an int too.
        if type(value) is not kind or (values is not None and value not in values):
            raise MalformedVerdictError(f"{key} = {str(value)[:40]!r} is not allowed")
    return found


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
