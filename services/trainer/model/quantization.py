"""The frozen weights of a QLoRA run (arXiv:2305.14314) in 4 bits, through bitsandbytes, which is an extra."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import torch
from torch import nn

from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_EXTRA = "model.lora.quantize = 'nf4' needs the extra `qlora`: pip install 'headrace[qlora]'; or set quantize = 'none'"


def quantizer_version() -> str:
    """Returns the version of bitsandbytes; raises ConfigError if it is absent."""
    try:
        return version("bitsandbytes")
    except PackageNotFoundError as error:
        raise ConfigError(_EXTRA) from error


def quantize_body(model: "PreTrainedModel", *, device: str, forward_dtype: torch.dtype) -> None:
    """Replaces all linear weights but the head's by 4-bit NormalFloat weights with doubly quantized scales.

    Embedding, norms and head stay as they are. Products are computed in `forward_dtype`. This is final: the weights
    before are gone, and nothing is merged into the new ones. Raises ConfigError if bitsandbytes is absent.
    """
    quantizer_version()
    import bitsandbytes

    body = model.get_decoder()
    for name, module in list(body.named_modules()):
        if type(module) is not nn.Linear:
            continue
        made = bitsandbytes.nn.Linear4bit(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            compute_dtype=forward_dtype,
            quant_type="nf4",
            device="meta",
        )
        made.weight = bitsandbytes.nn.Params4bit(
            module.weight.detach(), requires_grad=False, quant_type="nf4", module=made
        )
        made.bias = module.bias
        # On some processors it would repack the bytes for good, and round more, in passes without a gradient.
        made.support_avx512bf16_for_cpu = False
        owner, _, last = name.rpartition(".")
        setattr(body.get_submodule(owner), last, made.to(device))
    # Asked by peft for each projection that gets an adapter.
    model.is_loaded_in_4bit = True


def dequantize_body(model: "PreTrainedModel", *, dtype: torch.dtype) -> None:
    """Replaces all weights that `quantize_body` rounded by plain weights on the CPU, with the values of its products.

    `dtype` must be the `forward_dtype` given then.
    """
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Linear4bit

    body = model.get_decoder()
    for name, module in list(body.named_modules()):
        if not isinstance(module, Linear4bit):
            continue
        made = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None, device="meta")
        values = dequantize_4bit(module.weight.data, module.weight.quant_state).to("cpu", dtype)
        made.weight = nn.Parameter(values, requires_grad=False)
        made.bias = module.bias
        owner, _, last = name.rpartition(".")
        setattr(body.get_submodule(owner), last, made)
    model.is_loaded_in_4bit = False


def quantized_weights(module: nn.Module) -> set[nn.Parameter]:
    """Returns the 4-bit weights: bytes that no backend may shard or cast."""
    return {weight for weight in module.parameters() if type(weight).__name__ == "Params4bit"}
