"""Writes `wire/v1` from `proto/wire/v1`: `make proto`. An argument names another folder to write to.

protoc names Python modules after the paths of the .proto files, and those stay `wire/v1`: names of gRPC services are
public. The modules are imported as `headrace.wire.v1`, so the generated imports are rewritten.
"""

import os
import re
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
MODULE = re.compile(r"(?<![\w./])wire\.v1(?=\.\w+_pb2| import )")
"""The package as protoc names it in imports and in the builder's module names; never in a service's name."""


def main(out: Path) -> int:
    """Runs protoc with the plugins of this interpreter's environment; returns its exit code."""
    plugins = str(Path(sys.executable).parent)
    os.environ["PATH"] = plugins + os.pathsep + os.environ["PATH"]
    sources = sorted((ROOT / "proto" / "wire" / "v1").glob("*.proto"))
    outputs = [f"--python_out={out}", f"--grpc_python_out={out}"]
    stubs = [f"--mypy_out=quiet:{out}", f"--mypy_grpc_out=quiet:{out}"]
    well_known = files("grpc_tools") / "_proto"
    arguments = [f"-I{ROOT / 'proto'}", f"-I{well_known}", *outputs, *stubs, *(str(source) for source in sources)]
    code = int(protoc.main(["protoc", *arguments]))
    if code == 0:
        for source in sources:
            rewrite_imports(out / "wire" / "v1", source.stem)
            if "\nservice " not in source.read_text(encoding="utf-8"):  # protoc writes a module of no service, too.
                for path in (out / "wire" / "v1").glob(f"{source.stem}_pb2_grpc.py*"):
                    path.unlink()
    return code


def rewrite_imports(folder: Path, stem: str) -> None:
    """Rewrites `wire.v1` to `headrace.wire.v1` in the modules and stubs that protoc made of one .proto file."""
    for path in folder.glob(f"{stem}_pb2*.py*"):
        path.write_text(MODULE.sub("headrace.wire.v1", path.read_text()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
