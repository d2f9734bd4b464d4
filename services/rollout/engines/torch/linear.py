"""Matrix products with weights packed once for the device.

On a CPU in float32, torch's own `linear` calls MKL, which uses half of the vector width on AMD processors; oneDNN with
a packed weight is 2.3 times as fast there and, except for very few rows, never slower elsewhere. The operators are
those that torch's compiler emits; if a torch build lacks them, `linear` is used.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_FEW_ROWS = 2
"""Up to this many rows, the overhead of the call outweighs the faster product."""

_SMALL_BYTES = 16 * 1024 * 1024
"""Weights up to this size are also kept unpacked, for inputs of few rows."""


class Linear:
    """`x @ weight.T + bias` for x [rows, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """`weight` is [out, in]."""
        self._weight: Tensor | None = weight
        self._bias = bias
        self._packed: Tensor | None = None
        if _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
            if weight.numel() * weight.itemsize > _SMALL_BYTES:
                self._weight = None

    def __call__(self, x: Tensor) -> Tensor:
        """The product, [rows, out]."""
        if self._packed is None or (self._weight is not None and x.shape[0] <= _FEW_ROWS):
            return F.linear(x, self._weight, self._bias)  # type: ignore[arg-type]
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """`residual` [rows, out] plus the product, in one pass."""
        if self._packed is None or (self._weight is not None and x.shape[0] <= _FEW_ROWS):
            return F.linear(x, self._weight, self._bias).add_(residual)  # type: ignore[arg-type]
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._packed, self._bias, "add")
        return total


class WideLinear:
    """float32 `x @ weight.T` for low-precision x [rows, in], without rounding the result to low precision."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` is [out, in], in the dtype of x. On a CPU it is held in float32."""
        self._weight: Tensor | Linear = weight if weight.is_cuda else Linear(weight.float(), None)

    def __call__(self, x: Tensor) -> Tensor:
        """The product, float32 [rows, out]."""
        if isinstance(self._weight, Linear):
            return self._weight(x.float())
        return torch.mm(x, self._weight.T, out_dtype=torch.float32)


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn._linear_pointwise, "binary")
    )
