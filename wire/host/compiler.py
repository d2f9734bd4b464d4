"""What Triton 3.7 compiles a GPU's kernels with at their first use (its `runtime/build.py`)."""

import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path


def compiler_lacks(environment: Mapping[str, str]) -> list[str]:
    """What is not there, in words; empty = kernels can be compiled."""
    lacking = []
    if not environment.get("CC") and not any(map(shutil.which, ("gcc", "clang"))):
        lacking.append("C compiler (gcc or clang on PATH, or CC)")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        lacking.append(f"Python.h of {sys.prefix}")
    return lacking
