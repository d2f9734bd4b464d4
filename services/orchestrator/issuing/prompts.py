"""The run's prompts, tokenized before it began, and the seeded order in which they are issued."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.wire.contracts import EnvironmentTask
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import DataError
from headrace.wire.rundir.prompts import read

COLUMNS = ("sample_id", "token_ids", "text", "columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One row of `prompts.parquet`."""

    sample_id: str
    token_ids: TokenIds
    """int32 [prompt]; empty where there is an environment."""
    text: str
    columns: dict[str, Any]
    environment: EnvironmentTask | None = None
    """What is played; None: the prompt is completed."""
    set: str = ""
    """Its evaluation set; empty in training, and for a set without a name."""


def read_prompts(path: Path) -> list[PromptRow]:
    """Reads a file that `headrace train` wrote; raises DataError naming file and column."""
    try:
        table = read(path, *COLUMNS, "environment", "set")
    except DataError as error:
        raise DataError(f"{error}; run `headrace train` to write it") from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: column {missing[0]!r} is missing; run `headrace train` to rewrite it")
    return list(_rows(table.to_pylist()))


def _rows(records: list[dict[str, Any]]) -> Iterator[PromptRow]:
    for record in records:
        yield PromptRow(
            sample_id=record["sample_id"],
            token_ids=np.asarray(record["token_ids"], dtype=np.int32),
            text=record["text"],
            columns=json.loads(record["columns"]),
            environment=_task(record.get("environment")),
            set=record.get("set") or "",
        )


def _task(text: str | None) -> EnvironmentTask | None:
    if text is None:
        return None
    found = json.loads(text)
    return EnvironmentTask(name=found["name"], digest=found["digest"], task_json=json.dumps(found["task"]))


class PromptOrder:
    """Maps a group index to a row: each epoch is a permutation that depends only on (seed, epoch)."""

    def __init__(self, num_rows: int, seed: int) -> None:
        if num_rows < 1:
            raise DataError("there is no prompt to issue")
        self._num_rows = num_rows
        self._seed = seed
        self._epoch = -1
        self._permutation = np.empty(0, np.int64)

    def row(self, group_index: int) -> int:
        """Row of group `group_index` (from 0, in issue order)."""
        epoch, position = divmod(group_index, self._num_rows)
        if epoch != self._epoch:
            self._permutation = np.random.default_rng([self._seed, epoch]).permutation(self._num_rows)
            self._epoch = epoch
        return int(self._permutation[position])
