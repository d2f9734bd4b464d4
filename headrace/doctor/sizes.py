"""How large a model is, from the headers of its safetensors files alone."""

import json
import struct
from pathlib import Path


def model_parameters(folder: Path) -> int:
    """Number of parameters; 0 where it cannot be told (no safetensors, or no model yet)."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
        except (OSError, ValueError, struct.error):
            return 0
        for name, entry in header.items():
            if name != "__metadata__":
                total += _product(entry["shape"])
    return total


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
