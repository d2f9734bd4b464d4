"""The names of all settings, as the schema has them: for completion and for hints."""

import typing
from collections.abc import Iterator

from pydantic import BaseModel


def setting_names(model: type[BaseModel], prefix: str = "", *, lists: bool = False) -> Iterator[str]:
    """Dotted names such as `trainer.learning_rate`; with `lists` also the keys of a list's tables."""
    for key, field in model.model_fields.items():
        table = next(models_in(field.annotation), None)
        is_list = typing.get_origin(field.annotation) in (tuple, list, dict)
        if table is None or (is_list and not lists):
            yield prefix + key
        else:
            # A list's tables may hold lists of themselves.
            yield from setting_names(table, f"{prefix}{key}.", lists=lists and not is_list)


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The tables that a field of this type holds, alone, in a list or in a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from models_in(inner)
