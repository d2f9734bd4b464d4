"""Values that a program returned, outside the sandbox. Pure: only plain data are compared.

What it returned is hostile: its size is bounded by the sandbox, its depth and its numbers by the JSON reader, and
nothing here takes longer than sorting it would.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bag:
    """A set, or a dict as its pairs, whose items were not compared yet: hashing hostile numbers can take for ever. Or
    an iterable other than a list.
    """

    kind: str
    """`set`, `dict`; `keys` (a dict's view), `sequence` (a range, a deque, an array), `iterator`."""
    items: tuple[Any, ...]


_IN_ORDER = ("keys", "sequence", "iterator")
Value = object
"""None, bool, int, float, str, bytes, complex, list, tuple of them, or a Bag."""


def read_value(output: bytes) -> Value:
    """The value that a program returned, as it was encoded inside. Raises ValueError."""
    try:
        return _untagged(json.loads(output))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"what came back is no encoded value ({type(error).__name__})") from None


def _untagged(value: object) -> Value:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, held),) = value.items()
    if tag == "tuple":
        return tuple(_untagged(item) for item in held)
    if tag in ("set", "frozenset"):
        return Bag("set", tuple(_untagged(item) for item in held))
    if tag in _IN_ORDER:
        return Bag(tag, tuple(_untagged(item) for item in held))
    if tag == "dict":
        return Bag("dict", tuple((_untagged(key), _untagged(item)) for key, item in held))
    if tag == "bytes":
        return bytes.fromhex(held)
    if tag == "complex":
        real, imaginary = held
        return complex(real, imaginary)
    if tag == "int":
        return int(held, 16)
    raise ValueError(f"no tag {tag!r}")


def frozen(value: object) -> Value:
    """A value of ours in the same form."""
    if isinstance(value, list | tuple):
        return type(value)(frozen(item) for item in value)
    if isinstance(value, set | frozenset):
        return Bag("set", tuple(frozen(item) for item in value))
    if isinstance(value, dict):
        return Bag("dict", tuple((frozen(key), frozen(item)) for key, item in value.items()))
    return value


def same(found: Value, wanted: Value, tolerance: float, *, loosely: bool) -> bool:
    """Equal, and of one kind. Axes of both: as deep as what is wanted.

    The tolerance is for a wanted real: of an integer or a bool there is one exact value, which a real may be too.
    """
    if isinstance(wanted, Bag):
        if not isinstance(found, Bag) or (found.kind != wanted.kind and (found.kind, wanted.kind) != ("keys", "set")):
            return False
        return _same_bag(found, wanted, tolerance, loosely)
    if isinstance(wanted, list | tuple):
        if loosely and isinstance(found, Bag) and found.kind in _IN_ORDER:
            found = found.items
        if not isinstance(found, list | tuple) or not (loosely or type(found) is type(wanted)):
            return False
        if len(found) != len(wanted):
            return False
        pairs = zip(found, wanted, strict=True)
        return all(same(one, other, tolerance, loosely=loosely) for one, other in pairs)
    if isinstance(found, int | float) and isinstance(wanted, float):
        return _near_numbers(found, wanted, tolerance)
    if isinstance(found, list | tuple | Bag) or isinstance(found, str) != isinstance(wanted, str):
        return False
    return bool(found == wanted)


def _same_bag(found: Bag, wanted: Bag, tolerance: float, loosely: bool) -> bool:
    if len(found.items) != len(wanted.items):
        return False
    if loosely and wanted.kind == "dict":
        found = Bag("dict", tuple((key if isinstance(key, str) else _as_key(key), item) for key, item in found.items))
    pairs = zip(sorted(found.items, key=rank), sorted(wanted.items, key=rank), strict=True)
    return all(same(one, other, tolerance, loosely=loosely) for one, other in pairs)


def _as_key(key: Value) -> str:
    """What JSON makes of a key."""
    if isinstance(key, list | tuple | Bag | bytes | complex):
        return ""
    return json.dumps(key)


def rank(value: Value) -> tuple[int, Any]:
    """Orders values of any kinds: by kind, then by value."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    if isinstance(value, bool | int | float):
        return (0, value)
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, bytes):
        return (3, value)
    if isinstance(value, list | tuple):
        return (4, tuple(rank(item) for item in value))
    if isinstance(value, Bag):
        return (5, tuple(sorted(rank(item) for item in value.items)))
    return (6, repr(value))


def close(found: float, wanted: float, tolerance: float) -> bool:
    """Equal, or within the tolerance, relative or absolute."""
    return found == wanted or math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)


def _near_numbers(found: float, wanted: float, tolerance: float) -> bool:
    try:
        return close(float(found), float(wanted), tolerance)
    except OverflowError:  # An integer beyond all reals.
        return False


def _items(value: Value) -> tuple[Value, ...]:
    """What iterating over it gives."""
    if isinstance(value, Bag):
        return tuple(key for key, _ in value.items) if value.kind == "dict" else value.items
    if isinstance(value, list | tuple | str | bytes):
        return tuple(value)
    raise ValueError(f"{value!r:.80} was returned, which holds nothing")


def truth(value: Value) -> bool:
    """The truth value, as `bool` has it."""
    if isinstance(value, Bag):
        return value.kind == "iterator" or bool(value.items)
    return bool(value)


def _length(value: Value) -> int:
    if isinstance(value, Bag) and value.kind == "iterator":
        raise ValueError("an iterator was returned, which has no length")
    return len(_items(value))


def _unique(value: Value) -> Bag:
    kept: list[Value] = []
    for item in sorted(_items(value), key=rank):
        if not kept or rank(kept[-1]) != rank(item):
            kept.append(item)
    return Bag("set", tuple(kept))


SHAPES: Mapping[str, Callable[[Value], Value]] = {
    "sorted": lambda value: sorted(_items(value), key=rank),
    "set": _unique,
    "frozenset": _unique,
    "list": lambda value: list(_items(value)),
    "tuple": _items,
    "len": _length,
}
"""What asserts make of a returned value before they compare it. They raise ValueError."""
