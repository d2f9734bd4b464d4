"""One file `RUN/rollouts/step-000001.parquet`, read by columns; older ones that lack a column are read too."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wire.errors import DataError

_NAME = re.compile(r"step-(\d{6,12})\.parquet")
_GROUP = re.compile(r"(\d+)$")
_INDEXED = (
    *("group_index", "group_id", "rollout_index", "reward", "advantage", "min_version", "max_version"),
    *("tokens", "finish_reason", "replica_id"),
)


def step_of(name: str) -> int | None:
    """The step of a file of this name; None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None


@dataclass(frozen=True, slots=True)
class Facts:
    """What rollouts are filtered and sorted by: one entry a rollout, in order of steps and of their files."""

    step: NDArray[np.int32]
    group_index: NDArray[np.int64]
    rollout_index: NDArray[np.int32]
    reward: NDArray[np.float64]
    """NaN = nobody could score it."""
    advantage: NDArray[np.float64]
    """NaN = it was not trained."""
    tokens: NDArray[np.int32]
    min_version: NDArray[np.int32]
    max_version: NDArray[np.int32]
    finish_reason: NDArray[np.int16]
    """Index into `Names.finish`."""
    replica_id: NDArray[np.int16]
    """Index into `Names.replica`."""

    def __len__(self) -> int:
        return len(self.step)

    def at(self, positions: Any) -> "Facts":
        """A selection, by indices, mask or slice."""
        return Facts(*(column[positions] for column in self.columns))

    @property
    def columns(self) -> list[NDArray[Any]]:
        """In the order of the fields."""
        return [getattr(self, one.name) for one in fields(self)]


class Words:
    """Words as small numbers; only ever added to."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """Of a word, known or new."""
        if word not in self._numbers:
            self._numbers[word] = len(self.words)
            self.words.append(word)
        return self._numbers[word]

    def find(self, word: str) -> int:
        """Of a known word; -1 of any other."""
        return self._numbers.get(word, -1)


@dataclass(frozen=True, slots=True)
class Names:
    """Of the facts that are words."""

    finish: Words = field(default_factory=Words)
    replica: Words = field(default_factory=Words)


def read_facts(paths: Mapping[int, Path], names: Names) -> tuple[Facts, dict[int, str]]:
    """Of some files by their steps, in order of the steps; and why those that are damaged are left out."""
    tables: dict[int, pa.Table] = {}
    damaged: dict[int, str] = {}
    for step, path in sorted(paths.items()):
        try:
            tables[step] = read_columns(path, _INDEXED)
        except DataError as error:
            damaged[step] = str(error)
    try:
        # One conversion for all of them: a file alone costs ten times as much to convert as to read.
        return _facts(tables, names), damaged
    except pa.ArrowException:
        return _one_by_one(tables, names, damaged)


def _one_by_one(tables: dict[int, pa.Table], names: Names, damaged: dict[int, str]) -> tuple[Facts, dict[int, str]]:
    """The columns of some file are of another kind."""
    found = [NO_FACTS]
    for step, table in tables.items():
        try:
            found.append(_facts({step: table}, names))
        except pa.ArrowException as error:
            damaged[step] = f"step {step}: {error}"
    return joined(found), damaged


def joined(parts: Sequence[Facts]) -> Facts:
    """One behind the other."""
    return Facts(*(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)))


def _facts(tables: Mapping[int, pa.Table], names: Names) -> Facts:
    if not tables:
        return NO_FACTS
    table = pa.concat_tables(tables.values(), promote_options="permissive")
    counts = [one.num_rows for one in tables.values()]
    return Facts(
        np.repeat(np.array([*tables], np.int32), counts),
        _group_indices(table),
        _numbers(table, "rollout_index", np.int32, 0),
        _numbers(table, "reward", np.float64, np.nan),
        _numbers(table, "advantage", np.float64, np.nan),
        _numbers(table, "tokens", np.int32, 0),
        _numbers(table, "min_version", np.int32, 0),
        _numbers(table, "max_version", np.int32, 0),
        _words(table, "finish_reason", names.finish),
        _words(table, "replica_id", names.replica),
    )


def read_columns(path: Path, columns: Sequence[str], rows: tuple[int, int] | None = None) -> pa.Table:
    """Those of the columns that there are; with `rows` only [first, last). Raises DataError if they cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            if rows is None:
                return file.read(columns=there, use_threads=False)
            groups, first = _row_groups(file.metadata, rows)
            table = file.read_row_groups(groups, columns=there, use_threads=False)
            return table.slice(rows[0] - first, rows[1] - rows[0])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet: {error}") from error


def _row_groups(metadata: Any, rows: tuple[int, int]) -> tuple[list[int], int]:
    """The row groups in which the rows are, and the first row of the first of them."""
    found: list[int] = []
    start = first = 0
    for number in range(metadata.num_row_groups):
        end = start + metadata.row_group(number).num_rows
        if start < rows[1] and end > rows[0]:
            first = start if not found else first
            found.append(number)
        start = end
    return found, first


def _numbers(table: pa.Table, name: str, kind: Any, missing: float) -> NDArray[Any]:
    if name not in table.column_names:
        return np.full(table.num_rows, missing, kind)
    values = np.asarray(table.column(name).cast(pa.float64(), safe=False).to_numpy(), np.float64)
    return np.where(np.isnan(values), missing, values).astype(kind)


def _words(table: pa.Table, name: str, known: Words) -> NDArray[np.int16]:
    if name not in table.column_names:
        return np.full(table.num_rows, known.number(""), np.int16)
    encoded = table.column(name).fill_null("").combine_chunks().dictionary_encode()
    numbers: NDArray[np.int16] = np.array(
        [known.number(word) for word in encoded.dictionary.to_pylist()] or [0], np.int16
    )
    chosen: NDArray[np.int16] = np.take(numbers, encoded.indices.to_numpy())
    return chosen


def _group_indices(table: pa.Table) -> NDArray[np.int64]:
    """Where that column is missing: the number at the end of the group's id."""
    found = _numbers(table, "group_index", np.int64, -1)
    for position in np.flatnonzero(found < 0):
        name = table.column("group_id")[int(position)].as_py() if "group_id" in table.column_names else None
        match = _GROUP.search(name or "")
        found[position] = int(match.group(1)) if match else 0
    return found


NO_FACTS = Facts(
    step=np.empty(0, np.int32),
    group_index=np.empty(0, np.int64),
    rollout_index=np.empty(0, np.int32),
    reward=np.empty(0, np.float64),
    advantage=np.empty(0, np.float64),
    tokens=np.empty(0, np.int32),
    min_version=np.empty(0, np.int32),
    max_version=np.empty(0, np.int32),
    finish_reason=np.empty(0, np.int16),
    replica_id=np.empty(0, np.int16),
)
