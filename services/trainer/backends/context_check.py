"""Checks that a model whose tokens are divided over ranks computes what each rank computes of whole rows.

Only attention is exchanged (`headrace.services.trainer.distributed.context`): a layer that passes on what it has seen
of a row in another way, such as linear attention or a convolution, would see its part alone. No list of families would
stay true, so two short rows are scored both ways, and their gradients compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.model.model import Policy, TrainedModule
from headrace.wire.errors import ConfigError
from headrace.wire.telemetry.logs import get_logger

_PART = 6
"""Tokens of each rank's part."""
_SHARE = 0.1
"""Largest difference, as a share of the effect that the first part's tokens have on the last part's."""
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.05}
"""Least difference that counts, in nats or outputs: products of other shapes are rounded otherwise."""
_OF_GRADIENT = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Largest difference of the gradients, as a share of their norm."""
log = get_logger("trainer.context")


def check_context(backend: Backend) -> None:
    """Raises ConfigError for a model whose tokens cannot be divided. Every rank must call it; gradients are dropped."""
    module, ranks = backend.module, backend.ranks
    kind, size = module.model.config.model_type, ranks.context_size
    rows = _rows(module.model.config.get_text_config().vocab_size, size * _PART - 1, backend.device)
    other = rows.clone()
    other[:, :_PART] = rows.flip(1)[:, :_PART]
    with _telling_head(module):
        try:
            shared, of_shared = _scored(backend, rows, 1 / ranks.data_size)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ConfigError(f"trainer.cp = {size} cannot be used with {kind} models: {error}. Set it to 1") from error
        with module.whole_rows():
            whole, of_whole = _scored(backend, rows, 1 / ranks.size)
            with torch.no_grad():
                moved, _ = _scored(backend, other, 0.0)
    effect = float((moved - whole).abs()[:, -_PART + 1 :].max())
    gap = float((shared - whole).abs().max())
    squares = torch.stack([_squares(of_shared, of_whole), _squares(of_whole)])
    difference, norm = ranks.sum(squares).sqrt().tolist()
    log.info("context_checked", model=kind, gap=gap, effect=effect, gradient_gap=difference, gradient_norm=norm)
    dtype = module.forward_dtype
    equal = gap <= _SHARE * effect + _ROUNDING[dtype] and difference <= _OF_GRADIENT[dtype] * norm
    if ranks.agree(not equal):
        raise ConfigError(
            f"trainer.cp = {size}: {kind} models pass on what they have read of a row by more than attention, which "
            f"alone is exchanged between ranks (scores differ by {gap:.2g}, gradients by "
            f"{difference / max(norm, 1e-30):.2g} of their norm). Set trainer.cp = 1"
        )


@contextmanager
def _telling_head(module: TrainedModule) -> Iterator[None]:
    """Within it a value model's head is not of zeros, as a new one is: it would score all rows alike."""
    if isinstance(module, Policy):
        yield
        return
    head = _local(module.head.detach())
    kept = head.clone()
    head.copy_(torch.linspace(-1.0, 1.0, head.numel()).view_as(head))
    try:
        yield
    finally:
        head.copy_(kept)


def _rows(vocabulary: int, length: int, device: torch.device) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (2, length), generator=draw).to(device)


def _scored(backend: Backend, token_ids: Tensor, share: float) -> tuple[Tensor, list[Tensor]]:
    """Scores of all places, [rows, seq], and with a `share` the gradients of their mean on this rank's weights."""
    count, length = token_ids.shape
    device = token_ids.device
    rows = torch.arange(count, device=device).repeat_interleave(length)
    places = torch.arange(length, device=device).repeat(count)
    inputs: tuple[object, ...] = (token_ids, rows, places)
    if isinstance(backend.module, Policy):
        inputs = (*inputs, token_ids.roll(-1, 1).flatten(), torch.ones(count * length, device=device), 0)
    found = backend(*inputs)
    scores: Tensor = found.logprobs if isinstance(backend.module, Policy) else found[:, 0]
    gradients: list[Tensor] = []
    if share:
        backend.backward(scores.square().mean() * share, last=True)
        gradients = [_local(weight.grad) for weight in _trained(backend.module) if weight.grad is not None]
        backend.discard()
    return scores.detach().view(count, length), gradients


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _squares(one: list[Tensor], other: list[Tensor] | None = None) -> Tensor:
    """The sum of squares of tensors, or of their differences from others."""
    parts = one if other is None else [left - right for left, right in zip(one, other, strict=True)]
    return sum((part.double().square().sum().cpu() for part in parts), torch.zeros((), dtype=torch.float64))
