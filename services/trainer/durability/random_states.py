"""The random generators' states as byte tensors, for checkpoints. No pickle."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def random_states() -> dict[str, Tensor]:
    """The states of torch's (CPU and CUDA), numpy's and Python's generators as byte tensors."""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{number}": state for number, state in enumerate(torch.cuda.get_rng_state_all())}
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy_state = [kind, np.asarray(keys).tolist(), position, has_gauss, gauss]
    return states | {"numpy": _json_tensor(numpy_state), "python": _json_tensor(random.getstate())}


def restore_random_states(states: Mapping[str, Tensor]) -> None:
    """Sets the generators to what `random_states` returned; states of absent devices are ignored."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            if f"cuda{number}" in states:
                torch.cuda.set_rng_state(states[f"cuda{number}"], number)
    kind, keys, position, has_gauss, gauss = _from_json_tensor(states["numpy"])
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = _from_json_tensor(states["python"])
    random.setstate((version, tuple(internal), gauss_next))


def _json_tensor(value: object) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _from_json_tensor(tensor: Tensor) -> Sequence[Any]:
    values: Sequence[Any] = json.loads(tensor.numpy().tobytes())
    return values
