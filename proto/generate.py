"""Writes `wire/v1` from `proto/wire/v1`: `make proto`. An argument names another folder to write to."""

import os
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]


def main(out: Path) -> int:
    """Runs protoc with the plugins of this interpreter's environment; returns its exit code."""
    plugins = str(Path(sys.executable).parent)
    os.environ["PATH"] = plugins + os.pathsep + os.environ["PATH"]
    sources = sorted(str(path) for path in (ROOT / "proto" / "wire" / "v1").glob("*.proto"))
    outputs = [f"--python_out={out}", f"--grpc_python_out={out}"]
    stubs = [f"--mypy_out=quiet:{out}", f"--mypy_grpc_out=quiet:{out}"]
    return int(protoc.main(["protoc", f"-I{ROOT / 'proto'}", *outputs, *stubs, *sources]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
