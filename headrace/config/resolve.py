"""Resolves a config: arguments override the environment, which overrides `run.toml`, which overrides the defaults."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.config.errors import Explainer
from headrace.config.layers import Layer, Setting, merge, nest, read_arguments, read_environment, read_file, shortened
from headrace.config.lines import KeyPath
from headrace.config.moved import settings_at_home
from headrace.config.schema import RunFile
from headrace.services.environment.settings import VERIFIERS
from headrace.wire.errors import ConfigError

_STRING_ERRORS = {"string_type", "path_type", "literal_error", "enum"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".ndjson", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class _Given:
    """Where a path was given: the folder that it is relative to, and the place that an error names."""

    base: Path
    where: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A valid config, and where each of its values was given."""

    config: RunFile
    file: str
    layer: Layer

    def place(self, *keys: str) -> str:
        """Where the value was given: `run.toml:12: [data] path`; for a default just the key."""
        return _given(self.layer, keys).where


def resolve(
    file: Path | None, *, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Resolved:
    """Returns the resolved config. Raises ConfigError with one line per error, each naming its place.

    Paths in the config of a run directory that was moved are those of where it lies now (`headrace.config.moved`).
    """
    text = str(file) if file else "arguments"
    from_file, lines = read_file(file) if file else ({}, {})
    from_file = settings_at_home(from_file, file)
    layer = _with_taskset(merge([from_file, read_environment(environment or {}), read_arguments(arguments)]))
    config = _validate(layer, lines, text)
    return Resolved(_absolute(config, layer), text, layer)


def _with_taskset(layer: Layer) -> Layer:
    """The layer with what `[data] environment` says of `[environment]`; a folder is a module of the folder above it."""
    given = layer.get(("data", "environment"))
    if given is None or not isinstance(given.value, str) or not given.value:
        return layer
    folder = _join(_given(layer, ("data", "environment")), Path(given.value))
    name = folder.name if folder.is_dir() else given.value
    added: Layer = {("environment", "name"): replace(given, value=f"{VERIFIERS}{name}", text=None)}
    if folder.is_dir():
        added["environment", "path"] = replace(given, value=str(folder.parent), text=None)
    return {**added, **layer, ("data", "environment"): replace(given, value=name, text=None)}


def _validate(layer: Layer, lines: dict[KeyPath, int], file: str) -> RunFile:
    """Validates strictly, as TOML types are explicit; text from arguments is converted to the type of its key."""
    for keys, setting in layer.items():
        if (found := _moment_in(setting.value)) is not None:
            raise ConfigError(
                f"{_given(layer, keys).where}: {found} is a date or time, and no setting is: write it as text, "
                f'"{found}"'
            )
    try:
        return RunFile.model_validate_json(json.dumps(nest(layer)), strict=True)
    except ValidationError as error:
        as_text = _with_text(layer, error)
        if as_text is not None:
            return _validate(as_text, lines, file)
        raise ConfigError("\n".join(Explainer(RunFile, layer, lines, file).explain(error))) from None


def _moment_in(value: object) -> date | time | None:
    """A date or time of TOML in a value, however deep: JSON has none."""
    if isinstance(value, date | time):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := _moment_in(one)) is not None), None)


def _with_text(layer: Layer, error: ValidationError) -> Layer | None:
    """The layer with the raw text where an argument was taken for a number but the key holds a string."""
    changed = dict(layer)
    for detail in error.errors():
        keys = tuple(str(part) for part in detail["loc"])
        setting = next((layer[k] for k in (keys, keys[:-1]) if k in layer), None)
        if setting and detail["type"] in _STRING_ERRORS and setting.text is not None:
            found = keys if keys in layer else keys[:-1]
            if setting.value != setting.text:
                changed[found] = Setting(setting.text, setting.origin, setting.base, setting.text)
    return changed if changed != layer else None


def _absolute(config: RunFile, layer: Layer) -> RunFile:
    """Relative paths become absolute: those of a file start at its folder, others at the working directory."""
    tables = config.model_dump(mode="python", serialize_as_any=True)
    tables = _walk(tables, (), layer)
    for key in ("path", "eval_path"):
        tables["data"][key] = _data_path(tables["data"][key], _given(layer, ("data", key)))
    for table in ("reward", "algorithm", "environment"):
        if tables[table]["path"] == Path("."):
            # For other keys an empty path, the same `Path` as ".", means none; for these None does.
            tables[table]["path"] = _given(layer, (table, "path")).base.resolve()
    _absolute_scorers(tables["reward"]["scorers"], _given(layer, ("reward", "scorers")))
    for name, task in tables["reward"]["tasks"].items():
        _absolute_scorers(task["scorers"], _given(layer, ("reward", "tasks", name, "scorers")))
    return RunFile.model_validate(tables)


def _absolute_scorers(scorers: Sequence[dict[str, Any]], given: _Given) -> None:
    """Options that name a file or folder: `path`, and all that end in `_file`."""
    for scorer in scorers:
        _absolute_scorers(scorer["members"], given)
        for key, value in scorer["options"].items():
            if isinstance(value, str) and value and (key == "path" or key.endswith("_file")):
                scorer["options"][key] = str(_join(given, Path(value)))


def _walk(value: Any, keys: tuple[str, ...], layer: Layer) -> Any:
    if isinstance(value, Path):
        joined = _join(_given(layer, keys), value)
        return value if keys == ("model", "path") and _is_hub_id(value) and not joined.exists() else joined
    if isinstance(value, dict):
        return {key: _walk(inner, (*keys, str(key)), layer) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_walk(inner, keys, layer) for inner in value)
    return value


def _data_path(text: str, given: _Given) -> str:
    """A file's path, absolute; the id of a dataset stays as it is."""
    looks_like_file = text.endswith(DATA_SUFFIXES) or text.startswith((".", "/", "~"))
    if text and (looks_like_file or _join(given, Path(text)).exists()):
        return str(_join(given, Path(text)))
    return text


def _is_hub_id(path: Path) -> bool:
    """Whether it has the form OWNER/NAME of a model on the Hub."""
    return _HUB_ID.fullmatch(path.as_posix()) is not None


def _join(given: _Given, path: Path) -> Path:
    """The absolute path. Raises ConfigError for one that no system call takes."""
    if not path.parts:
        return path
    try:
        joined = Path((given.base / path.expanduser()).as_posix()).resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            joined.stat()
        return joined
    except RuntimeError:
        why = "no user of this machine has that name: write out the folder"
    except ValueError:
        why = "it holds a NUL character: remove that"
    except OSError as error:
        why = f"{error.strerror}: give another path"
    raise ConfigError(f"{given.where}: {shortened(str(path))} is no path: {why}")


def _given(layer: Layer, keys: Sequence[str]) -> _Given:
    setting = _nearest(layer, keys)
    name = f"[{'.'.join(keys[:-1])}] {keys[-1]}"
    if setting is None:
        return _Given(Path.cwd(), f"{name} (default)")
    return _Given(setting.base, f"{setting.origin}: {name}")


def _nearest(layer: Layer, keys: Sequence[str]) -> Setting | None:
    for length in range(len(keys), 0, -1):
        if tuple(keys[:length]) in layer:
            return layer[tuple(keys[:length])]
    return None
