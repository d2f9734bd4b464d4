"""Rules of the tree that no linter knows: imports and calls that a file may not have. A failure lists the files."""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("wire", "services", "headrace")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "wire/v1/" not in path.as_posix()
]
PURE_SCORERS = (
    *(f"answers/{name}" for name in ("answers", "keys", "labels", "notation", "numbers", "units")),
    *(f"code/{name}" for name in ("asserts", "blocks", "expected", "tests")),
    *("json/reading", "math/prompt", "math/reading", "rules/builtin", "rules/language_pieces"),
)
PURE = [
    *sorted((ROOT / "services/trainer/algorithms").rglob("*.py")),
    *(ROOT / "services/reward/scorers" / f"{name}.py" for name in PURE_SCORERS),
    ROOT / "services/reward/rubric/circuit.py",
    ROOT / "services/reward/rubric/refusal.py",
    ROOT / "services/reward/endpoint/target.py",
    ROOT / "services/orchestrator/issuing/credit.py",
    ROOT / "services/orchestrator/dashboard/bottleneck.py",
    *(ROOT / "services/orchestrator/dashboard/readers" / f"{name}.py" for name in ("numbers", "query", "thin")),
    ROOT / "services/orchestrator/issuing/eval_result.py",
    ROOT / "services/trainer/durability/ledger.py",
    ROOT / "wire/why/compare.py",
]
NOT_PURE = {"asyncio", "grpc", "logging", "os", "pathlib", "random", "redis", "secrets", "structlog", "time"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
RUNS_PROGRAMS = "services/reward/sandbox/inside/program.py"
"""The one place where text becomes code: in a process that has given up everything, inside the sandbox."""
FORBIDDEN_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Every module that the file imports, wherever in it."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def offenders(paths: Iterable[Path], breaks: Callable[[Path], object]) -> list[str]:
    """The files that break a rule, each with what it breaks it by."""
    found = ((name_of(path), breaks(path)) for path in paths)
    return [f"{name}: {what}" for name, what in found if what]


def test_only_the_stream_package_imports_redis() -> None:
    others = [path for path in SOURCES if not name_of(path).startswith("wire/streams/redis/")]
    assert offenders(others, lambda path: roots(path) & {"redis"}) == []


def test_only_modules_that_move_weights_import_torch() -> None:
    may = (
        *("wire/weights/", "services/trainer/", "services/rollout/"),
        *("services/reward/scorers/models/", "headrace/"),
    )
    others = [path for path in SOURCES if not name_of(path).startswith(may)]
    assert offenders(others, lambda path: roots(path) & {"torch"}) == []


def test_pure_files_import_nothing_that_reads_the_world() -> None:
    def settings(path: Path) -> set[str]:
        others = ("headrace.wire.telemetry.logs", "headrace.wire.rundir.events")
        return {name for name in imports(path) if name.endswith("settings") or name in others}

    assert offenders(PURE, lambda path: roots(path) & NOT_PURE | settings(path)) == []


def test_nothing_is_pickled() -> None:
    assert offenders(SOURCES, lambda path: roots(path) & FORBIDDEN_MODULES) == []


def test_no_text_becomes_code() -> None:
    assert offenders(SOURCES, lambda path: sorted(forbidden_calls(path))) == []


def dotted(called: ast.expr) -> str:
    """`f` and `a.f` as they are called; `.f` for what is longer."""
    if isinstance(called, ast.Attribute):
        return f"{called.value.id}.{called.attr}" if isinstance(called.value, ast.Name) else f".{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


def forbidden_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            call = dotted(node.func)
            if call in FORBIDDEN_CALLS and name_of(path) != RUNS_PROGRAMS:
                yield call
            if call in ("torch.load", "torch.save", "os.system"):
                yield call
            if any(word.arg == "shell" and ast.unparse(word.value) == "True" for word in node.keywords):
                yield f"{call}(shell=True)"


def test_environment_variables_are_read_only_where_settings_are_resolved() -> None:
    # zero.py: DeepSpeed takes its device from there alone, and at its import. probe.py: proves that a sandbox has none.
    # collective.py, groups.py: torch's constructor and NCCL read theirs from there alone.
    allowed = (
        "headrace/cli/app.py",
        "wire/process/environment.py",
        "services/trainer/backends/zero.py",
        "services/reward/sandbox/probe.py",
        "wire/weights/collective.py",
        "headrace/selfcheck/groups.py",
        # Writes it: that of the process that it becomes.
        "headrace/supervisor/fork_server/__main__.py",
        # Writes it: that of the servers of tools that it starts in the sandbox.
        "services/environment/taskset/loading.py",
        # Writes it: where the package's client looks for the policy's key.
        "services/environment/taskset/host.py",
    )
    others = [path for path in SOURCES if name_of(path) not in allowed]
    assert offenders(others, lambda path: re.findall(r"os\.environ|getenv", path.read_text())) == []
