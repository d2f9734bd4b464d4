"""Reads columns of one `RUN/rollouts/step-000001.parquet`; accepts older files that lack some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.wire.errors import DataError
from headrace.wire.rundir import rollouts

N = TypeVar("N", bound=np.generic)
_INDEXED = rollouts.columns(
    *("group_index", "rollout_index", "reward", "advantage", "min_version", "max_version"),
    *("tokens", "finish_reason", "replica_id"),
)


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """The columns that rollouts are filtered and sorted by: one entry per rollout, by step, then in file order."""

    step: NDArray[np.int32]
    group_index: NDArray[np.int64]
    rollout_index: NDArray[np.int32]
    reward: NDArray[np.float64]
    """NaN = no scorer could score it."""
    advantage: NDArray[np.float64]
    """NaN = the rollout was not trained on."""
    tokens: NDArray[np.int32]
    min_version: NDArray[np.int32]
    max_version: NDArray[np.int32]
    finish_reason: NDArray[np.int16]
    """Index into `Names.finish`."""
    replica_id: NDArray[np.int16]
    """Index into `Names.replica`."""

    def __len__(self) -> int:
        return len(self.step)

    def at(self, positions: slice | NDArray[np.bool_] | NDArray[np.int64]) -> "RolloutFacts":
        """A selection, by indices, mask or slice."""
        return RolloutFacts(*(column[positions] for column in self.columns))

    @property
    def columns(self) -> list[NDArray[Any]]:
        """All columns, in field order."""
        return [getattr(self, one.name) for one in fields(self)]


class Words:
    """Append-only mapping of words to small integers."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The number of a word; assigns one to a new word."""
        if word not in self._numbers:
            self._numbers[word] = len(self.words)
            self.words.append(word)
        return self._numbers[word]

    def find(self, word: str) -> int:
        """The number of a known word; -1 for an unknown one."""
        return self._numbers.get(word, -1)


@dataclass(frozen=True, slots=True)
class Names:
    """Word tables of the columns that hold words."""

    finish: Words = field(default_factory=Words)
    replica: Words = field(default_factory=Words)


def read_facts(paths: Mapping[int, Path], names: Names) -> tuple[RolloutFacts, dict[int, str]]:
    """Facts of the files (step -> path), ordered by step; and step -> reason for damaged files, which are skipped."""
    tables: dict[int, pa.Table] = {}
    damaged: dict[int, str] = {}
    for step, path in sorted(paths.items()):
        try:
            tables[step] = rollouts.read(path, _INDEXED)
        except DataError as error:
            damaged[step] = str(error)
    # One conversion for all files: converting a file on its own costs ten times as much as reading it.
    return _facts(tables, names), damaged


def joined(parts: Sequence[RolloutFacts]) -> RolloutFacts:
    """Concatenates the parts."""
    return RolloutFacts(*(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)))


def _facts(tables: Mapping[int, pa.Table], names: Names) -> RolloutFacts:
    if not tables:
        return NO_FACTS
    table = pa.concat_tables(tables.values(), promote_options="permissive")
    counts = [one.num_rows for one in tables.values()]
    return RolloutFacts(
        np.repeat(np.array([*tables], np.int32), counts),
        _numbers(table, "group_index", np.int64, 0),
        _numbers(table, "rollout_index", np.int32, 0),
        _numbers(table, "reward", np.float64, np.nan),
        _numbers(table, "advantage", np.float64, np.nan),
        _numbers(table, "tokens", np.int32, 0),
        _numbers(table, "min_version", np.int32, 0),
        _numbers(table, "max_version", np.int32, 0),
        _words(table, "finish_reason", names.finish),
        _words(table, "replica_id", names.replica),
    )


def _numbers(table: pa.Table, name: str, kind: type[N], missing: float) -> NDArray[N]:
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


NO_FACTS = RolloutFacts(
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
