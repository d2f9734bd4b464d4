"""Reads the rows of a run, in every stage: those that are trained, and those that are held out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from headrace.config.data import DataTable
from headrace.data.held_out import digest, hold_out
from headrace.data.progress import RowProgress
from headrace.data.rows import DataRow, parse_rows, raise_all, read_rows
from headrace.wire.errors import ConfigError, DataError


class Item(Protocol):
    """What is made of a row."""

    @property
    def place(self) -> str:
        """Where the row stands."""
        ...

    @property
    def tokens(self) -> int:
        """Its length, which is limited."""
        ...

    @property
    def asked(self) -> object:
        """JSON; what is held out is in no other item."""
        ...


T = TypeVar("T", bound=Item)


@dataclass(frozen=True, slots=True)
class Sets(Generic[T]):
    """All items, and what was left out."""

    train: list[T]
    held_out: list[T]
    overlong: int
    duplicates: int
    """Items left out of training because what they ask is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[T]):
    """How rows become items."""

    what: str
    """`prompt`, for errors."""
    item: Callable[[DataRow], list[T]]
    problems: Callable[[Sequence[T]], list[str]] = lambda items: []
    """What is wrong with all of them together."""
    longest: int
    """Tokens; 0 = no limit."""
    bound: str = ""
    """What sets the limit."""


def read_sets(
    table: DataTable,
    reading: Reading[T],
    *,
    seed: int,
    progress: RowProgress | None = None,
    rows: Iterable[DataRow | DataError] | None = None,
) -> Sets[T]:
    """Reads `path` and what is held out; `rows` are read in place of `path`. Raises DataError, ConfigError."""
    if table.eval_split and (table.eval_path or Path(table.path).exists()):
        raise ConfigError("[data] eval_split is for a `datasets` id; for a file, hold rows out with eval_size")
    progress = progress or RowProgress()
    source = table.path or table.environment

    def read(path: str, split: str, first: int, rows: Iterable[DataRow | DataError] | None) -> tuple[list[T], int]:
        progress.begin(f"reading {path}")
        rows = read_rows(path, subset=table.subset, split=split) if rows is None else rows
        return _read(path, rows, reading, table, first, progress)

    train, overlong = read(source, table.split, table.limit, rows)
    if not train:
        raise DataError(f"{source}: no {reading.what} is left to train on")
    if table.eval_path or table.eval_split:
        held_out, more = read(table.eval_path or table.path, table.eval_split or table.split, table.eval_size, None)
        return Sets(train, held_out, overlong + more, 0)
    if not table.eval_size:
        return Sets(train, [], overlong, 0)
    asked = [digest(one.asked) for one in train]
    held_out, left, duplicates = hold_out(train, asked, size=table.eval_size, seed=seed)
    return Sets(left, held_out, overlong, duplicates)


def _read(
    path: str,
    rows: Iterable[DataRow | DataError],
    reading: Reading[T],
    table: DataTable,
    first: int,
    progress: RowProgress,
) -> tuple[list[T], int]:
    """Returns the items that fit and the number that do not. Raises DataError if they may not be dropped."""

    def item(row: DataRow) -> list[T]:
        progress.at(row.place)
        return reading.item(row)

    parsed, errors = parse_rows(rows, item, limit=first)
    items = [one for made in parsed for one in made]
    errors += reading.problems(items)
    limit = reading.longest
    overlong = [one for one in items if limit and one.tokens > limit]
    if table.overlong == "error":
        errors += [
            f"{one.place}: the {reading.what} has {one.tokens} tokens, but at most {limit} fit ({reading.bound}); "
            'data.overlong = "drop" skips it'
            for one in overlong
        ]
    raise_all(errors)
    if not items:
        raise DataError(f"{path}: there are no rows")
    return [one for one in items if not limit or one.tokens <= limit], len(overlong)
