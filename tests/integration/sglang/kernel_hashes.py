"""SGLang's own checksum kernel, without a GPU: its source file, run by Triton's interpreter.

Run by SGLang's Python as `python -O kernel_hashes.py FOLDER`: `-O` leaves out its asserts that a tensor is on a GPU.
FOLDER holds `*.bin`, the bytes of a tensor each; `hashes.json` is written: file name -> value as the server tells it.
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


def main(folder: Path) -> None:
    source = importlib.metadata.distribution("sglang").locate_file(_SOURCE)
    spec = importlib.util.spec_from_file_location("kernel", source)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    found = {}
    for file in sorted(folder.glob("*.bin")):
        data = bytearray(file.read_bytes())
        tensor = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        found[file.name] = f"{kernel.gpu_tensor_hash(tensor):016x}"
    (folder / "hashes.json").write_text(json.dumps(found))


main(Path(sys.argv[1]))
