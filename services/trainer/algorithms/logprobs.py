"""Logprobs and entropy of sampled tokens, from hidden states and the language-model head.

Axes: tokens = completion tokens of a micro-batch, hidden = model width, vocab = vocabulary. The [tokens, vocab] logits
are never held: they are made chunk by chunk, and made again in backward.
"""

from typing import Any, NamedTuple

import torch
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor

from services.trainer.algorithms.products import product


class TokenScores(NamedTuple):
    """What the policy says about each sampled token, in nats, at the sampling temperature."""

    logprobs: Float[Tensor, " tokens"]
    entropy: Float[Tensor, " tokens"]
    """Of the whole next-token distribution at that place."""


@jaxtyped(typechecker=beartype)
def token_logprobs(
    hidden: Float[Tensor, "tokens hidden"],
    head: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
    *,
    temperature: Float[Tensor, " tokens"],
    chunk: int,
) -> TokenScores:
    """Logprob of each target and entropy of its distribution, float32, differentiable in `hidden` and `head`.

    `chunk` is how many tokens' logits exist at a time. The product is taken in the dtype of `hidden`, the softmax in
    float32; float64 inputs stay float64. Matches `log_softmax(hidden @ head.T / temperature)` at the targets.
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}, must be at least 1")
    scored = _ChunkedLogprobs.apply(hidden, head, targets, temperature, chunk)  # type: ignore[no-untyped-call]
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
    ) -> tuple[Tensor, Tensor]:
        weight = head.to(hidden.dtype)
        logprobs, entropy, normalizers = (
            torch.empty(len(targets), dtype=_wide(hidden), device=hidden.device) for _ in range(3)
        )
        for part in _parts(len(targets), chunk):
            logits = _logits(hidden[part], weight, temperature[part])
            top = logits.amax(dim=1, keepdim=True)
            exponentials = (logits - top).exp()
            total = exponentials.sum(dim=1)
            normalizer = top.squeeze(1) + total.log()
            logprobs[part] = logits.gather(1, targets[part, None]).squeeze(1) - normalizer
            entropy[part] = normalizer - (exponentials.mul_(logits)).sum(dim=1) / total
            normalizers[part] = normalizer
        ctx.save_for_backward(hidden, head, targets, temperature, normalizers, entropy)
        ctx.chunk = chunk
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden, head, targets, temperature, normalizers, entropy = ctx.saved_tensors
        of_logprobs, of_entropy = grads
        weight = head.to(hidden.dtype)
        to_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        to_head = torch.zeros_like(head, dtype=_wide(hidden)) if ctx.needs_input_grad[1] else None
        for part in _parts(len(targets), ctx.chunk):
            logits = _logits(hidden[part], weight, temperature[part])
            logprob = logits.sub_(normalizers[part, None])
            probability = logprob.exp()
            to_logits = torch.zeros_like(probability)
            if of_entropy is not None:
                to_logits -= probability * (logprob + entropy[part, None]) * of_entropy[part, None]
            if of_logprobs is not None:
                to_logits -= probability * of_logprobs[part, None]
                to_logits.scatter_add_(1, targets[part, None], of_logprobs[part, None].to(to_logits.dtype))
            to_logits /= temperature[part, None]
            to_product = to_logits.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[part] = product(to_product, weight.T)
            if to_head is not None:
                to_head += product(to_product.T, hidden[part].T).to(to_head.dtype)
        return to_hidden, None if to_head is None else to_head.to(head.dtype), None, None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    return product(hidden, weight).to(_wide(hidden)) / temperature[:, None]


def _wide(hidden: Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _parts(count: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]
