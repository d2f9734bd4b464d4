"""SGLang's checksum on a GPU: the kernel is used, and gives the values of a CPU and of torch's operations."""

import pytest
import torch

from headrace.wire.weights import device_hash as module
from headrace.wire.weights.device_hash import device_hash
from tests.gpu.device import DEVICE, needs_cuda, on_device

pytestmark = [*on_device, needs_cuda]
TILE = 4 * 8192
ROOM = 2048 * TILE
"""Bytes that the kernel goes over in one call."""
FEW = [1, 3, 4, 5, TILE - 1, TILE, TILE + 1, 3 * TILE + 2]
MANY = [ROOM - 4, ROOM + 5, 3 * ROOM + TILE + 7]
"""A CPU takes minutes for these."""


@pytest.mark.parametrize("size", FEW)
def test_kernel_and_operations_give_the_values_of_a_cpu(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._kernel(DEVICE) is not None
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    there = tensor.to(DEVICE)
    assert device_hash([there]) == device_hash([tensor])
    assert device_hash([there[: size // 2], there[size // 2 :]]) == device_hash([tensor])
    monkeypatch.setattr(module, "_kernel", lambda _: None)
    assert device_hash([there]) == device_hash([tensor])


@pytest.mark.parametrize("size", MANY)
def test_the_kernel_gives_the_values_of_operations(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._kernel(DEVICE) is not None
    there = torch.randint(0, 256, (size,), dtype=torch.uint8, device=DEVICE)
    found = device_hash([there]), device_hash([there[: size // 2], there[size // 2 :]])
    monkeypatch.setattr(module, "_kernel", lambda _: None)
    assert found == (device_hash([there]),) * 2
