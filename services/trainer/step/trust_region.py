"""TRPO's step (arXiv 1502.05477): the gradient through the inverse of the KL's Hessian, cut to a trust region.

The KL is that of the old policy to the new one over the whole vocabulary, the mean over trained tokens. Its Hessian at
the old weights is never held: products with it are a gradient of a gradient, for which the model computes its
attention and products plainly. One device: the products would have to be reduced over ranks.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from headrace.services.trainer.algorithms.products import slow_down, speed_up
from headrace.services.trainer.step.batch import MicroBatch, micro_batch
from headrace.services.trainer.step.experience import Experience
from headrace.services.trainer.step.forward import score_tokens, shares_of
from headrace.services.trainer.step.inputs import StepContext
from headrace.services.trainer.step.policy_update import PolicyUpdate
from headrace.services.trainer.step.reductions import Sums

Product = Callable[[Float[Tensor, " weights"]], Float[Tensor, " weights"]]


def trust_region_step(context: StepContext, experience: Experience, rows: Sequence[int]) -> float:
    """Steps along the gradient in the weights' `grad`, which it clears; returns its norm.

    The weights stay as they are if the gradient is 0 or not finite, or if no step of the line search lowers the loss
    within the bound (`trust_line_steps` in the metrics is then all of them).
    """
    region, table = _Region(context, experience, rows), context.config.table
    gradient = region.take_gradient()
    norm = float(gradient.norm())
    if not norm or not math.isfinite(norm):
        return norm
    with region.differentiable_twice():
        direction = conjugate_gradients(region.curvature, gradient, steps=table.trust_cg_steps)
        bent = float(direction @ region.curvature(direction))
    context.models.policy.before_change()
    tried, kl = region.search(-direction * math.sqrt(2 * table.trust_kl / bent)) if bent > 0 else (0, 0.0)
    context.sums.most("trust_line_steps", float(tried))
    context.sums.most("trust_kl", kl)
    return norm


def conjugate_gradients(
    product: Product, target: Float[Tensor, " weights"], *, steps: int
) -> Float[Tensor, " weights"]:
    """Solves `product(x) = target` for a positive definite product, to a residual of 1e-10 of the target."""
    found, residual = torch.zeros_like(target), target.clone()
    direction, squared = residual.clone(), residual @ residual
    enough = squared * 1e-20
    for _ in range(steps):
        bent = product(direction)
        length = squared / (direction @ bent)
        found += length * direction
        residual -= length * bent
        before, squared = squared, residual @ residual
        if squared <= enough:
            break
        direction = residual + squared / before * direction
    return found


@dataclass(frozen=True, slots=True)
class _Micro:
    batch: MicroBatch
    rows: list[int]
    weights: Float[Tensor, " tokens"]
    """Of each token in the mean KL: 0 where it is not trained."""


class _Region:
    """The surrogate and the KL around the weights before the step, as flat vectors in float64."""

    def __init__(self, context: StepContext, experience: Experience, rows: Sequence[int]) -> None:
        self._context, self._experience, self._rows = context, experience, rows
        policy = context.models.policy
        self._module = policy.module
        self._weights = [weight for _, weight in self._module.named_weights() if weight.requires_grad]
        self._old = [weight.detach().clone() for weight in self._weights]
        kept = float(experience.kept[experience.places(rows)].sum())
        rollouts = [context.batch.rollouts[row] for row in rows]
        self._micros = []
        for share in shares_of(rollouts, policy, token_budget=context.config.micro_batch_tokens):
            mine = [rows[place] for place in share.rows]
            weights = experience.kept[experience.places(mine)].double().to(policy.device) / kept
            self._micros.append(_Micro(micro_batch([rollouts[n] for n in share.rows], policy.device), mine, weights))

    def take_gradient(self) -> Float[Tensor, " weights"]:
        """The accumulated gradient, which is cleared."""
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in self._weights]
        flat = _flat(grads)
        self._context.models.policy.discard()
        return flat

    @contextlib.contextmanager
    def differentiable_twice(self) -> Iterator[None]:
        """Within it the model has no product or attention whose gradient has none."""
        slow_down(self._module.model)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            speed_up(self._module.model)

    def curvature(self, vector: Float[Tensor, " weights"]) -> Float[Tensor, " weights"]:
        """The product of the KL's Hessian, damped, with a vector."""
        total = vector * self._context.config.table.trust_damping
        for micro in self._micros:
            self._context.check()
            logprobs = self._distributions(micro)
            fixed = logprobs.detach()
            kl = (micro.weights * (fixed.exp() * (fixed - logprobs)).sum(-1)).sum()
            slopes = torch.autograd.grad(kl, self._weights, create_graph=True, materialize_grads=True)
            pairs = zip(slopes, self._split(vector), strict=True)
            along = torch.stack([(slope * part).sum() for slope, part in pairs]).sum()
            total = total + _flat(torch.autograd.grad(along, self._weights, materialize_grads=True))
        return total

    def search(self, step: Float[Tensor, " weights"]) -> tuple[int, float]:
        """Halves `step` until it lowers the loss within the bound; returns how often it tried, and the KL.

        The old weights come back if it never does: then the KL is 0.
        """
        table = self._context.config.table
        before = self._loss()
        for tried in range(table.trust_line_steps):
            self._set(step * 0.5**tried)
            kl = self._kl(step * 0.5**tried)
            if kl <= table.trust_kl and self._loss() < before:
                return tried + 1, kl
        self._set(torch.zeros_like(step))
        return table.trust_line_steps, 0.0

    def _loss(self) -> float:
        """The surrogate's loss at the current weights."""
        context = dataclasses.replace(self._context, sums=Sums())
        update = PolicyUpdate(context, self._experience, self._rows, first=False)
        total = 0.0
        with torch.no_grad():
            for micro in self._micros:
                scores = score_tokens(context.models.policy, micro.batch, chunk=context.config.logprob_chunk)
                total += float(update.loss(scores, micro.batch, micro.rows, counts=True))
        return total

    @torch.no_grad()
    def _kl(self, step: Float[Tensor, " weights"]) -> float:
        """The KL of the old policy to the one after `step`, whose weights stay; infinite if it is no number."""
        total = 0.0
        for micro in self._micros:
            self._set(torch.zeros_like(step))
            old = self._distributions(micro)
            self._set(step)
            total += float((micro.weights * (old.exp() * (old - self._distributions(micro))).sum(-1)).sum())
        return total if math.isfinite(total) else math.inf

    def _distributions(self, micro: _Micro) -> Float[Tensor, "tokens vocab"]:
        """Logprobs of the whole vocabulary in float64, at each trained token of a micro-batch."""
        batch = micro.batch
        states = self._module.hidden(batch.token_ids)[batch.rows, batch.places]
        logits = states.double() @ self._module.head.double().T
        return (logits / batch.temperature.double()[:, None]).log_softmax(-1)

    @torch.no_grad()
    def _set(self, step: Float[Tensor, " weights"]) -> None:
        for weight, old, part in zip(self._weights, self._old, self._split(step), strict=True):
            weight.copy_(old + part)

    def _split(self, vector: Float[Tensor, " weights"]) -> list[Tensor]:
        parts = torch.split(vector, [weight.numel() for weight in self._weights])
        return [part.view_as(weight).to(weight) for part, weight in zip(parts, self._weights, strict=True)]


def _flat(tensors: Sequence[Tensor]) -> Float[Tensor, " weights"]:
    return torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])
