"""Plain values as JSON, with the types that JSON lacks tagged: how arguments come in and a returned value goes out.

    None, bool, int, float, str, list   as they are
    tuple, set, frozenset               {"tuple": [...]}
    dict                                {"dict": [[key, value], ...]}
    bytes, large int, complex           {"bytes": hex}, {"int": hex}, {"complex": [real, imaginary]}

What a subclass says of itself is not asked: its data are taken by the base class's own methods.
"""

import json
from typing import Any

_LARGE = 1 << 4096
"""Larger numbers go as hex: CPython refuses to read or write more than 4300 decimal digits."""
_COLLECTIONS: tuple[tuple[type, str], ...] = ((tuple, "tuple"), (set, "set"), (frozenset, "frozenset"))


class NotPlainError(TypeError):
    """The value is, or holds, something else than plain data."""


def encode(value: Any) -> str:
    """The value as text; raises NotPlainError, or RecursionError for a value that is too deep or holds itself."""
    return json.dumps(_tagged(value))


def _tagged(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, int):
        number = int.__add__(value, 0)
        return number if -_LARGE < number < _LARGE else {"int": hex(number)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [_tagged(item) for item in list.__iter__(value)]
    for base, tag in _COLLECTIONS:
        if isinstance(value, base):
            return {tag: [_tagged(item) for item in base.__iter__(value)]}  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {"dict": [[_tagged(key), _tagged(item)] for key, item in dict.items(value)]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise NotPlainError(f"a {kind.__name__} was returned, which is no plain value")


def decode(text: str) -> Any:
    """The value of a text that `encode` made for us; for arguments, on the inside."""
    return _untagged(json.loads(text))


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, held),) = value.items()
    if tag == "dict":
        return {_untagged(key): _untagged(item) for key, item in held}
    if tag == "bytes":
        return bytes.fromhex(held)
    if tag == "int":
        return int(held, 16)
    if tag == "complex":
        return complex(*held)
    kinds = {name: base for base, name in _COLLECTIONS}
    return kinds[tag]([_untagged(item) for item in held])
