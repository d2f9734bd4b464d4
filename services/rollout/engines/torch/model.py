"""The forward pass: one token per running row (`decode`), or sequences (`prefill`, `extend`, `score`).

Axes: rows = rows of the cache, seq = tokens of one sequence, tokens = rows * seq, flattened.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headrace.services.rollout.engines.torch.architecture import Architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from headrace.services.rollout.engines.torch.weights import Layer, ModelWeights

_SCORE_TOKENS = 256
"""Number of positions whose logits `score` materializes at a time."""

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, queries [tokens, heads * head_dim], keys and values [tokens, 2 * kv_heads * head_dim]) -> like queries."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows [start, end) of the cache, each with at most `length` positions after this step."""

    start: int
    end: int
    length: int


class Model:
    """Forward pass over weights, rotations and cache. Not thread-safe."""

    def __init__(self, arch: Architecture, weights: ModelWeights, rotations: Tensor, cache: KeyValueCache) -> None:
        """`rotations` is complex64 [context_length, head_dim / 2]."""
        self.weights = weights
        self.cache = cache
        self._arch = arch
        self._rotations = rotations
        self._positions = torch.arange(cache.context_length, device=rotations.device)
        self._row_starts = torch.arange(cache.rows, device=rotations.device) * cache.context_length

    def decode(self, token_ids: Tensor, positions: Tensor, row_blocks: Sequence[RowBlock]) -> Tensor:
        """Writes the tokens [rows] at `positions` [rows] of the first rows; returns float32 logits [rows, vocab].

        `row_blocks` cover those rows in order; each attends over its own length.
        """
        places = self._row_starts[: len(token_ids)] + positions
        masks = [self._mask(positions[part.start : part.end, None], part.length) for part in row_blocks]

        def attend(layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
            self.cache.write(layer, places, fresh)
            parts = []
            for part, mask in zip(row_blocks, masks, strict=True):
                keys = self.cache.keys(layer, part.start, part.end, part.length)
                values = self.cache.values(layer, part.start, part.end, part.length)
                # Query heads that share a key head take the sequence axis, so that no key is copied for them.
                grouped = queries[part.start : part.end].view(part.end - part.start, *self._grouped)
                parts.append(F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1))
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return self._logits(self._run(token_ids, positions, attend))

    def prefill(self, row: int, token_ids: Tensor) -> Tensor:
        """Writes the tokens [seq] from position 0 of one row; returns float32 logits [1, vocab] after the last."""
        places = self._row_starts[row] + self._positions[: len(token_ids)]
        hidden = self._run(token_ids, self._positions[: len(token_ids)], self._attend_causally(places))
        return self._logits(hidden[-1:])

    def extend(self, rows: Tensor, starts: Tensor, token_ids: Tensor, length: int) -> None:
        """Appends the tokens [rows, seq] to cached rows: row rows[i] continues at position starts[i].

        Sequences may be padded at their end: padding in the cache is overwritten before it is ever attended to (padding
        beyond the context goes to its last position, which no running row has reached). `length` is the highest
        position that is not padding, plus one.
        """
        count, seq = token_ids.shape
        last = self.cache.context_length - 1
        positions = (starts[:, None] + self._positions[:seq]).clamp_(max=last)
        places = (self._row_starts[rows][:, None] + positions).flatten()
        mask = torch.where(self._positions[:length] <= positions[:, :, None], 0.0, -math.inf)
        mask = mask.to(self.weights.norm.dtype)[:, None]

        def attend(layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
            self.cache.write(layer, places, fresh)
            keys, values = self.cache.gather(layer, rows, length)
            heads = queries.view(count, seq, self._arch.heads, self._arch.head_dim).transpose(1, 2)
            mixed = F.scaled_dot_product_attention(heads, keys, values, attn_mask=mask, enable_gqa=True)
            return mixed.transpose(1, 2).reshape(count * seq, -1)

        self._run(token_ids.flatten(), positions.flatten(), attend)

    def score(self, token_ids: Tensor) -> Tensor:
        """float32 [seq - 1]: logprob of token t+1 given the tokens up to t. Does not use the cache."""
        hidden = self._run(token_ids[:-1], self._positions[: len(token_ids) - 1], self._attend_causally(None))
        parts = []
        for start in range(0, len(hidden), _SCORE_TOKENS):
            logprobs = self._logits(hidden[start : start + _SCORE_TOKENS]).log_softmax(-1)
            targets = token_ids[start + 1 : start + 1 + len(logprobs), None]
            parts.append(logprobs.gather(1, targets).squeeze(1))
        return torch.cat(parts)

    def _run(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [tokens, hidden] before the last norm."""
        arch = self._arch
        x = self.weights.embedding[token_ids]
        rotation = self._rotations[positions].unsqueeze(1)
        for index, layer in enumerate(self.weights.layers):
            qkv = layer.qkv(F.rms_norm(x, (arch.hidden,), layer.attention_norm, arch.norm_eps))
            self._rotate(layer, qkv, rotation)
            x = layer.out.add(attend(index, qkv[:, : self._query_size], qkv[:, self._query_size :]), x)
            both = layer.gate_up(F.rms_norm(x, (arch.hidden,), layer.mlp_norm, arch.norm_eps))
            gated = F.silu(both[:, : arch.intermediate]).mul_(both[:, arch.intermediate :])
            x = layer.down.add(gated, x)
        return x

    def _rotate(self, layer: Layer, qkv: Tensor, rotation: Tensor) -> None:
        """Normalizes (Qwen3) and rotates queries and keys in place."""
        arch = self._arch
        heads = arch.heads + arch.kv_heads
        turned = qkv[:, : heads * arch.head_dim].view(len(qkv), heads, arch.head_dim)
        straight = turned
        if layer.head_norm is not None:
            straight = F.rms_norm(turned, (arch.head_dim,), None, arch.norm_eps).mul_(layer.head_norm)
        shape = (len(qkv), heads, arch.head_dim // 2, 2)
        pairs = torch.view_as_complex(straight.float().view(shape))
        if turned.dtype == torch.float32:
            torch.mul(pairs, rotation, out=torch.view_as_complex(turned.view(shape)))
        else:
            turned.copy_(torch.view_as_real(pairs * rotation).flatten(2))

    def _attend_causally(self, places: Tensor | None) -> Attend:
        """Causal self-attention of one sequence from position 0; writes to the cache at `places`, if given."""
        arch = self._arch

        def attend(layer: int, queries: Tensor, fresh: Tensor) -> Tensor:
            if places is not None:
                self.cache.write(layer, places, fresh)
            seq = len(queries)
            heads = queries.view(1, seq, arch.heads, arch.head_dim).transpose(1, 2)
            both = fresh.view(1, seq, 2, arch.kv_heads, arch.head_dim)
            keys, values = both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)
            mixed = F.scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True)
            return mixed.transpose(1, 2).reshape(seq, -1)

        return attend

    def _logits(self, hidden: Tensor) -> Tensor:
        return self.weights.head(
            F.rms_norm(hidden, (self._arch.hidden,), self.weights.norm, self._arch.norm_eps)
        ).float()

    def _mask(self, positions: Tensor, length: int) -> Tensor:
        """Additive mask [rows, 1, query heads per key head, length]: a row at position p sees positions up to p."""
        seen = self._positions[:length] <= positions
        mask = torch.where(seen, 0.0, -math.inf).to(self.weights.norm.dtype)
        return mask[:, None, None].expand(-1, 1, self._grouped[1], -1)

    @property
    def _grouped(self) -> tuple[int, int, int]:
        """(kv_heads, query heads per key head, head_dim)"""
        return self._arch.kv_heads, self._arch.heads // self._arch.kv_heads, self._arch.head_dim

    @property
    def _query_size(self) -> int:
        return self._arch.heads * self._arch.head_dim
