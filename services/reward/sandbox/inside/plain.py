"""Plain values as JSON, with the types that JSON lacks tagged: how arguments come in and a returned value goes out.

    None, bool, int, float, str, list   as they are
    tuple, set, frozenset               {"tuple": [...]}
    dict                                {"dict": [[key, value], ...]}
    bytes, large int, complex           {"bytes": hex}, {"int": hex}, {"complex": [real, imaginary]}

and, on the way out only, what stands for plain values:

    dict_keys, dict_items               {"keys": [...]}
    range, deque, dict_values, array    {"sequence": [...]}
    generator, map, other iterators     {"iterator": [...]}
    Fraction, Decimal, NumPy scalar     int or float

A subclass's own methods are not called: its data are read by the base class's methods.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

_LARGE = 1 << 4096
"""Larger numbers go as hex: CPython refuses to read or write more than 4300 decimal digits."""
_WIDEST = 1000
"""Decimals with more digits before the point are floats."""
_NOTHING: dict[object, object] = {}
_VIEWS: tuple[type[Iterable[object]], ...] = (type(_NOTHING.keys()), type(_NOTHING.items()))
_SEQUENCES: tuple[type[Iterable[object]], ...] = (range, deque, type(_NOTHING.values()))
_COLLECTIONS: tuple[tuple[type, str], ...] = ((tuple, "tuple"), (set, "set"), (frozenset, "frozenset"))


class NotPlainError(TypeError):
    """The value is, or holds, something else than plain data."""


def encode(value: object) -> str:
    """The value as text; raises NotPlainError, or RecursionError for a value that is too deep or holds itself."""
    return json.dumps(_tagged(value))


def _tagged(value: object) -> object:
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
    return _standing(value, kind)


def _standing(value: Any, kind: type[Any]) -> object:
    """What it stands for."""
    for kinds, tag in ((_VIEWS, "keys"), (_SEQUENCES, "sequence")):
        if isinstance(value, kinds):
            return {tag: [_tagged(item) for item in value]}
    if hasattr(kind, "__next__"):
        return {"iterator": [_tagged(item) for item in value]}
    if kind.__module__ in ("numpy", "array") and hasattr(value, "tolist"):
        held = value.tolist()
        if isinstance(held, list):
            return {"sequence": [_tagged(item) for item in held]}
        return _tagged(float(held) if type(held) is kind else held)  # Longer reals than Python's stay what they are.
    if _is(value, "fractions", "Fraction"):
        return _tagged(value.numerator if value.denominator == 1 else float(value))
    if _is(value, "decimal", "Decimal"):
        is_whole = value.is_finite() and value.adjusted() < _WIDEST and value == value.to_integral_value()
        return _tagged(int(value) if is_whole else float(value))
    raise NotPlainError(f"a {kind.__name__} was returned, which is no plain value")


def _is(value: object, module: str, name: str) -> bool:
    """Checks without an import: a program that made such a value has imported the module."""
    return isinstance(value, getattr(sys.modules.get(module), name, ()))


def decode(text: str) -> Any:
    """The value of a text that `encode` made for us; for arguments, on the inside."""
    return _untagged(json.loads(text))


def _untagged(value: object) -> object:
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
