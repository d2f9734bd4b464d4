"""Rules of the run directory: no code renames or syncs a file by hand, each exception with its reason."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from headrace.wire.rundir import layout

ROOT = Path(__file__).parents[4]
OWNER = "wire/rundir/"
RENAMES = {
    "wire/rundir/atomic.py": "the one place",
    "headrace/doctor/machine.py": "checks that the file system can rename",
    "headrace/supervisor/broker.py": "moves a damaged folder out of the way, and writes nothing",
    "headrace/demo/demo.py": "moves a whole folder, which the supervised stage has exported",
}
SYNCS = {
    "wire/rundir/atomic.py": "the one place",
    "headrace/doctor/machine.py": "measures how long it takes",
    "wire/host/disk_fault.py": "asks whether the disk takes a write; the file is removed again",
    "wire/journal/writer.py": "a log: the descriptor that it appends to",
    "services/orchestrator/annotation/vote_log.py": "a log: the descriptor that it appends to",
    "wire/rundir/jsonl.py": "a log: the descriptor that it appends to",
}


PARQUET = {
    "wire/rundir/parquet.py": "the one reader",
    "wire/rundir/prompts.py": "writes prompts",
    "wire/rundir/rollouts.py": "writes rollouts",
    "headrace/data/rows.py": "reads the user's data",
    "headrace/data/prepare_examples.py": "writes examples, whose columns are those of the stage",
    "headrace/demo/demo.py": "writes examples for its supervised stage",
    "services/trainer/stages/offline/examples.py": "reads examples, and names row and column of a bad one",
    "services/orchestrator/annotation/pair_store.py": "reads the messages of a few prompts, by a filter",
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


def test_the_rule_knows_a_rename_when_it_sees_one():
    renames = "os.replace(a, b)\nshutil.move(a, b)\na.b.rename(c / d)\na.replace(b)\na.replace(target=b)"
    others = "text.replace('a', 'b')\nreplace(a, b=1)\ntime.replace(tzinfo=None)\nos.remove(a)"
    assert [is_rename(call) for call in calls(ast.parse(renames))] == [True] * 5
    assert [is_rename(call) for call in calls(ast.parse(others))] == [False] * 4


def test_no_code_renames_by_hand():
    found = {name for name, module in sources().items() if any(map(is_rename, calls(module)))}
    assert found == set(RENAMES)


def test_no_code_syncs_by_hand():
    found = {name for name, module in sources().items() if any(map(is_sync, calls(module)))}
    assert found == set(SYNCS)


def test_parquet_is_read_in_one_place():
    needs = ("import pyarrow.parquet", "from pyarrow import parquet", "from pyarrow import ArrowException, parquet")
    found = set()
    for name, module in sources().items():
        typing = {id(node) for one in nodes(module) if is_typing(one) for node in ast.walk(one)}
        imports = (one for one in nodes(module) if isinstance(one, ast.Import | ast.ImportFrom))
        if any(ast.unparse(one).startswith(needs) for one in imports if id(one) not in typing):
            found.add(name)
    assert found == set(PARQUET)


def is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


AMBIGUOUS = {"model", "base", "run"}
"""Names of folders that are joined to other folders, too."""
NAMES_OF_OTHERS = {
    "headrace/demo/demo.py: run.toml": "what the demo finds in its own folder",
    "headrace/model/model_check.py: tokenizer.json": "a model's folder",
    "headrace/model/tiny_models.py: tokenizer.json": "a model's folder",
    "services/environment/agent/forward.py: logs": "Harbor's folder, in the sandbox of a program",
    "services/environment/agent/process.py: socket": "the endpoint of one episode, in a folder of its own",
    "services/environment/taskset/process.py: socket": "the endpoint of one episode, in a folder of its own",
}
"""Module and name that is not that of the run directory, each with its reason."""


def names() -> set[str]:
    """Every part of every path in a run directory."""
    return {part for entry in layout.entries() for part in entry.name.strip("/").split("/")}


def joined(module: ast.Module) -> Iterator[str]:
    """Texts that are joined to a path by `/`, or given to `Path`, `with_name` or `joinpath`."""
    for node in nodes(module):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Call) and last_name(node.func) in ("Path", "with_name", "joinpath"):
            parts = node.args
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def last_name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def texts(module: ast.Module) -> Iterator[str]:
    """All texts but docstrings."""
    alone = {id(node.value) for node in nodes(module) if isinstance(node, ast.Expr)}
    for node in nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def spelled(module: ast.Module) -> set[str]:
    """Names of the run directory that a module spells out."""
    parts, whole = {part for text in joined(module) for part in text.split("/")}, set(texts(module))
    return {one for one in names() if (one in parts and one not in AMBIGUOUS) or ("." in one and one in whole)}


def test_no_other_code_spells_a_name_of_the_run_directory():
    found = {
        f"{name}: {one}" for name, module in sources().items() if not name.startswith(OWNER) for one in spelled(module)
    }
    assert found == set(NAMES_OF_OTHERS)
