"""The config that a run directory keeps: reads it, whichever version wrote it, and flattens it."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.wire.errors import ConfigError
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.rundir.layout import RunPaths


def config_file(place: Path) -> Path:
    """The config of a run directory, or the file itself. Raises ConfigError if there is none."""
    if not place.is_dir():
        return place
    file = RunPaths(place).run_toml
    if not file.is_file():
        raise ConfigError(f"{place} is not a run directory (it has no config/run.toml)")
    return file


def kept_tables(run_dir: Path) -> dict[str, Any]:
    """The config of a run directory, whichever version wrote it. Raises ConfigError."""
    file = config_file(run_dir)
    try:
        return tomllib.loads(read_regular_text(file))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run_dir} is not a run directory: {file}: {error}") from None


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
