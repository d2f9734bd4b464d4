"""Prints package versions of a Python environment. Run as text by another interpreter: standard library only."""

import json
import re
import sys
from importlib import metadata

NAMES = ("sglang", "torch", "transformers")
_NCCL = re.compile(r"nvidia-nccl-\w+")


def version(name: str) -> str:
    """Version of an installed package; empty if it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def nccl() -> str:
    """Version of the NCCL package that torch requires, such as `2.30.7`; empty if none (a build for CPUs)."""
    try:
        wanted = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return ""
    names = [found[0] for line in wanted if (found := _NCCL.match(line))]
    return version(names[0]) if names else ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: version(name) for name in NAMES} | {"nccl": nccl()}) + "\n")
