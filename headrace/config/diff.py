"""Compares configs key by key. Pure but for reading the files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.resolve import resolve, settle
from headrace.wire.config.kept import flatten, kept_tables


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
