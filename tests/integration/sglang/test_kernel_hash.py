"""Our checksum, its kernel, and the transcription it is tested against elsewhere, against SGLang's own kernel."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.weights import device_hash as module
from headrace.wire.weights.device_hash import device_hash
from tests.sglang import ROOT, sglang_venv
from tests.sglang_hash import TILE_WORDS, sglang_gpu_hash

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(200)]

TILE = 4 * TILE_WORDS
SIZES = [0, 1, 2, 3, 4, 5, 1022, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 2, 3 * TILE - 3]
"""Small: the interpreter takes a second a tile."""


def test_hashes_equal_those_from_sglangs_own_kernel(tmp_path: Path) -> None:
    python = sglang_venv() / "bin" / "python"
    torch.manual_seed(0)
    tensors = {f"{size}.bin": torch.randint(0, 256, (size,), dtype=torch.uint8) for size in SIZES}
    for name, tensor in tensors.items():
        (tmp_path / name).write_bytes(tensor.numpy().tobytes())
    script = ROOT / "tests" / "integration" / "sglang" / "kernel_hashes.py"
    done = subprocess.run(
        [python, "-O", script, tmp_path, ROOT / "wire" / "weights" / "tile_kernel.py"],
        capture_output=True,
        text=True,
        timeout=170,
        preexec_fn=die_with_parent,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    found = json.loads((tmp_path / "hashes.json").read_text())
    assert found == {name: device_hash([tensor]) for name, tensor in tensors.items()}
    assert found == {name: sglang_gpu_hash(tensor) for name, tensor in tensors.items()}
    sums = json.loads((tmp_path / "sums.json").read_text())
    assert found == {name: f"{module._splitmix64(value):016x}" for name, value in sums.items()}
