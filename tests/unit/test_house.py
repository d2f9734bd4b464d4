"""Rules of the house: one word for one thing, rooms of a bearable size, one installed package, borders that hold."""

import ast
import functools
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "services", "headrace")
SAME_NAME: dict[str, str] = {}
"""Public class names that may be defined twice, each with its reason; at most 12."""
LOOSE_MODULES = 15
CROWDED = {
    "headrace/cli": "one module a verb",
    "services/trainer/algorithms/recipes": "one module an algorithm, each a table of defaults",
    "services/rollout/engines/torch": "one engine",
}
"""Folders with more loose modules than `LOOSE_MODULES`, each with its reason."""


def sources() -> list[Path]:
    """Every module of ours but the generated ones; links to folders are not followed."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "wire/v1/" not in path.as_posix()]


@functools.cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """The module and every statement of a file, nested ones included; expressions are not descended into."""
    found: list[ast.AST] = [ast.parse(path.read_text())]
    for node in found:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, [])
            found += inner if isinstance(inner, list) else []
    return tuple(found)


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_no_public_class_name_is_defined_twice():
    defined = defaultdict(list)
    for path in sources():
        for node in statements(path)[0].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(path.relative_to(ROOT).as_posix())
    twice = {name: where for name, where in defined.items() if len(where) > 1 and name not in SAME_NAME}
    assert not twice
    assert len(SAME_NAME) <= 12
    assert not {name for name in SAME_NAME if len(defined[name]) < 2}, "no longer needed"


def test_no_folder_is_crowded():
    loose = defaultdict(int)
    for path in sources():
        if path.name != "__init__.py":
            loose[path.parent.relative_to(ROOT).as_posix()] += 1
    crowded = {folder: count for folder, count in loose.items() if count > LOOSE_MODULES}
    assert {folder: count for folder, count in crowded.items() if folder not in CROWDED} == {}
    assert set(CROWDED) <= set(crowded), "no longer crowded"


def test_modules_are_imported_by_their_installed_names_alone():
    bare = []
    folders = [ROOT / name for name in (*FOLDERS, "tests", "benchmarks", "deploy", "examples", "proto")]
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        for node in statements(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            bare += [f"{path}:{node.lineno}" for name in names if name.split(".")[0] in ("services", "wire")]
    assert bare == []


def test_the_import_contracts_name_every_part_of_headrace():
    children = {path.stem for path in (ROOT / "headrace").iterdir() if (path / "__init__.py").is_file()}
    children |= {path.stem for path in (ROOT / "headrace").glob("*.py")} - {"__init__"}
    forbidden = {
        contract["name"]: {name.removeprefix("headrace.") for name in contract["forbidden_modules"]}
        for contract in pyproject()["tool"]["importlinter"]["contracts"]
        if contract["type"] == "forbidden"
    }
    assert forbidden["wire imports nothing else of ours"] == children - {"wire"}
    assert forbidden["services do not import the command line"] == children - {"wire", "services"}


def test_the_independence_contract_lists_every_service():
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    (independent,) = (contract["modules"] for contract in contracts if contract["type"] == "independence")
    there = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert {name.removeprefix("headrace.services.") for name in independent} == there
