"""JSON Schema with what may not happen in a service left out: nothing is fetched, and every pattern ends."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Protocol

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.validators import extend, validator_for

from headrace.services.reward.scorers.rules.patterns import PatternTimeoutError, compiled, in_time

_SHOWN = 200
_PROBES: tuple[object, ...] = (None, True, 0, "", "a", [], [0], {}, {"a": 0})
"""What every schema can be held against at once."""


class _Validator(Protocol):
    """What is used of a validator of jsonschema."""

    def is_type(self, instance: object, name: str, /) -> bool: ...

    def iter_errors(self, instance: object, /) -> Iterator[jsonschema.ValidationError]: ...

    def descend(
        self, instance: object, schema: object, *, path: str, schema_path: str
    ) -> Iterator[jsonschema.ValidationError]: ...


class Checker:
    """Holds values against one schema. References may point into it, nowhere else."""

    def __init__(self, schema: object) -> None:
        """Raises ValueError for an invalid schema."""
        if not isinstance(schema, dict | bool):
            raise ValueError(f"a schema is an object, not a {type(schema).__name__}")
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)  # type: ignore[arg-type]
        except jsonschema.SchemaError as error:
            where = "/".join(map(str, error.absolute_path))
            raise ValueError(f"no JSON Schema, at /{where}: {error.message[:_SHOWN]}") from error
        bounded: Callable[..., _Validator] = extend(  # type: ignore[no-untyped-call]
            kind, {"pattern": _pattern, "patternProperties": _pattern_properties, "multipleOf": _multiple_of}
        )
        # A part that names its draft would be held against that draft's own, unbounded, validator.
        own = {key: value for key, value in schema.items() if key != "$schema"} if isinstance(schema, dict) else schema
        self._validator = bounded(own, registry=referencing.Registry())

    def problem(self, value: object) -> str | None:
        """What is wrong with it; None = nothing. What takes a pattern too long, or breaks arithmetic, is wrong.

        Raises ValueError for a schema that cannot be followed.
        """
        try:
            found = self._first(value)
        except RecursionError:
            return "nested too deeply"
        except PatternTimeoutError as error:
            return str(error)
        except ArithmeticError as error:
            return f"its numbers cannot be worked with: {error}"
        if found is None:
            return None
        return f"at /{'/'.join(map(str, found.absolute_path))}: {found.message[:_SHOWN]}"

    def probe(self) -> None:
        """Raises ValueError if not even the shortest of values can be held against the schema."""
        try:
            for value in _PROBES:
                self._first(value)
        except RecursionError as error:
            raise ValueError("the schema refers to itself without end") from error

    def _first(self, value: object) -> jsonschema.ValidationError | None:
        try:
            return next(iter(self._validator.iter_errors(value)), None)
        except referencing.exceptions.Unresolvable as error:
            raise ValueError(f"the schema refers to {error.ref!r}, which is not in it; nothing is fetched") from error


def _matches(pattern: str, text: str) -> bool:
    return in_time(compiled(pattern).search, text)


def _pattern(_: object, pattern: str, value: object, __: object) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not _matches(pattern, value):
        yield jsonschema.ValidationError(f"{value[:_SHOWN]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: _Validator, patterns: dict[str, object], value: object, _: object
) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, schema in patterns.items():
        for name, part in value.items():
            if _matches(pattern, name):
                yield from validator.descend(part, schema, path=name, schema_path=pattern)


def _multiple_of(
    validator: _Validator, factor: float, value: object, _: object
) -> Iterator[jsonschema.ValidationError]:
    """As they are written: 0.07 is a multiple of 0.01, although their nearest binary numbers are none."""
    if validator.is_type(value, "number") and (Fraction(repr(value)) / Fraction(repr(factor))).denominator != 1:
        yield jsonschema.ValidationError(f"{str(value)[:_SHOWN]} is not a multiple of {factor}")
