"""Rules of the run directory: no code renames or syncs a file by hand, each exception with its reason."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
RENAMES = {
    "wire/rundir/atomic.py": "the one place",
    "headrace/doctor/machine.py": "checks that the file system can rename",
    "headrace/supervisor/broker.py": "moves a damaged folder out of the way, and writes nothing",
    "headrace/demo/demo.py": "moves a whole folder, which the supervised stage has exported",
}
SYNCS = {
    "wire/rundir/atomic.py": "the one place",
    "headrace/doctor/machine.py": "checks that the file system can sync",
    "wire/host/disk_fault.py": "asks whether the disk takes a write; the file is removed again",
    "wire/journal/writer.py": "a log: the descriptor that it appends to",
    "wire/rundir/jsonl.py": "a log: the descriptor that it appends to",
}


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Name in the repository -> syntax tree of every module that is not generated."""
    found = [path for folder in ("wire", "services", "headrace") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for path in found
        if "wire/v1/" not in path.as_posix()
    }


@functools.cache
def nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module))


def calls(module: ast.Module) -> Iterator[ast.Call]:
    return (node for node in nodes(module) if isinstance(node, ast.Call))


def is_rename(call: ast.Call) -> bool:
    """`os.replace(a, b)`, `shutil.move(a, b)`, `path.rename(b)`, `path.replace(b)`; `text.replace(a, b)` is another."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("rename", "renames", "replace", "move"):
        return False
    name, owner, given = call.func.attr, ast.unparse(call.func.value), len(call.args) + len(call.keywords)
    if owner in ("os", "shutil"):
        return True
    return name in ("rename", "replace") and given == 1 and (not call.keywords or call.keywords[0].arg == "target")


def is_sync(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("fsync", "fdatasync", "sync_file_range")


def test_no_code_renames_by_hand():
    found = {name for name, module in sources().items() if any(map(is_rename, calls(module)))}
    assert found == set(RENAMES)


def test_no_code_syncs_by_hand():
    found = {name for name, module in sources().items() if any(map(is_sync, calls(module)))}
    assert found == set(SYNCS)
