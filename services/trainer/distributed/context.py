"""Context parallelism: ranks in a row share the tokens of their rows, and exchange heads around attention.

Each of `size` ranks has every `size`-th part of a row, all its layers compute on that part, and an all-to-all gives
attention whole sequences of a part of the heads (Ulysses, arXiv 2309.14509). Results of single tokens are joined again,
so that losses see whole rows and are equal on all these ranks.

Attention is exchanged where transformers looks up its implementation, for all models of this process alike.
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch import distributed as dist
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from headrace.wire.errors import ConfigError
from headrace.wire.weights.collective import with_watchdog

NAME = "headrace_context"
"""Of the attention implementation."""
_BY_LENGTH = {"dynamic", "longrope"}
"""Rotary embeddings whose frequencies transformers chooses by the largest position of a forward pass."""


class ContextGroup:
    """The ranks that share this one's rows. Every rank of a group makes the same calls, in the same order."""

    def __init__(self, size: int, *, kinds: str, timeout_s: float) -> None:
        """Makes the groups of `size` ranks in a row, on all ranks of the default group together."""
        with with_watchdog():
            wait = timedelta(seconds=timeout_s)
            self._group, _ = dist.new_subgroups(size, timeout=wait, backend=kinds)  # type: ignore[no-untyped-call]
        self.size = size
        self.rank = dist.get_rank(self._group)
        AttentionInterface.register(NAME, self._attention)
        AttentionMaskInterface.register(NAME, self._mask)

    def part(self, token_ids: Int[Tensor, "rows seq"]) -> tuple[Int[Tensor, "rows part"], Int[Tensor, "rows part"]]:
        """Returns this rank's tokens of each row, and their positions. Rows are padded at their ends to divide."""
        length = self._length(token_ids.shape[1])
        token_ids = F.pad(token_ids, (0, length * self.size - token_ids.shape[1]))
        mine = slice(self.rank * length, (self.rank + 1) * length)
        positions = torch.arange(mine.start, mine.stop, device=token_ids.device)
        return token_ids[:, mine], positions.expand(len(token_ids), -1)

    def own(self, places: Int[Tensor, " tokens"], seq: int) -> tuple[Bool[Tensor, " tokens"], Int[Tensor, " own"]]:
        """Which of the places in rows of `seq` tokens are in this rank's part, and where they are in it."""
        length = self._length(seq)
        own = places // length == self.rank
        return own, places[own] - self.rank * length

    def join(self, values: Float[Tensor, "own ..."], own: Bool[Tensor, " tokens"]) -> Float[Tensor, "..."]:
        """The values of all tokens, on every rank of the group; each rank's gradient goes back to its own tokens.

        A loss that all these ranks compute alike then has, over the group, its gradient once.
        """
        joined: Tensor = _Join.apply(values, own, self._group)  # type: ignore[no-untyped-call]
        return joined

    def _length(self, seq: int) -> int:
        return -(-seq // self.size)

    def _mask(self, q_length: int, kv_length: int, **more: Any) -> Tensor | None:
        """Transformers' mask of the whole rows, of which the model sees its part."""
        found: Tensor | None = sdpa_mask(q_length=q_length * self.size, kv_length=kv_length * self.size, **more)
        return found

    def _attention(
        self,
        module: nn.Module,
        query: Float[Tensor, "rows heads part dim"],
        key: Float[Tensor, "rows kv_heads part dim"],
        value: Float[Tensor, "rows kv_heads part dim_v"],
        attention_mask: Tensor | None,
        **more: Any,
    ) -> tuple[Float[Tensor, "rows part heads dim_v"], None]:
        heads, kv_heads = query.shape[1], key.shape[1]
        if kv_heads % self.size:
            # Each rank needs those of its own heads: whole copies, where there are fewer than ranks.
            key, value = (each.repeat_interleave(heads // kv_heads, dim=1) for each in (key, value))
        whole = [self._exchanged(each) for each in (query, key, value)]
        groups = whole[0].shape[1] // whole[1].shape[1]
        told = SimpleNamespace(is_causal=getattr(module, "is_causal", True), num_key_value_groups=groups)
        found, _ = sdpa_attention_forward(told, *whole, attention_mask, **more)
        return self._exchanged(found), None

    def _exchanged(self, tensor: Float[Tensor, "rows one other dim"]) -> Float[Tensor, "rows one_part more_other dim"]:
        """Divides the first of the two middle dimensions over the group, and joins the other in the order of ranks."""
        parts = torch.stack(tensor.chunk(self.size, dim=1))
        exchanged: Tensor = _Exchange.apply(parts, self._group)  # type: ignore[no-untyped-call]
        return exchanged.movedim(0, 2).flatten(2, 3)


def share_attention(model: PreTrainedModel, group: ContextGroup) -> None:
    """Gives `model` the attention over the group.

    Raises ConfigError if its heads cannot be divided, or if it looks at a row's length, of which a rank sees its part.
    """
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", 0)
    if heads % group.size:
        raise ConfigError(f"trainer.cp = {group.size}: the model has {heads} attention heads, which it does not divide")
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {str(part.get("rope_type")) for part in (rope, *rope.values()) if isinstance(part, dict)}
    by_length = sorted(kinds & _BY_LENGTH)
    if getattr(config, "attn_temperature_tuning", False):
        by_length.append("attn_temperature_tuning")
    if by_length:
        raise ConfigError(
            f"trainer.cp = {group.size}: the model's {by_length[0]} depends on the length of a row, of which each rank "
            "sees its part. Set trainer.cp = 1"
        )
    model.set_attn_implementation(NAME)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        found = torch.empty_like(parts, memory_format=torch.contiguous_format)
        dist.all_to_all_single(found, parts.contiguous(), group=group)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Exchange.apply(grads[0], ctx.group), None  # type: ignore[no-untyped-call]


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, own: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.save_for_backward(own)
        ctx.set_materialize_grads(False)
        whole = values.new_zeros(len(own), *values.shape[1:])
        whole[own] = values
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        return None if grads[0] is None else grads[0][ctx.saved_tensors[0]], None, None
