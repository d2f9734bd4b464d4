"""Reads the rows of a run, in every stage: those that are trained, and those that are held out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from headrace.config.data import DataTable
from headrace.data.held_out import digest, hold_out
from headrace.data.progress import RowProgress
from headrace.data.rows import DataRow, parse_rows, raise_all, read_rows
from headrace.services.orchestrator.settings import EvalTable
from headrace.wire.errors import ConfigError, DataError


class Item(Protocol):
    """What is made of a row."""

    @property
    def place(self) -> str:
        """File and line."""

    @property
    def tokens(self) -> int:
        """Its length."""


T = TypeVar("T", bound=Item)


@dataclass(frozen=True, slots=True)
class Sets(Generic[T]):
    """All items, and the numbers of those left out."""

    train: list[T]
    held_out: dict[str, list[T]]
    """Evaluation set -> its items, in the order of the config; one without a name if there is no other."""
    overlong: int
    duplicates: int
    """Items left out of training because what they ask is held out."""

    @property
    def all(self) -> list[T]:
        """Those that are trained, and those of every evaluation set."""
        return [*self.train, *self.evaluated]

    @property
    def evaluated(self) -> list[T]:
        """Those of every evaluation set, one set after another."""
        return [one for some in self.held_out.values() for one in some]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReader(Generic[T]):
    """Makes items of rows."""

    table: DataTable
    make: Callable[[DataRow, DataTable], list[T]]
    """Makes the items of a row; the table names its columns."""
    asked: Callable[[T], object]
    """What an item asks, as JSON: what is held out is asked by no other item."""
    what: str
    """An item, in errors."""
    seed: int
    bound: str = ""
    """What sets the limit, in errors."""
    longest: int = 0
    """Tokens of an item at most; 0 = no limit."""
    problems: Callable[[Sequence[T]], list[str]] = lambda items: []
    """What is wrong with the items together."""
    evals: Sequence[EvalTable] = (EvalTable(),)
    """The evaluation sets. A set without rows of its own has those that `table` holds out."""
    progress: RowProgress

    def read(self, rows: Iterable[DataRow | DataError] | None = None) -> Sets[T]:
        """Reads `path`, or the `rows` in its place, and what is held out. Raises DataError, ConfigError."""
        table = self.table
        if table.eval_split and (table.eval_path or Path(table.path).exists()):
            raise ConfigError("[data] eval_split is for a `datasets` id; for a file, hold rows out with eval_size")
        train, overlong = self._items(table, rows)
        held_out: list[T] = []
        duplicates = more = 0
        if table.eval_path or table.eval_split:
            held_out, more = self._items(
                table.model_copy(
                    update={
                        "path": table.eval_path or table.path,
                        "split": table.eval_split or table.split,
                        "limit": table.eval_size,
                    }
                )
            )
        elif table.eval_size:
            asked = [digest(self.asked(one)) for one in train]
            held_out, train, duplicates = hold_out(train, asked, size=table.eval_size, seed=self.seed)
        if not train:
            raise DataError(f"{table.path}: no {self.what} is left to train on")
        sets = {one.name: held_out for one in self.evals if held_out}
        for one in self.evals:
            if one.split and not one.path and (table.environment or Path(table.path).exists()):
                raise ConfigError(
                    f"[[eval]] {one.name} split = {one.split!r} is for a `datasets` id; of a file give another as path"
                )
            if one.has_own_rows:
                sets[one.name], overlong_here = self._items(_own_table(table, one))
                more += overlong_here
            elif not held_out and one.name:
                raise ConfigError(
                    f"[[eval]] {one.name} has no prompts: give path or split, or hold some out in [data] (eval_size)"
                )
        return Sets(
            train, {one.name: sets[one.name] for one in self.evals if one.name in sets}, overlong + more, duplicates
        )

    def _items(self, table: DataTable, rows: Iterable[DataRow | DataError] | None = None) -> tuple[list[T], int]:
        """The items that fit, and the number of the others. Raises DataError if they may not be dropped."""
        path = table.path or table.environment
        self.progress.begin(f"reading {path}")
        rows = read_rows(path, subset=table.subset, split=table.split) if rows is None else rows
        made, errors = parse_rows(rows, lambda row: self._shown(row, table), limit=table.limit)
        items = [one for some in made for one in some]
        fitting = [one for one in items if not self.longest or one.tokens <= self.longest]
        errors += self.problems(items)
        if self.table.overlong == "error":
            errors += [
                f"{one.place}: the {self.what} has {one.tokens} tokens, but at most {self.longest} fit ({self.bound}); "
                'data.overlong = "drop" skips it'
                for one in items
                if one.tokens > self.longest > 0
            ]
        raise_all(errors)
        if not items:
            raise DataError(f"{path}: there are no rows")
        return fitting, len(items) - len(fitting)

    def _shown(self, row: DataRow, table: DataTable) -> list[T]:
        self.progress.at(row.place)
        return self.make(row, table)


def _own_table(table: DataTable, one: EvalTable) -> DataTable:
    """Where the rows of an evaluation set are, and what their columns are called."""
    found = {"path": one.path or table.path, "split": one.split or "test", "limit": 0}
    subset = {"subset": ""} if one.path else {}
    columns = {} if one.columns is None else {"columns": one.columns}
    return table.model_copy(update={**found, **subset, **columns})


def repeated_ids(given: Iterable[tuple[str, object]]) -> list[str]:
    """An error for each id that was given before, of (place, id or None)."""
    first: dict[str, str] = {}
    return [
        f'{place}: id "{one}" was already given at {first[str(one)]}'
        for place, one in given
        if one is not None and first.setdefault(str(one), place) != place
    ]
