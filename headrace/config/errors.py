"""Validates settings; pydantic's errors become messages that name the place, the key and the nearest valid key."""

import json
import re
from collections.abc import Iterable
from datetime import date, time

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.config.layers import Layer, Setting, nest, place_of
from headrace.config.lines import KeyPath, line_of
from headrace.config.names import models_in, setting_names
from headrace.config.schema import RunFile
from headrace.wire.config.nearest import nearest, one_of
from headrace.wire.errors import ConfigError

_SHOWN = 200
_MOST = 3
"""Tables that a hint names."""
_NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+([eE][-+]?\d+)?")
_STRING_ERRORS = {"string_type", "path_type", "literal_error", "enum"}


def validate(layer: Layer, lines: dict[KeyPath, int], file: str) -> RunFile:
    """Validates strictly, as TOML types are explicit; text from arguments is converted to the type of its key."""
    for keys, setting in layer.items():
        if (found := _moment_in(setting.value)) is not None:
            raise ConfigError(
                f'{place_of(layer, keys)}: {found} is a date or time, and no setting is: write it as text, "{found}"'
            )
    try:
        return RunFile.model_validate_json(json.dumps(nest(layer)), strict=True)
    except ValidationError as error:
        as_text = _with_text(layer, error)
        if as_text is not None:
            return validate(as_text, lines, file)
        raise ConfigError("\n".join(_Explainer(RunFile, layer, lines, file).explain(error))) from None


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


class _Explainer:
    """Explains the errors of one validation against `model` of settings from `layer`."""

    def __init__(self, model: type[BaseModel], layer: Layer, lines: dict[KeyPath, int], file: str) -> None:
        self._model, self._layer, self._lines, self._file = model, layer, lines, file

    def explain(self, error: ValidationError) -> list[str]:
        """Returns one message per error, without duplicates."""
        return list(dict.fromkeys(self._one(detail) for detail in error.errors()))

    def _one(self, detail: ErrorDetails) -> str:
        path = detail["loc"]
        if detail["type"] == "extra_forbidden":
            return self._unknown(path)
        if detail["type"] == "missing":
            if len(path) == 1:
                return f"{self._file}: there is no table [{path[0]}]"
            return f'{self._place(path[:-1])}: {_table(path[:-1])} lacks the key "{path[-1]}"'
        message = detail["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if detail["type"] in ("model_type", "dict_type"):
            message = "must be a table, not a single value"
        if len(path) < 2:
            return f"{self._place(path, message)}: {_table(path)} {message}"
        value = detail["input"]
        if detail["type"] in ("int_type", "float_type") and _NUMBER.fullmatch(str(value)):
            message += ": write it without quotes"
        shown = "" if isinstance(value, dict | list) else f" = {_literal(value)}"
        return f"{self._place(path)}: {_table(path[:-1])} {path[-1]}{shown}: {message}"

    def _unknown(self, path: KeyPath) -> str:
        known = _keys_at(self._model, path[:-1])
        key = str(path[-1])
        if len(path) == 1:
            hint = self._elsewhere(key) or _maybe(f"[{name}]" for name in nearest(key, known))
            hint = hint or "the tables are " + ", ".join(f"[{name}]" for name in known)
            return f"{self._place(path)}: unknown table [{key}]; {hint}"
        hint = self._elsewhere(key)
        if hint:
            hint += f"; those here are {', '.join(known)}"
        hint = hint or _maybe(f'"{name}"' for name in nearest(key, known))
        if not hint:
            others = _maybe(map(_in_table, nearest(key, self._names())))
            hint = " ".join(filter(None, (others, "the keys are " + ", ".join(known))))
        return f'{self._place(path)}: {_table(path[:-1])} unknown key "{key}"; {hint}'

    def _elsewhere(self, key: str) -> str:
        """The tables that have this very key; empty if none has."""
        found = [name.rpartition(".")[0] for name in self._names() if name.endswith(f".{key}")]
        return f"a key of that name is in {one_of([f'[{table}]' for table in found[:_MOST]])}" if found else ""

    def _names(self) -> list[str]:
        return [name for name in setting_names(self._model, lists=True) if "." in name]

    def _place(self, path: KeyPath, message: str = "") -> str:
        """Where the value was given; of a table, that of its first key which the message names."""
        names = tuple(str(part) for part in path)
        given = [keys for keys in self._layer if keys == names[: len(keys)] or names == keys[: len(names)]]
        if not given:
            # A union's tag is in pydantic's path, but not in the file.
            given = [keys for keys in self._layer if names and keys[0] == names[0] and keys[-1] == names[-1]]
        if given:
            found = {keys: re.search(rf"\b{re.escape(keys[-1])}\b", message) for keys in given}
            named = {match.start(): keys for keys, match in found.items() if match}
            setting = self._layer[named[min(named)] if named else max(given, key=len)]
            if not setting.origin.startswith(self._file + ":"):
                return setting.origin
        line = line_of(self._lines, path) or (line_of(self._lines, given[0]) if given else 0)
        return f"{self._file}:{line}" if line else self._file


def _keys_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Valid keys of the table at `path`."""
    current = {model}
    for part in path:
        following = {
            inner
            for one in current
            for name, field in one.model_fields.items()
            if name == part
            for inner in models_in(field.annotation)
        }
        # A list index or a union's tag is not a field: stay at this level.
        current = following or current
    return list(dict.fromkeys(key for one in sorted(current, key=str) for key in one.model_fields))


def _table(path: KeyPath) -> str:
    names = [str(part) for part in path if isinstance(part, str)]
    return f"[{'.'.join(names)}]" if names else "these tables do not fit:"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    return f'"{value}"' if len(value) <= _SHOWN else f'"{value[:_SHOWN]}..."'


def _maybe(names: Iterable[str]) -> str:
    found = list(names)
    return f"did you mean {one_of(found)}?" if found else ""


def _in_table(name: str) -> str:
    table, _, key = name.rpartition(".")
    return f"[{table}] {key}"
