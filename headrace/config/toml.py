"""The config that a run directory keeps as TOML: reads it, and writes it, as the standard library only reads."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.wire.errors import ConfigError
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.rundir.layout import RunPaths

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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


def to_toml(tables: Mapping[str, object]) -> str:
    """TOML text of nested tables of plain values (as `model_dump(mode="json")` gives them); None is left out."""
    return "\n".join(_table(tables, ())).strip() + "\n"


def _table(table: Mapping[str, object], keys: tuple[str, ...]) -> list[str]:
    lines = [f"[{'.'.join(map(_key, keys))}]"] if keys else []
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines += [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner and value is not None
    ]
    if keys:
        lines.append("")
    for key, value in inner.items():
        lines += _table(value, (*keys, key))
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # DEL is legal in JSON but not in TOML; surrogate pairs as JSON escapes them are not either.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None) + "}"
    raise TypeError(f"{type(value).__name__} has no TOML form")
