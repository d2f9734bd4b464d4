"""Reads the three sources of settings (file, environment, arguments) into flat maps: key path -> value and origin."""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.config.lines import key_lines, line_of
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import BROKER_FILE
from headrace.wire.process.launcher import NodePlacement

Path_ = tuple[str, ...]
ENVIRONMENT_PREFIX = "HEADRACE_"
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TOO_LONG = re.compile(rf"[\d_]{{{sys.get_int_max_str_digits() or 10**9},}}")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that the user gave."""

    value: object
    origin: str
    """Where it stands, as an error message names it: `run.toml:12`, `--trainer.learning-rate`, `HEADRACE_RUN__SEED`."""
    base: Path
    """Folder that a relative path is relative to."""
    text: str | None = None
    """The raw text of an argument or variable: the value, should the key turn out to be a string."""


Layer = dict[Path_, Setting]


def read_file(path: Path) -> tuple[Layer, dict[tuple[str | int, ...], int]]:
    """The file's settings and the line of each key. Raises ConfigError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # The second: no UTF-8, or a NUL in its name.
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        tables = tomllib.loads(text)
        lines = key_lines(text)
        layer = {
            keys: Setting(
                value, f"{path}:{line_of(lines, keys) or line_of(lines, (*keys, 0)) or 1}", path.resolve().parent
            )
            for keys, value in _flatten(tables, ())
        }
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{path}:{line[1] if line else text.count(chr(10)) + 1}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its tables or lists are nested too deeply: no setting is") from None
    except ValueError:
        raise ConfigError(f"{path}:{_long_number(text)}: a number has too many digits: no setting needs them") from None
    return layer, lines


def _long_number(text: str) -> int:
    """The line of the first number that Python refuses to read for its length."""
    found = _TOO_LONG.search(text)
    return text.count("\n", 0, found.start() if found else len(text)) + 1


def read_environment(environment: Mapping[str, str]) -> Layer:
    """`HEADRACE_TRAINER__LEARNING_RATE=1e-6`; names without `__` are not ours, and the secret's file is not a key."""
    layer: Layer = {}
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or "__" not in name or name == BROKER_FILE:
            continue
        keys = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        layer.update(_from_text(keys, environment[name], name))
    return layer


def read_placement(place: NodePlacement | None) -> Layer:
    """What a launcher decides of `[trainer]`."""
    given = {"nodes": place.nodes, "rendezvous": place.rendezvous} if place else {}
    return {("trainer", key): Setting(value, place.origin, Path()) for key, value in given.items() if place and value}


def read_arguments(arguments: Sequence[str]) -> Layer:
    """`--trainer.learning-rate 1e-6`, `--run.max-steps=5`; without a value: true. Raises ConfigError."""
    layer: Layer = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, text = argument.partition("=")
        if not name.startswith("--") or "." not in name:
            raise ConfigError(
                f"cannot understand the argument {argument!r}; settings are given as --table.key VALUE, "
                "e.g. --run.max-steps 5"
            )
        if not equals:
            text = rest.pop(0) if rest and not _is_option(rest[0]) else "true"
        keys = tuple(part.replace("-", "_") for part in name[2:].split("."))
        layer.update(_from_text(keys, text, name))
    return layer


def merge(layers: Iterable[Layer]) -> Layer:
    """Later layers win; a value replaces a table of values below its key, and the other way round.

    Raises ConfigError for a key below a list: which of its entries is meant?
    """
    merged: Layer = {}
    for layer in layers:
        for keys, setting in layer.items():
            for length in range(1, len(keys)):
                above = merged.get(keys[:length])
                if above is not None and isinstance(above.value, list):
                    name = ".".join(keys[:length])
                    raise ConfigError(f"{setting.origin}: {name} is a list, given at {above.origin}: change it there")
            for other in [o for o in merged if o[: len(keys)] == keys or keys[: len(o)] == o]:
                del merged[other]
            merged[keys] = setting
    return merged


def nearest(layer: Layer, keys: Sequence[str]) -> Setting:
    """The setting that gives a key, alone or with its table; without one its default, which has no origin."""
    given = (layer.get(tuple(keys[:length])) for length in range(len(keys), 0, -1))
    return next(filter(None, given), Setting(None, "", Path.cwd()))


def place_of(layer: Layer, keys: Sequence[str]) -> str:
    """Where a value was given, as an error names it: `run.toml:12: [data] path`; for a default just the key."""
    name, origin = f"[{'.'.join(keys[:-1])}] {keys[-1]}", nearest(layer, keys).origin
    return f"{origin}: {name}" if origin else f"{name} (default)"


def nest(layer: Layer) -> dict[str, Any]:
    """The flat map as nested tables."""
    tables: dict[str, Any] = {}
    for keys, setting in layer.items():
        table = tables
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = setting.value
    return tables


def _is_option(text: str) -> bool:
    return text.startswith("--") and not _NUMBER.fullmatch(text)


def _flatten(value: object, keys: Path_) -> Iterable[tuple[Path_, object]]:
    if isinstance(value, dict) and (value or not keys):
        for key, inner in value.items():
            yield from _flatten(inner, (*keys, key))
    else:
        yield keys, value


def _from_text(keys: Path_, text: str, origin: str) -> Layer:
    value = _parse(text, origin)
    return {
        inner: Setting(leaf, origin, Path.cwd(), text if inner == keys else None)
        for inner, leaf in _flatten(value, keys)
    }


def _parse(text: str, origin: str) -> object:
    """What the text most likely means; a key that holds a string takes the text itself later."""
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word in ("None", "null"):
        return None
    if _NUMBER.fullmatch(word):
        try:
            return float(word) if any(sign in word.lower() for sign in ".e") else int(word)
        except ValueError:
            return text  # Such as `2026_`, or thousands of digits: no number, but perhaps a name.
    if word[:1] in ("[", "{"):
        try:
            return json.loads(word)
        except RecursionError:
            raise ConfigError(f"{origin}: {shortened(word)} is nested too deeply: no setting is") from None
        except ValueError as error:
            raise ConfigError(f"{origin}: {shortened(word)} is not valid JSON: {error}") from None
    return text


def shortened(text: str) -> str:
    """A user's text in quotes, as an error shows it: in one line. Pure."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
