"""Where the tests of this folder run: on CUDA, or with HEADRACE_GPU_TESTS_ON=cpu all but what needs it on the CPU."""

import os

import pytest
import torch

from headrace.cli.gpu import ON

DEVICE = torch.device("cpu" if os.environ.get(ON) == "cpu" else "cuda")
CUDA = DEVICE.type == "cuda" and torch.cuda.is_available()

on_device = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type == "cuda" and not CUDA, reason=f"needs a CUDA device; {ON}=cpu runs it on the CPU"),
]
needs_cuda = pytest.mark.skipif(not CUDA, reason="not here: needs CUDA")
