"""Prints, as pip constraints, the torch and the NVIDIA libraries of the interpreter that runs this, and where they lie.

Run by the engine image's own Python before headrace is installed and by headrace's after it: equal output means that
both run the same torch and NCCL builds.
"""

import os
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

_PREFIXES = ("nvidia-", "torch", "triton")


def constraints() -> list[str]:
    """Such as `torch==2.14.1  # /usr/local/lib/python3.12/dist-packages`, sorted."""
    found = {}
    for one in distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith(_PREFIXES) and name not in found:
            found[name] = f"{name}=={one.version}  # {one.locate_file('')}"
    return sorted(found.values())


def compiler_problem(environment: Mapping[str, str]) -> str:
    """An image that names its CUDA must have nvcc there: SGLang compiles kernels at first use. Empty if it has."""
    home = environment.get("CUDA_HOME", "")
    nvcc = Path(home) / "bin" / "nvcc"
    if not home or nvcc.is_file():
        return ""
    return f"this image has no {nvcc}: ENGINE_IMAGE must be one that SGLang can compile kernels in"


if __name__ == "__main__":
    problem = compiler_problem(os.environ)
    if problem:
        sys.exit(problem)
    lines = constraints()
    if not any(line.startswith("torch==") for line in lines):
        sys.exit("this image's Python has no torch: ENGINE_IMAGE must be one with SGLang and its torch")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
