"""Writes TOML, which the standard library only reads."""

import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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
