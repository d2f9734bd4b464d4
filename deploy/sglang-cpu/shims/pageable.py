"""Ordinary memory where pinned memory is asked for and there is no accelerator to pin it for.

SGLang's low-rank adapters stage their tensors in pinned memory, also on a CPU, where torch refuses that.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

_MAKERS = ("arange", "empty", "full", "ones", "tensor", "zeros")


def make_pageable() -> None:
    """Changes torch in this process, unless it has an accelerator."""
    if torch.accelerator.is_available():
        return
    for name in _MAKERS:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]


def _without_pinning(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return make(*arguments, **options)

    return made
