"""docs/config.md, made of the settings that the services declare."""

import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headrace.config.names import models_in
from headrace.config.schema import RunFile
from headrace.reference.marked import table

DOC = Path(__file__).parents[2] / "docs" / "config.md"
_HEAD = """# Every key of run.toml

Set a key in the file, as an option or in the environment. `make generate` writes this page from the services'
settings; `headrace config --schema` prints the same as JSON.

- Options (`--trainer.learning-rate 2e-6`) override the environment (`HEADRACE_TRAINER__LEARNING_RATE=2e-6`), which
  overrides the file, which overrides the defaults.
- Relative paths in a file start at its folder, all others at the working directory.
- An unknown key, a wrong type or a value out of range is an error that names file, line, key and the nearest valid key.
- `[algorithm] name` sets the defaults of its table to those of the paper: [algorithms](algorithms.md).
"""
_LONGEST = 60


def as_markdown() -> str:
    """The whole page."""
    return "".join([_HEAD, *_tables(RunFile, ())])


def _tables(kind: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """The page's part of one table, then those of the tables inside it."""
    inner = {
        name: model for name, field in kind.model_fields.items() if (model := next(models_in(field.annotation), None))
    }
    keys = {name: field for name, field in kind.model_fields.items() if name not in inner}
    if keys:
        yield f"\n## `[{'.'.join(path)}]`\n\n"
        rows = []
        for name, field in keys.items():
            meaning = " ".join((field.description or "").split())
            rows.append((f"`{name}`", _type(field.annotation, field), _default(field), meaning))
        yield table(("key", "type", "default", "meaning"), rows)
    for name, model in inner.items():
        if model is not kind:
            yield from _tables(model, (*path, _array(name, kind.model_fields[name])))


def _array(name: str, field: FieldInfo) -> str:
    """`tasks.NAME` for a mapping of tables."""
    return f"{name}.NAME" if typing.get_origin(field.annotation) in (dict, Mapping) else name


def _type(annotation: object, field: FieldInfo) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one, field) for one in arguments if one is not type(None))
    if origin in (tuple, list, Sequence):
        return f"list of {_type(arguments[0], field)}"
    if origin in (dict, Mapping):
        return "table"
    words: dict[object, str] = {
        bool: "true or false",
        int: "integer",
        float: "number",
        str: "text",
        Path: "path",
        Any: "any",
    }
    return words.get(annotation, getattr(annotation, "__name__", str(annotation))) + _bounds(annotation, field)


def _bounds(annotation: object, field: FieldInfo) -> str:
    if annotation not in (int, float):
        return ""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [
        f"{sign} {getattr(one, key):g}" for key, sign in signs.items() for one in field.metadata if hasattr(one, key)
    ]
    return f" {', '.join(found)}" if found else ""


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "must be given"
    if value is None or value == Path():
        return "none"
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(
        value, default=lambda one: one.model_dump(mode="json") if isinstance(one, BaseModel) else str(one)
    )
    return f"`{text}`" if len(text) <= _LONGEST else "see `headrace config show`"
