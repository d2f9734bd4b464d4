"""SGLang's own checksum kernel and ours, without a GPU: their source files, run by Triton's interpreter.

Run by SGLang's Python as `python -O kernel_hashes.py FOLDER OURS`: `-O` leaves out its asserts that a tensor is on a
GPU. FOLDER holds `*.bin`, the bytes of a tensor each; `hashes.json` is written: file name -> value as the server tells
it; and `sums.json`: file name -> sum of the values of the tiles, as the kernel in the file OURS makes them.
"""

import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch

_SOURCE = "sglang/kernels/ops/memory/gpu_tensor_hash.py"


def load(name: str, source: Path):
    spec = importlib.util.spec_from_file_location(name, source)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    return kernel


def main(folder: Path, ours: Path) -> None:
    kernel, own = load("theirs", importlib.metadata.distribution("sglang").locate_file(_SOURCE)), load("ours", ours)
    found, sums = {}, {}
    for file in sorted(folder.glob("*.bin")):
        data = bytearray(file.read_bytes())
        tensor = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        found[file.name] = f"{kernel.gpu_tensor_hash(tensor):016x}"
        padded = torch.cat([tensor, torch.zeros(-len(tensor) % 4, dtype=torch.uint8)]).view(torch.int32)
        # In two calls, as longer tensors are: the second begins at the second tile.
        pieces = ((0, padded[: own.TILE]), (own.TILE, padded[own.TILE :]))
        values = [own.tile_values(piece, start, 4 * len(padded)) for start, piece in pieces if len(piece)]
        sums[file.name] = int(sum(value.sum() for value in values)) % 2**64
    (folder / "hashes.json").write_text(json.dumps(found))
    (folder / "sums.json").write_text(json.dumps(sums))


main(Path(sys.argv[1]), Path(sys.argv[2]))
