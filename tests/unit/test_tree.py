"""Rules of the tree that no linter knows: who may import what, and what nobody may call."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("wire", "services", "headrace")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "wire/v1/" not in path.as_posix()
]
PURE_SCORERS = (
    *(f"answers/{name}" for name in ("answers", "final_number", "formulas", "hedges", "notation", "numbers", "units")),
    *(f"code/{name}" for name in ("asserts", "blocks", "expected", "tests")),
    *("json/reading", "math/reading", "rules/builtin", "rules/language_pieces"),
)
PURE = [
    *sorted((ROOT / "services/trainer/algorithms").rglob("*.py")),
    *(ROOT / "services/reward/scorers" / f"{name}.py" for name in PURE_SCORERS),
    ROOT / "services/reward/rubric/circuit.py",
    ROOT / "services/reward/rubric/refusal.py",
    ROOT / "services/reward/endpoint/addresses.py",
    ROOT / "services/reward/endpoint/target.py",
    ROOT / "services/orchestrator/issuing/credit.py",
    ROOT / "services/orchestrator/dashboard/bottleneck.py",
    *(ROOT / "services/orchestrator/dashboard/readers" / f"{name}.py" for name in ("numbers", "query", "thin")),
    ROOT / "services/orchestrator/issuing/eval_result.py",
    ROOT / "services/trainer/durability/ledger.py",
]
NOT_PURE = {"asyncio", "grpc", "logging", "os", "pathlib", "random", "redis", "secrets", "structlog", "time"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
RUNS_PROGRAMS = "services/reward/sandbox/inside/program.py"
"""The one place where text becomes code: in a process that has given up everything, inside the sandbox."""
FORBIDDEN_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_only_the_stream_package_knows_redis_and_only_weight_movers_know_torch(path: Path) -> None:
    where = name_of(path)
    found = roots(path)
    assert "redis" not in found or where.startswith("wire/streams/redis/")
    may_use_torch = (
        "wire/weights/",
        "services/trainer/",
        "services/rollout/",
        "services/reward/scorers/models/classifier.py",
        "headrace/demo/",
        "headrace/",
    )
    assert "torch" not in found or where.startswith(may_use_torch)


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_pure_files_import_nothing_that_reads_the_world(path: Path) -> None:
    assert not roots(path) & NOT_PURE
    assert not {
        name
        for name in imports(path)
        if name.endswith("settings") or name in ("headrace.wire.telemetry", "headrace.wire.events")
    }


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_pickled_and_no_text_becomes_code(path: Path) -> None:
    assert not roots(path) & FORBIDDEN_MODULES
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            assert call not in FORBIDDEN_CALLS or name_of(path) == RUNS_PROGRAMS
            assert call not in ("torch.load", "torch.save", "os.system")
            assert not any(word.arg == "shell" and ast.unparse(word.value) == "True" for word in node.keywords)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_the_environment_is_read_where_settings_are_resolved_and_nowhere_else(path: Path) -> None:
    # zero.py: DeepSpeed takes its device from there alone, and at its import. probe.py: proves that a sandbox has none.
    # collective.py, groups.py: torch's constructor and NCCL read theirs from there alone.
    allowed = (
        "headrace/run/launch.py",
        "headrace/cli/app.py",
        "wire/environment.py",
        "services/trainer/backends/zero.py",
    )
    others = ("services/reward/sandbox/probe.py", "wire/weights/collective.py", "headrace/selfcheck/groups.py")
    if name_of(path) in (*allowed, *others):
        return
    assert "os.environ" not in path.read_text()
    assert "getenv" not in path.read_text()


@pytest.mark.parametrize("service", ["orchestrator", "reward", "rollout", "trainer"])
def test_every_service_begins_with_the_same_files(service: str) -> None:
    files = {path.name for path in (ROOT / "services" / service).glob("*.py")}
    assert {"__main__.py", "settings.py", "metrics.py", "service.py"} <= files
