"""Maps frozen dataclasses onto messages of protobuf: a table a message, derived from the types of the fields.

A field has one name in both, unless its metadata keeps it `aside`: no message has it. A value that is a JSON object has
the suffix `_json` in the message. None is an absent field: for one without presence (bytes of an array) the empty one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.wire.contracts import arrays
from headrace.wire.contracts.messages import Logprobs, TokenIds, TokenMask
from headrace.wire.errors import ContractError

D = TypeVar("D")
P = TypeVar("P", bound=Message)
E = TypeVar("E", bound=StrEnum)
_Convert = Callable[[Any], Any]
_CODECS: dict[object, "Codec[Any, Any]"] = {}
_ARRAYS: list[tuple[object, _Convert, _Convert]] = [
    (TokenIds, arrays.ids_to_bytes, arrays.ids_from_bytes),
    (Logprobs, arrays.floats_to_bytes, arrays.floats_from_bytes),
    (TokenMask, arrays.mask_to_bytes, arrays.mask_from_bytes),
]


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its name in the message, and both directions of its value."""

    name: str
    write: _Convert
    read: _Convert
    absent: Callable[[Any], bool] | None
    """Whether a message lacks the field, if it may."""


class Codec(Generic[D, P]):
    """Converts one dataclass; those of nested dataclasses are made before."""

    def __init__(self, kind: type[D], message: type[P]) -> None:
        self.kind, self._message = kind, message
        hints = get_type_hints(kind)
        held = [one.name for one in fields(kind) if not one.metadata.get("aside")]  # type: ignore[arg-type]
        self._fields = {name: _field(message, name, hints[name]) for name in held}
        _CODECS[kind] = self

    def to_pb(self, value: D) -> P:
        """The message of a value."""
        given = ((field, getattr(value, name)) for name, field in self._fields.items())
        return self._message(**{field.name: field.write(one) for field, one in given if one is not None})

    def from_pb(self, raw: P) -> D:
        """The value of a message; raises ContractError if it breaks the contract."""
        return self.kind(**self.values(raw))

    def from_bytes(self, data: bytes) -> D:
        """The value of a serialized message; raises DecodeError, and ContractError as `from_pb` does."""
        return self.from_pb(self._message.FromString(data))

    def values(self, raw: P) -> dict[str, Any]:
        """The fields of the dataclass."""
        return {
            name: None if field.absent and field.absent(raw) else field.read(getattr(raw, field.name))
            for name, field in self._fields.items()
        }


def numbers(kind: type[E], descriptor: EnumDescriptor) -> dict[E, int]:
    """Number of each member in the messages, whose names there begin with the enumeration's."""
    prefix = descriptor.values[0].name.removesuffix("UNSPECIFIED")
    return {one: descriptor.values_by_name[prefix + one.name].number for one in kind}


def member(found: Mapping[Any, E], name: str, raw: object) -> E:
    """The member of a raw value; raises ContractError (`bad_NAME`) if it has none."""
    if raw not in found:
        raise ContractError(f"bad_{name}", f"{raw!r} is not one of {', '.join(map(str, found.values()))}")
    return found[raw]


def _field(message: type[Message], name: str, hint: object) -> _Field:
    known = cast(Mapping[str, FieldDescriptor], message.DESCRIPTOR.fields_by_name)
    if name not in known:
        return _Field(f"{name}_json", partial(json.dumps, sort_keys=True), partial(_json_object, name), None)
    absent = None
    if isinstance(hint, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
        absent = _without(known[name])
    write, read = _values(hint, known[name])
    return _Field(name, write, read, absent)


def _without(field: FieldDescriptor) -> Callable[[Any], bool]:
    if field.has_presence:
        return lambda raw: not raw.HasField(field.name)
    return lambda raw: not getattr(raw, field.name)


def _values(hint: Any, field: FieldDescriptor) -> tuple[_Convert, _Convert]:
    for array, write, read in _ARRAYS:
        if hint == array:
            return write, read
    if is_dataclass(hint):
        return _CODECS[hint].to_pb, _CODECS[hint].from_pb
    if get_origin(hint) is tuple:
        write, read = _values(get_args(hint)[0], field)
        if read is _same:
            return list, tuple
        return lambda values: [write(one) for one in values], lambda raw: tuple(read(one) for one in raw)
    if get_origin(hint) is dict:
        return _same, dict
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        members = numbers(hint, field.enum_type) if field.enum_type else {one: str(one) for one in hint}
        found = {raw: one for one, raw in members.items()}
        return members.__getitem__, partial(member, found, field.name)
    return _same, _same


def _same(value: Any) -> Any:
    return value


def _json_object(name: str, raw: str) -> dict[str, Any]:
    try:
        found = json.loads(raw or "{}")
    except (ValueError, RecursionError) as error:
        raise ContractError("bad_bytes", f"{name}: {error}") from error
    if not isinstance(found, dict):
        raise ContractError(f"bad_{name}", f"{name} is not a JSON object")
    return found
