"""The names of all settings, as the schema has them: for completion and for hints."""

import typing
from collections.abc import Iterator

from pydantic import BaseModel


def setting_names(model: type[BaseModel], prefix: str = "", *, lists: bool = False) -> Iterator[str]:
    """Dotted names such as `trainer.learning_rate`; with `lists` also the keys of a list's tables."""
    for key, field in model.model_fields.items():
        table, is_list = _table(field.annotation)
        if table is None or (is_list and not lists):
            yield prefix + key
        else:
            # A list's tables may hold lists of themselves.
            yield from setting_names(table, f"{prefix}{key}.", lists=lists and not is_list)


def _table(annotation: object) -> tuple[type[BaseModel] | None, bool]:
    """The model of a table, also of one that may be absent or is one of a list, and whether it is one of a list."""
    is_list = typing.get_origin(annotation) in (tuple, list, dict)
    for one in (annotation, *typing.get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one, is_list
    return None, False
