"""Reads the examples of a stage as `headrace` prepared them: parquet of token ids in, arrays out."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ArrowException, parquet

from headrace.wire.errors import DataError

TokenIds = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence to learn from."""

    token_ids: TokenIds
    """int32 [tokens]: prompt and completion."""
    trained: NDArray[np.bool_]
    """bool [tokens]: which tokens are trained; never the first."""

    @property
    def row_tokens(self) -> int:
        """Tokens of its forward pass: the last token is left out, as it predicts nothing."""
        return len(self.token_ids) - 1

    @property
    def trained_tokens(self) -> int:
        """Number of trained tokens."""
        return int(self.trained.sum())


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one prompt, one of which is better."""

    chosen: Example
    rejected: Example
    margin: float

    @property
    def row_tokens(self) -> int:
        """Tokens of a forward pass over both, the shorter one padded."""
        return 2 * max(self.chosen.row_tokens, self.rejected.row_tokens)


def read_examples(path: Path) -> list[Example]:
    """Columns `prompt_ids`, `completion_ids` (list<int32>) and, if not all of the completion is learned, `trained`.

    Raises DataError naming file, row and column.
    """
    columns = _columns(path, ("prompt_ids", "completion_ids"), optional=("trained",))
    prompts, completions = columns["prompt_ids"], columns["completion_ids"]
    masks = columns.get("trained") or [np.ones(len(ids), np.bool_) for ids in completions]
    examples = []
    for row, (prompt, completion, mask) in enumerate(zip(prompts, completions, masks, strict=True)):
        if len(mask) != len(completion) or not mask.any():
            raise DataError(f"{path}: row {row}: trained marks {int(mask.sum())} of {len(completion)} tokens")
        examples.append(_example(prompt, completion, mask))
    return examples


def read_pairs(path: Path) -> list[PreferencePair]:
    """Columns `prompt_ids`, `chosen_ids`, `rejected_ids` (list<int32>) and `margin` (float).

    Raises DataError naming file, row and column.
    """
    columns = _columns(path, ("prompt_ids", "chosen_ids", "rejected_ids"), optional=("margin",))
    prompts = columns["prompt_ids"]
    margins = columns.get("margin") or [0.0] * len(prompts)
    return [
        PreferencePair(_example(prompt, chosen), _example(prompt, rejected), float(margin))
        for prompt, chosen, rejected, margin in zip(
            prompts, columns["chosen_ids"], columns["rejected_ids"], margins, strict=True
        )
    ]


def data_digest(pairs: Iterable[PreferencePair]) -> str:
    """Hex sha256 of the pairs' tokens, however they are stored."""
    state = hashlib.sha256()
    for pair in pairs:
        for side in (pair.chosen, pair.rejected):
            state.update(len(side.token_ids).to_bytes(8, "little") + np.ascontiguousarray(side.token_ids).data)
            state.update(np.packbits(side.trained).data)
    return state.hexdigest()


def _example(prompt: TokenIds, completion: TokenIds, mask: NDArray[np.bool_] | None = None) -> Example:
    given = np.ones(len(completion), np.bool_) if mask is None else mask
    return Example(np.concatenate([prompt, completion]), np.concatenate([np.zeros(len(prompt), np.bool_), given]))


def _columns(path: Path, names: Sequence[str], *, optional: Sequence[str]) -> dict[str, list[Any]]:
    try:
        found = parquet.read_table(path)
        table = found.select([*names, *(name for name in optional if name in found.column_names)])
    except (OSError, ArrowException, KeyError) as error:
        raise DataError(f"{path}: {error}; `headrace train` writes this file from [data]") from error
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    columns = {name: _values(table.column(name)) for name in table.column_names}
    for name in names:
        for row, ids in enumerate(columns[name]):
            if not len(ids):
                raise DataError(f"{path}: row {row}: {name} has no tokens")
    return columns


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Numpy arrays of a list column, numbers of a plain one."""
    whole = column.combine_chunks()
    if not pa.types.is_list(whole.type):
        return list(whole.to_pylist())
    values = whole.values.to_numpy(zero_copy_only=False)
    offsets = whole.offsets.to_numpy()
    return [values[start:end] for start, end in pairwise(offsets)]
