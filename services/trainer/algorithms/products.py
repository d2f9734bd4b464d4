"""Matrix products of float32 on a CPU by oneDNN: torch's own go to MKL, which uses half of an AMD processor's vectors.

A training step of a 4.2 M model takes 1.0 s in place of 1.5 s on one such core. Elsewhere, and for other dtypes and
devices, torch's own products are used.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FEW_ROWS = 8
"""Up to this many rows the cost of the call outweighs the faster product."""


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T` for x [rows, in] and weight [out, in]; not differentiable by itself."""
    if _worth_it(x, weight):
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), None, "none", [], "")
        return made
    return x @ weight.T


def wide_product(x: Tensor, weight: Tensor) -> Tensor:
    """float32 `x @ weight.T` of a low-precision x [rows, in] and weight [out, in], rounded nowhere; not differentiable.

    On CUDA in the tensor cores, which sum in float32 anyway. Elsewhere both are widened: give it a weight that is
    (`widened`), and it is done once.
    """
    if x.is_cuda and x.dtype == weight.dtype:
        return torch.mm(x, weight.T, out_dtype=torch.float32)
    return product(x.float(), weight.float())


def widened(weight: Tensor) -> Tensor:
    """The weight as `wide_product` wants it, for products with many parts of the rows."""
    return weight if weight.is_cuda else weight.float()


def on_onednn(weight: Tensor) -> bool:
    """Whether oneDNN computes products with `weight`; it copies operands that are not row-major."""
    return _worth_it(None, weight)


def speed_up(model: nn.Module) -> None:
    """Lets every `nn.Linear` of the model use these products, where they help."""
    for module in model.modules():
        if type(module) is nn.Linear and _worth_it(None, module.weight):
            setattr(module, "forward", _Forward(module))  # noqa: B010 - a method is replaced, knowingly


def slow_down(model: nn.Module) -> None:
    """Undoes `speed_up`, for callers with matrix products of their own, such as torch.compile."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), _Forward):
            del module.__dict__["forward"]


class _Forward:
    """Takes the place of one module's `forward`."""

    def __init__(self, module: nn.Linear) -> None:
        self._module = module

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._module.weight, self._module.bias
        if not _worth_it(x, weight) or x.numel() // x.shape[-1] <= _FEW_ROWS:
            return F.linear(x, weight, bias)
        rows = x.reshape(-1, x.shape[-1])
        made: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
        return made.view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, "none", [], "")
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        to_x = product(grad, weight.T) if ctx.needs_input_grad[0] else None
        to_weight = product(grad.T, x.T) if ctx.needs_input_grad[1] else None
        return to_x, to_weight, grad.sum(0) if ctx.has_bias else None


def _worth_it(x: Tensor | None, weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and (x is None or x.dtype == torch.float32)
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
