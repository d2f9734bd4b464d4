"""Logprobs and entropy of sampled tokens, from hidden states and the language-model head.

Axes: tokens = completion tokens of a micro-batch, hidden = model width, vocab = vocabulary. The [tokens, vocab] logits
are never held: they are made chunk by chunk, and made again in backward.
"""

from typing import Any, NamedTuple

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.products import on_onednn, product, wide_product, widened
from headrace.services.trainer.config.chunks import logprob_chunk

_CPU_ELEMENTS = 5_000_000
"""Logits at a time on a CPU: 20 MB stay in its cache, and every block above 32 MB costs page faults."""

_MANY_ROWS = 256
_LOW = (torch.bfloat16, torch.float16)


class TokenScores(NamedTuple):
    """Logprobs and entropy of each sampled token, in nats, at the sampling temperature."""

    logprobs: Float[Tensor, " tokens"]
    """Of the policy that samples: among the ids that a cut-off draw has kept."""
    entropy: Float[Tensor, " tokens"]
    """Entropy of the whole next-token distribution at that position."""
    full: Float[Tensor, " tokens"]
    """Logprobs over the whole vocabulary: the same as `logprobs` where nothing is cut off."""


class KeptIds(NamedTuple):
    """The ids that each token was drawn from, in compressed rows: token t has the next counts[t] of `ids`."""

    counts: Int[Tensor, " tokens"]
    """0 = the whole vocabulary."""
    ids: Int[Tensor, " ids"]
    """Each of a token once."""
    most: int
    """The largest count, known on the host: reading it from the device would wait for all that is queued there."""

    def of(self, chosen: Bool[Tensor, " tokens"]) -> "KeptIds":
        """The ids of some of the tokens."""
        return KeptIds(self.counts[chosen], self.ids[chosen.repeat_interleave(self.counts)], self.most)


@jaxtyped(typechecker=beartype)
def token_logprobs(
    hidden: Float[Tensor, "tokens hidden"],
    head: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
    *,
    temperature: Float[Tensor, " tokens"],
    chunk: int,
    fp32_head: bool = False,
    kept: KeptIds | None = None,
) -> TokenScores:
    """Logprobs of each target and entropy of its distribution, float32, differentiable in `hidden` and `head`.

    `chunk` is how many tokens' logits exist at a time (0 = by the device; on a CPU fewer, if the vocabulary is large).
    The product is taken in the dtype of `hidden`, the softmax in float32; float64 inputs stay float64. Matches
    `log_softmax(hidden @ head.T / temperature)` at the targets.

    With `fp32_head` the logits of bfloat16 inputs are not rounded to bfloat16 (the weight is, as an engine's); the
    gradient's own products stay in the dtype of `hidden`.

    A token with `kept` ids has the logprob logit - logsumexp over them, whose gradient reaches no other logit; one that
    was drawn from a single id has 0, and no gradient. Its target must be among its ids.
    """
    chunk = logprob_chunk(chunk, head.device.type)
    rows = None if kept is None else _KeptRows(kept)
    full, entropy, among = _ChunkedLogprobs.apply(hidden, head, targets, temperature, chunk, fp32_head, rows)  # type: ignore[no-untyped-call]
    return TokenScores(full if kept is None else torch.where(kept.counts > 0, among, full), entropy, full)


class _KeptRows:
    """Reads the kept ids of a slice of tokens as a padded table: sums over its rows are the same bits every time."""

    def __init__(self, kept: KeptIds) -> None:
        self._counts, self._ids = kept.counts, kept.ids
        self._starts = kept.counts.cumsum(0) - kept.counts
        self._most = max(kept.most, 1)

    def __call__(self, part: slice) -> tuple[Tensor, Tensor]:
        """Ids and which of them count, [tokens, most] each."""
        column = torch.arange(self._most, device=self._ids.device)
        places = (self._starts[part, None] + column).clamp_(max=len(self._ids) - 1)
        return self._ids[places], column < self._counts[part, None]


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
        kept: _KeptRows | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        logits_of = _Logits(hidden, head.to(hidden.dtype), temperature, wide=fp32_head)
        logprobs, entropy, normalizers, among = (
            torch.empty(len(targets), dtype=_wide(hidden), device=hidden.device) for _ in range(4)
        )
        for part in _parts(len(targets), chunk, head):
            logits = logits_of(part)
            top = logits.amax(dim=1, keepdim=True)
            logits.sub_(top)
            if kept is not None:
                ids, counts = kept(part)
                mass = logits.gather(1, ids).masked_fill_(~counts, -torch.inf).logsumexp(1)
                among[part] = logits.gather(1, targets[part, None]).squeeze(1) - mass
            exponentials = logits.exp()
            total = exponentials.sum(dim=1)
            log_total = total.log()
            logprobs[part] = logits.gather(1, targets[part, None]).squeeze(1) - log_total
            entropy[part] = log_total - exponentials.mul_(logits).sum(dim=1) / total
            normalizers[part] = top.squeeze(1) + log_total
        ctx.save_for_backward(hidden, head, targets, temperature, normalizers, entropy)
        ctx.chunk, ctx.fp32_head, ctx.kept = chunk, fp32_head, kept
        ctx.set_materialize_grads(False)
        return logprobs, entropy, among if kept is not None else None

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, head, targets, temperature, normalizers, entropy = ctx.saved_tensors
        of_logprobs, of_entropy, of_among = grads
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
            to_target, among = to_chosen, None
            if of_among is not None:
                to_among = of_among[part].to(logprob.dtype) * scale
                to_target, among = to_chosen + to_among, _among_gradient(logprob, ctx.kept(part), to_among)
            if of_entropy is None:
                to_logits = logprob.exp_().mul_(-to_chosen[:, None])
            else:
                probability = logprob.exp()
                to_entropy = (of_entropy[part].to(logprob.dtype) * scale)[:, None]
                to_logits = logprob.add_(entropy[part, None]).mul_(to_entropy).add_(to_chosen[:, None])
                to_logits.mul_(probability.neg_())
            to_logits.scatter_add_(1, targets[part, None], to_target[:, None])
            if among is not None:
                to_logits.scatter_add_(1, *among)
            to_product = to_logits.to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[part] = product(to_product, turned)
            if to_head is not None:
                _add_product(to_head, to_product, hidden[part])
        return to_hidden, None if to_head is None else to_head.to(head.dtype), None, None, None, None, None


def _among_gradient(logprob: Tensor, kept: tuple[Tensor, Tensor], of_tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Kept ids [tokens, most], and the gradient of their logits by way of the normalizer over them."""
    ids, counts = kept
    # From logprobs over the vocabulary, whose own normalizer falls out.
    shares = logprob.gather(1, ids).masked_fill_(~counts, -torch.inf).softmax(1)
    return ids, (shares * -of_tokens[:, None]).masked_fill_(~counts, 0.0)


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
