"""Compares configs key by key. Pure but for reading the files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.resolve import resolve, settle
from headrace.config.toml import kept_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key and what it is in each config; None where the table is not there."""

    key: str
    values: tuple[object, ...]


def resolved_tables(place: Path) -> dict[str, object]:
    """All tables of a `run.toml`, defaults included; for a run directory the tables that it was run with."""
    if place.is_dir():
        return _as_given(kept_tables(place))
    return settle(resolve(place)).config.model_dump(mode="json", serialize_as_any=True)


def _as_given(tables: dict[str, Any]) -> dict[str, object]:
    """Replaces the local folder of a Hub model by its id, which is the same on every machine."""
    model = tables.get("model", {})
    return tables | {"model": model | {"path": model["hub"], "hub": ""}} if model.get("hub") else tables


def differences(configs: Sequence[Mapping[str, object]]) -> list[Difference]:
    """Keys that are not the same in all of them, in the order of the first."""
    flat = [dict(flatten(tables)) for tables in configs]
    keys = dict.fromkeys(key for one in flat for key in one)
    found = [Difference(key=key, values=tuple(one.get(key) for one in flat)) for key in keys]
    return [one for one in found if any(value != one.values[0] for value in one.values)]


def flatten(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """`run.seed` -> 0, `reward.scorers.0.name` -> `math`; lists of plain values stay whole."""
    for key, value in tables.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            yield from flatten({str(number): one for number, one in enumerate(value)}, f"{name}.")
        else:
            yield name, value
