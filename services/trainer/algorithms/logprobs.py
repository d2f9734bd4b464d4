"""Logprobs and entropy of sampled tokens, from hidden states and the language-model head.

Axes: tokens = completion tokens of a micro-batch, hidden = model width, vocab = vocabulary. The [tokens, vocab] logits
are never held: they are made chunk by chunk, and made again in backward.
"""

from typing import Any, NamedTuple

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.products import on_onednn, product, wide_product, widened
from headrace.services.trainer.config.chunks import logprob_chunk

_CPU_ELEMENTS = 5_000_000
"""Logits at a time on a CPU: 20 MB stay in its cache, and every block above 32 MB costs page faults."""

_MANY_ROWS = 256
_LOW = (torch.bfloat16, torch.float16)


class TokenScores(NamedTuple):
    """Logprob and entropy of each sampled token, in nats, at the sampling temperature."""

    logprobs: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"]
    """Entropy of the whole next-token distribution at that position."""


@jaxtyped(typechecker=beartype)
def token_logprobs(
    hidden: Float[Tensor, "tokens hidden"],
    head: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
    *,
    temperature: Float[Tensor, " tokens"],
    chunk: int,
    fp32_head: bool = False,
) -> TokenScores:
    """Logprob of each target and entropy of its distribution, float32, differentiable in `hidden` and `head`.

    `chunk` is how many tokens' logits exist at a time (0 = by the device; on a CPU fewer, if the vocabulary is large).
    The product is taken in the dtype of `hidden`, the softmax in float32; float64 inputs stay float64. Matches
    `log_softmax(hidden @ head.T / temperature)` at the targets.

    With `fp32_head` the logits of bfloat16 inputs are not rounded to bfloat16 (the weight is, as an engine's); the
    gradient's own products stay in the dtype of `hidden`.
    """
    chunk = logprob_chunk(chunk, head.device.type)
    scored = _ChunkedLogprobs.apply(hidden, head, targets, temperature, chunk, fp32_head)  # type: ignore[no-untyped-call]
    return TokenScores(*scored)


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        targets: Tensor,
        temperature: Tensor,
        chunk: int,
        fp32_head: bool,
    ) -> tuple[Tensor, Tensor]:
        logits_of = _Logits(hidden, head.to(hidden.dtype), temperature, wide=fp32_head)
        logprobs, entropy, normalizers = (
            torch.empty(len(targets), dtype=_wide(hidden), device=hidden.device) for _ in range(3)
        )
        for part in _parts(len(targets), chunk, head):
            logits = logits_of(part)
            top = logits.amax(dim=1, keepdim=True)
            exponentials = logits.sub_(top).exp()
            total = exponentials.sum(dim=1)
            log_total = total.log()
            logprobs[part] = logits.gather(1, targets[part, None]).squeeze(1) - log_total
            entropy[part] = log_total - exponentials.mul_(logits).sum(dim=1) / total
            normalizers[part] = top.squeeze(1) + log_total
        ctx.save_for_backward(hidden, head, targets, temperature, normalizers, entropy)
        ctx.chunk, ctx.fp32_head = chunk, fp32_head
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, head, targets, temperature, normalizers, entropy = ctx.saved_tensors
        of_logprobs, of_entropy = grads
        if of_logprobs is None:
            of_logprobs = torch.zeros_like(normalizers)
        weight = head.to(hidden.dtype)
        logits_of = _Logits(hidden, weight, temperature, wide=ctx.fp32_head)
        turned = weight.T.contiguous() if on_onednn(weight) else weight.T
        to_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        to_head = torch.zeros_like(head, dtype=_wide(hidden)) if ctx.needs_input_grad[1] else None
        for part in _parts(len(targets), ctx.chunk, head):
            logprob = logits_of(part).sub_(normalizers[part, None])
            scale = temperature[part].to(logprob.dtype).reciprocal()
            to_chosen = of_logprobs[part].to(logprob.dtype) * scale
            if of_entropy is None:
                to_logits = logprob.exp_().mul_(-to_chosen[:, None])
            else:
                probability = logprob.exp()
                to_entropy = (of_entropy[part].to(logprob.dtype) * scale)[:, None]
                to_logits = logprob.add_(entropy[part, None]).mul_(to_entropy).add_(to_chosen[:, None])
                to_logits.mul_(probability.neg_())
            to_logits.scatter_add_(1, targets[part, None], to_chosen[:, None])
            to_product = to_logits.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[part] = product(to_product, turned)
            if to_head is not None:
                _add_product(to_head, to_product, hidden[part])
        return to_hidden, None if to_head is None else to_head.to(head.dtype), None, None, None, None


class _Logits:
    """Computes float32 (or float64) logits of a slice of tokens at their temperatures, in fresh memory."""

    def __init__(self, hidden: Tensor, weight: Tensor, temperature: Tensor, *, wide: bool) -> None:
        self._wide = wide and hidden.dtype in _LOW
        self._hidden, self._temperature = hidden, temperature
        self._weight = widened(weight) if self._wide else weight

    def __call__(self, part: slice) -> Tensor:
        made = (wide_product if self._wide else product)(self._hidden[part], self._weight)
        return made.to(_wide(self._hidden)).div_(self._temperature[part][:, None])


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left.T @ right`. With few rows oneDNN's faster product does not pay for its copies."""
    if total.dtype == left.dtype and (len(left) < _MANY_ROWS or not on_onednn(total)):
        total.addmm_(left.T, right)
    else:
        total += product(left.T, right.T).to(total.dtype)


def _wide(hidden: Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _parts(count: int, chunk: int, head: Tensor) -> list[slice]:
    if head.device.type == "cpu":
        chunk = max(1, min(chunk, _CPU_ELEMENTS // max(len(head), 1)))
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]
