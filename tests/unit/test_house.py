"""Rules of the house: one word for one thing, rooms of a bearable size, one installed package, borders that hold."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from tests.house.any_count import count_any, module_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("wire", "services", "headrace")
SAME_NAME: dict[str, str] = {}
"""Public class names that may be defined twice, each with its reason; at most 12."""
LOOSE_MODULES = 15
CROWDED = {
    "headrace/cli": "one module a verb",
    "services/trainer/algorithms/recipes": "one module an algorithm, each a table of defaults",
    "services/rollout/engines/torch": "one engine",
    "wire": "what every service starts with",
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


def test_the_folders_at_the_top_are_no_packages():
    for name in ("services", "wire"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert f"ImportError: '{name}' is not a package of its own: import headrace.{name}" in done.stderr


def test_the_links_are_links_in_git():
    shown = subprocess.run(
        ["git", "ls-files", "-s", "headrace/services", "headrace/wire"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if shown.returncode == 0 and shown.stdout:
        assert [line.split()[0] for line in shown.stdout.splitlines()] == ["120000", "120000"]
    for name in ("services", "wire"):
        assert (ROOT / "headrace" / name).resolve() == ROOT / name


def test_the_page_of_the_architecture_has_a_row_for_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = dict(re.findall(r"^\| `([\w/]+)` \| (.+) \|$", page, re.MULTILINE))
    rooms = {path.parent.relative_to(ROOT).as_posix().removeprefix("services/") for path in sources()}
    unnamed = []
    for room in (one for one in rooms if "/" in one and one not in rows):
        parent, _, name = room.rpartition("/")
        unnamed += [room] if f"`{name}/`" not in rows.get(parent, "") else []
    assert sorted(unnamed) == [], "give it a row, or name it in the row of its parent"


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


def test_the_independent_services_are_those_that_there_are():
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    (independent,) = (contract["modules"] for contract in contracts if contract["type"] == "independence")
    there = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert {name.removeprefix("headrace.services.") for name in independent} == there


def docstrings(path: Path):
    """(line, text) of every docstring in a file, those of attributes included."""
    for node in statements(path):
        for one in node.body if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, one.value.value.strip()


def test_docstrings_say_what_a_thing_is_and_do_not_only_point_elsewhere():
    points = re.compile(r"See `?[\w./]+`?(?: (?:of|in) `?[\w./]+`?)?\.?")
    others = [path for name in ("benchmarks", "deploy", "examples", "tests") for path in (ROOT / name).rglob("*.py")]
    poor = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in [*sources(), *others]
        for line, text in docstrings(path)
        if text.startswith("Of ") or points.fullmatch(text)
    ]
    assert poor == []


def test_code_and_pages_do_not_speak_of_processes_as_of_people():
    people = re.compile(r"\b(?:told|tells|nobody|whoever)\b", re.IGNORECASE)
    pages = [ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
    poor = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (*sources(), *pages)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if people.search(line)
    ]
    assert poor == [], "name the component and what it does: reports, retries, skips"


READING = r"\b\w+\.(?:monotonic|perf_counter|time)\(\)"
ELAPSED = re.compile(rf"{READING} - |- {READING}")
"""A difference of clock readings, as `ast.unparse` writes it."""


def bounds_on_the_clock(text: str) -> list[int]:
    """Lines of a test's asserts by which something took less than a number of seconds."""
    found = []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in (one for one in ast.walk(ast.parse(text)) if isinstance(one, functions)):
        inside = list(ast.walk(function))
        given = [one for one in inside if isinstance(one, ast.Assign) and ELAPSED.search(ast.unparse(one.value))]
        names = "|".join(target.id for one in given for target in one.targets if isinstance(target, ast.Name))
        took = re.compile(rf"{ELAPSED.pattern}" + (rf"|\b(?:{names})\b" if names else ""))
        asserts = [one.test for one in inside if isinstance(one, ast.Assert)]
        for one in (part for test in asserts for part in ast.walk(test) if isinstance(part, ast.Compare)):
            sides = [one.left, *one.comparators]
            for left, operator, right in zip(sides, one.ops, sides[1:], strict=False):
                less = {ast.Lt: left, ast.LtE: left, ast.Gt: right, ast.GtE: right}.get(type(operator))
                found += [one.lineno] if less is not None and took.search(ast.unparse(less)) else []
    return found


def returns_of_the_clock(text: str) -> list[int]:
    """Lines that return how long something took, alone or with more: asserts of the caller do not show what it is."""
    returns = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Return) and one.value is not None]
    parts = [(one.lineno, part) for one in returns for part in getattr(one.value, "elts", [one.value])]
    return [line for line, part in parts if isinstance(part, ast.BinOp) and ELAPSED.search(ast.unparse(part))]


def test_no_test_asserts_that_the_machine_was_quick():
    assert bounds_on_the_clock("def f():\n took = time.time() - a\n assert took < 5 and x") == [3]
    assert bounds_on_the_clock("def f():\n assert time.monotonic() < end <= loop.time() - a") == []
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")) if "gpu" not in path.parts}
    timed = {path.relative_to(ROOT): text for path, text in texts.items() if ELAPSED.search(text)}
    assert returns_of_the_clock("async def f():\n return await g(), time.monotonic() - a") == [2]
    quick = [f"{path}:{line}" for path, text in timed.items() for line in bounds_on_the_clock(text)]
    # In virtual time a duration is exact.
    real = {path: text for path, text in timed.items() if "run_in_own_time" not in text}
    quick += [f"{path}:{line}" for path, text in real.items() for line in returns_of_the_clock(text)]
    assert quick == [], "assert the order of two events, or wait with a deadline"


MOST_ANY = 2.8
"""Uses of `Any` a thousand lines: a limit that only falls."""


def test_any_is_rare():
    texts = {path: path.read_text() for path in sources()}
    found = count_any((module_of(path, ROOT), text) for path, text in texts.items())
    lines = sum(len(text.splitlines()) for text in texts.values())
    most = ", ".join(f"{module} {count}" for module, count in found.most_common(10))
    assert 1000 * found.total() / lines <= MOST_ANY, most


def test_any_is_counted_by_every_name_it_has():
    one = "from typing import Any as A, cast\nimport typing as t\nR = dict[str, A]\nx: 'list[A]' = cast('A', t.Any)\n"
    two = "from headrace.one import R\nfrom typing import Any\ndef f(x: R) -> object: ...\nS = list[R]\ny: S\n"
    assert count_any([("headrace.one", one), ("headrace.two", two)]) == {"headrace.one": 4, "headrace.two": 3}
    assert count_any([("headrace.one", "class Any: ...\nx: Any\n")]).total() == 0
