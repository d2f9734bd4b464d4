"""JSON Schema with what may not happen in a service left out: nothing is fetched, and every pattern ends."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import referencing
import referencing.exceptions
from jsonschema.validators import extend, validator_for

from services.reward.scorers.rules import MATCH_S, compiled

_SHOWN = 200


class Checker:
    """Holds values against one schema. References may point into it, nowhere else."""

    def __init__(self, schema: Any) -> None:
        """Raises ValueError for what is no schema."""
        if not isinstance(schema, dict | bool):
            raise ValueError(f"a schema is an object, not a {type(schema).__name__}")
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(schema)  # type: ignore[arg-type]
        except jsonschema.SchemaError as error:
            where = "/".join(map(str, error.absolute_path))
            raise ValueError(f"no JSON Schema, at /{where}: {error.message[:_SHOWN]}") from error
        bounded: Any = extend(  # type: ignore[no-untyped-call]
            kind, {"pattern": _pattern, "patternProperties": _pattern_properties}
        )
        # A part that names its draft would be held against that draft's own, unbounded, validator.
        own = {key: value for key, value in schema.items() if key != "$schema"} if isinstance(schema, dict) else schema
        self._validator = bounded(own, registry=referencing.Registry())

    def problem(self, value: Any) -> str | None:
        """What is wrong with it; None = nothing. Raises ValueError for a schema that cannot be followed."""
        try:
            found = next(iter(self._validator.iter_errors(value)), None)
        except RecursionError:
            return "nested too deeply"
        except TimeoutError:
            raise ValueError(f"a pattern of the schema did not end within {MATCH_S:g} s") from None
        except referencing.exceptions.Unresolvable as error:
            raise ValueError(f"the schema refers to {error.ref!r}, which is not in it; nothing is fetched") from error
        if found is None:
            return None
        return f"at /{'/'.join(map(str, found.absolute_path))}: {found.message[:_SHOWN]}"


def _matches(pattern: str, text: str) -> bool:
    return compiled(pattern).search(text, timeout=MATCH_S, concurrent=True) is not None


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not _matches(pattern, value):
        yield jsonschema.ValidationError(f"{value[:_SHOWN]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: Any, _: Any
) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, schema in patterns.items():
        for name, part in value.items():
            if _matches(pattern, name):
                yield from validator.descend(part, schema, path=name, schema_path=pattern)
