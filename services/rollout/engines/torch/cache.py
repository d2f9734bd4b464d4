"""Key-value cache of all rows, allocated once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace.services.rollout.engines.torch.architecture import Architecture


class KeyValueCache:
    """Keys and values by row and position; those of a token are adjacent.

    Positions that a row has not reached hold finite leftovers, never NaN: attention gives them the weight 0, and 0
    times a finite number is 0.
    """

    def __init__(
        self, arch: Architecture, *, rows: int, context_length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (arch.layers, rows, context_length, 2, arch.kv_heads, arch.head_dim)
        self._all = torch.zeros(shape, dtype=dtype, device=device)
        self._flat = self._all.view(arch.layers, rows * context_length, -1)
        self.rows = rows
        self.context_length = context_length

    def write(self, layer: int, places: Tensor, values: Tensor) -> None:
        """Writes `values` [tokens, 2 * kv_heads * head_dim] at `places` [tokens] = row * context_length + position."""
        self._flat[layer].index_copy_(0, places, values)

    def keys(self, layer: int, start: int, end: int, length: int) -> Tensor:
        """A view [end - start, kv_heads, length, head_dim] of rows [start, end)."""
        return self._all[layer, start:end, :length, 0].transpose(1, 2)

    def values(self, layer: int, start: int, end: int, length: int) -> Tensor:
        """A view [end - start, kv_heads, length, head_dim] of rows [start, end)."""
        return self._all[layer, start:end, :length, 1].transpose(1, 2)

    def gather(self, layer: int, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Copies of keys and values [rows, kv_heads, length, head_dim] of any rows."""
        # Not index_select: on a slice it would first copy the whole cache.
        both = self._all[layer, :, :length][rows]
        return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)

    def move_rows(self, sources: Sequence[int], targets: Sequence[int], lengths: Sequence[int]) -> None:
        """Moves the first lengths[i] positions of row sources[i] to row targets[i], as if simultaneously.

        A row that is both source and target is read before it is overwritten; only a cycle needs a temporary copy.
        """
        pending = {
            target: (self._all[:, source, :length], source)
            for source, target, length in zip(sources, targets, lengths, strict=True)
        }
        while pending:
            read = {source for _, source in pending.values()}
            free = [target for target in pending if target not in read]
            for target in free:
                content, _ = pending.pop(target)
                self._all[:, target, : content.shape[1]].copy_(content)
            if not free:
                target, (content, _) = next(iter(pending.items()))
                pending[target] = (content.clone(), -1)

    def copy_prefix(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copies the first `length` positions of one row to each of `targets`."""
        for target in targets:
            self._all[:, target, :length].copy_(self._all[:, source, :length])

    def clear(self) -> None:
        """Zeroes the cache, after a diverged model has left NaN in it."""
        self._all.zero_()
