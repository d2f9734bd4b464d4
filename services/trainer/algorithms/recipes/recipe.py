"""What a recipe is: the settings that its paper gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRecipe:
    """One algorithm of the field as data."""

    title: str
    """As people call it."""
    source: str
    """Paper, and the reference where the paper leaves something open."""
    formula: str
    """What it minimizes, in one line."""
    use: str
    """When to use it."""
    settings: Mapping[str, Any]
    """Keys of `[algorithm]` whose value differs from the table's own default: the paper's."""
    notes: str = ""
    """Where libraries disagree, and what is taken here."""
    tables: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: MappingProxyType({}))
    """Settings that the paper asks of other tables, by table: `headrace algorithms` shows them, none is set."""
