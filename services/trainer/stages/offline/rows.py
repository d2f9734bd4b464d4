"""Converts examples to the tensors of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.stages.offline.examples import Example


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedRows:
    """Rows padded at their ends, and the trained tokens of all examples, one example after the other."""

    token_ids: Int[Tensor, "rows seq"]
    positions: Int[Tensor, "rows seq"] | None
    """Position of each token in its example; None if every row holds one example."""
    bounds: Int[Tensor, " borders"] | None
    """Where the examples of the one row begin, and its end; None if rows are not joined to one."""
    rows: Int[Tensor, " tokens"]
    places: Int[Tensor, " tokens"]
    """Position of the hidden state that predicts the token."""
    targets: Int[Tensor, " tokens"]
    temperature: Float[Tensor, " tokens"]
    """1 everywhere: examples were not sampled."""
    lengths: Int[Tensor, " examples"]
    """Trained tokens of each example."""


def make_rows(packs: Sequence[Sequence[Example]], device: torch.device, *, joined: bool = False) -> PaddedRows:
    """Builds one row for each pack; the last token of each example is left out: it predicts nothing.

    `joined`: all packs in one row without padding, for models that need the bounds of their sequences.
    """
    if joined:
        packs = [[example for pack in packs for example in pack]]
    longest = max(sum(example.row_tokens for example in pack) for pack in packs)
    token_ids = np.zeros((len(packs), longest), dtype=np.int64)
    # Padding goes on counting: each padded token would otherwise be a sequence of its own.
    positions = np.tile(np.arange(longest, dtype=np.int64), (len(packs), 1))
    rows: list[NDArray[np.int64]] = []
    places: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    for row, pack in enumerate(packs):
        start = 0
        for example in pack:
            end = start + example.row_tokens
            token_ids[row, start:end] = example.token_ids[:-1]
            positions[row, start:] = np.arange(longest - start)
            chosen = np.flatnonzero(example.trained)
            rows.append(np.full(len(chosen), row, np.int64))
            places.append(start + chosen - 1)
            targets.append(example.token_ids[chosen])
            start = end
    lengths = np.array([len(part) for part in targets], np.int64)
    borders = np.cumsum([0, *(example.row_tokens for example in packs[0])], dtype=np.int32)

    def on_device(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return PaddedRows(
        token_ids=on_device(token_ids),
        positions=on_device(positions) if any(len(pack) > 1 for pack in packs) else None,
        bounds=on_device(borders) if joined else None,
        rows=on_device(np.concatenate(rows)),
        places=on_device(np.concatenate(places)),
        targets=on_device(np.concatenate(targets).astype(np.int64)),
        temperature=torch.ones(int(lengths.sum()), device=device),
        lengths=on_device(lengths),
    )


def last_scores(backend: Backend, examples: Sequence[Example]) -> Float[Tensor, " examples"]:
    """Scores of a model with a scalar head at the last token of each whole sequence. Carries the gradient."""
    scores: Tensor = backend(*last_places(examples, backend.device)).squeeze(-1)
    return scores


def last_places(examples: Sequence[Example], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns whole sequences [rows, seq], and row and place [rows] of the last token of each, which is scored."""
    longest = max(len(example.token_ids) for example in examples)
    token_ids = np.zeros((len(examples), longest), dtype=np.int64)
    for row, example in enumerate(examples):
        token_ids[row, : len(example.token_ids)] = example.token_ids
    ends = np.array([len(example.token_ids) - 1 for example in examples], np.int64)
    rows = np.arange(len(examples), dtype=np.int64)
    return tuple(torch.from_numpy(array).to(device) for array in (token_ids, rows, ends))  # type: ignore[return-value]
