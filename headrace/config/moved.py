"""A run directory that was moved or copied: paths in its config that lay in it are read where it lies now."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from headrace.config.layers import Layer
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.rundir.layout import RunPaths

T = TypeVar("T")
_GONE = {("trainer", "fail_at")}
"""Keys that older builds wrote with their defaults."""


def at_home(tables: Mapping[str, T], run_dir: Path) -> dict[str, T]:
    """The tables of a config that a run directory keeps; each path below its old place is one below `run_dir`.

    Only where it exists there: another path stays, and an error names it.
    """
    was, here = _recorded(run_dir), run_dir.resolve()
    return {key: _moved(value, was, here) if was and was != here else value for key, value in tables.items()}


def settings_at_home(layer: Layer, file: Path | None) -> Layer:
    """The same for the settings of a run directory's config file, without keys that no longer exist."""
    run_dir = file.resolve().parent.parent if file else None
    if file is None or run_dir is None or RunPaths(run_dir).run_toml != file.resolve():
        return layer
    values = at_home({".".join(keys): setting.value for keys, setting in layer.items()}, run_dir)
    return {
        keys: replace(setting, value=values[".".join(keys)]) for keys, setting in layer.items() if keys not in _GONE
    }


def _recorded(run_dir: Path) -> Path | None:
    """The place of the run directory as its last start recorded it, which is absolute; None if there is no record."""
    for name in ("trainer", "orchestrator"):
        try:
            found = json.loads(read_regular_text(RunPaths(run_dir).settings(name)))
        except (OSError, ValueError, RecursionError):
            continue
        place = found.get("run_dir") if isinstance(found, dict) else None
        if isinstance(place, str) and place.startswith("/") and len(Path(place).parts) > 1:
            return Path(place)
    return None


def _moved(value: T, was: Path, here: Path) -> T:
    if isinstance(value, dict):
        return type(value)({key: _moved(inner, was, here) for key, inner in value.items()})
    if isinstance(value, list):
        return type(value)([_moved(inner, was, here) for inner in value])
    if isinstance(value, str) and value.startswith(f"{was}/"):
        place = here / value[len(f"{was}/") :]
        return type(value)(place) if place.exists() else value
    return value
