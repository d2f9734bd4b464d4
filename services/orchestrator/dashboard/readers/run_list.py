"""Sibling run directories, described from their files. Blocking, read-only."""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pydantic import JsonValue

from headrace.services.orchestrator.dashboard.ended import table_of
from headrace.wire.api.runs import ConfigKey, RunRow
from headrace.wire.config.kept import flatten, kept_tables
from headrace.wire.errors import ConfigError
from headrace.wire.peers.urls import without_credentials
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.evals import headline
from headrace.wire.rundir.events import began_at, seems_alive, state_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP

MOST = 200
_NAME = re.compile(r"\w[\w.@+-]{0,127}")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run directory; `written` is the time its config was written, in unix seconds."""

    name: str
    path: Path
    written: float


def run_folders(parent: Path) -> list[RunFolder]:
    """Run directories under `parent`, newest first, at most `MOST`; skips symlinks and unreadable folders."""
    found = []
    with os.scandir(parent) as entries:
        for entry in entries:
            config = RunPaths(Path(entry.path)).run_toml
            with contextlib.suppress(OSError):  # Not readable, or removed meanwhile.
                if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False) and config.is_file():
                    found.append(RunFolder(entry.name, Path(entry.path), config.stat().st_mtime))
    return sorted(found, key=lambda one: one.written, reverse=True)[:MOST]


def find_run(parent: Path, name: str) -> RunFolder:
    """The folder of that name; raises ConfigError unless it is one of `run_folders`."""
    found = next((one for one in run_folders(parent) if one.name == name), None)
    if found is None:
        raise ConfigError(f"there is no run {name!r} beside this one")
    return found


def run_rows(folders: Sequence[RunFolder], now: float, current: Path, state: str) -> list[RunRow]:
    """The rows of `/api/runs`; `state` is that of the run in `current`. A run with unreadable logs is left out."""
    rows = []
    for one in folders:
        with contextlib.suppress(OSError):
            rows.append(run_row(one, now, current_state=state if one.path == current else None))
    return rows


def run_row(folder: RunFolder, now: float, *, current_state: str | None = None) -> RunRow:
    """One row of `/api/runs`; `current_state`: the state of the run that answers, None for any other.

    Raises OSError if its logs cannot be read.
    """
    try:
        run_id = str(table_of(kept_tables(folder.path), "run").get("id", ""))
    except ConfigError:
        run_id = ""
    alive = seems_alive(folder.path, now)
    metrics = jsonl.last(RunPaths(folder.path).metrics)
    evaluated = jsonl.last(RunPaths(folder.path).evals)
    held_out = headline([evaluated])
    return RunRow(
        name=folder.name,
        id=run_id,
        state=state_of(folder.path, alive=alive) if current_state is None else current_state,
        steps=int(jsonl.number_of(metrics.get(STEP)) or 0),
        reward_mean=jsonl.number_of(metrics.get("reward_mean")),
        accuracy=held_out.known[0] if held_out.known and held_out.title == "accuracy" else None,
        began=round(began_at(folder.path), 3),
        current=current_state is not None,
    )


def flat(tables: Mapping[str, object]) -> dict[str, JsonValue]:
    """Flattens the tables to dotted keys, with JSON values; a viewer reads them: no URL keeps its password."""
    return {key: _plain(value) for key, value in flatten(tables)}


def _plain(value: object) -> JsonValue:
    """Converts to a JSON value: TOML has dates and non-finite numbers."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, str):
        return without_credentials(value)
    return value if isinstance(value, int) or (isinstance(value, float) and isfinite(value)) else str(value)


def config_rows(configs: Sequence[Mapping[str, JsonValue]]) -> list[ConfigKey]:
    """One row per key of the flattened configs, differing ones first; a key that a run lacks is null."""
    rows = []
    for key in sorted({key for config in configs for key in config}):
        values = [config.get(key) for config in configs]
        rows.append(ConfigKey(key=key, values=tuple(values), differs=any(value != values[0] for value in values)))
    return sorted(rows, key=lambda row: not row.differs)
