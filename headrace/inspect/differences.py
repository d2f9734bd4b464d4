"""Compares configs key by key. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from headrace.inspect.tables import plain_table
from headrace.wire.config.kept import flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key and what it is in each config; None where the table is not there."""

    key: str
    values: tuple[object, ...]


def differences(configs: Sequence[Mapping[str, object]]) -> list[Difference]:
    """Keys that are not the same in all of them, in the order of the first."""
    flat = [dict(flatten(tables)) for tables in configs]
    keys = dict.fromkeys(key for one in flat for key in one)
    found = [Difference(key=key, values=tuple(one.get(key) for one in flat)) for key in keys]
    return [one for one in found if any(value != one.values[0] for value in one.values)]


def difference_table(names: Sequence[str], found: Sequence[Difference]) -> Table:
    """A row a key, a column a config."""
    rows = ((each.key, *map(_value, each.values)) for each in found)
    return plain_table(["key", *names], rows, folds=names)


def _value(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
