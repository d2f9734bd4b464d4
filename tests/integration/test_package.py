"""What is installed is `headrace` alone, whatever a user calls their own modules; and what is linked is checked."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("services", "wire")
BUILD_S = 300


def run(*argv: object, cwd: Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(one) for one in argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=BUILD_S, check=False
    )


def succeed(*argv: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = run(*argv, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads of the tree, as a copy: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("headrace", *LINKED):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def built(tree: Path, kind: str, out: Path) -> Path:
    """By the build backend that pyproject.toml names, as pip calls it."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    return out / succeed(sys.executable, "-c", code, out, cwd=tree).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tree, "wheel", tmp_path_factory.mktemp("wheel"))


def modules(names: list[str]) -> set[str]:
    return {name for name in names if name.endswith(".py") and ".dist-info/" not in name}


def test_the_wheel_installs_headrace_alone_and_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"headrace"}
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "headrace").rglob("*.py")}
    for name in LINKED:
        ours |= {f"headrace/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / name).rglob("*.py")}
    assert modules(names) == ours
    for folder in ("annotation", "dashboard"):
        assert any(name.startswith(f"headrace/services/orchestrator/{folder}/static/") for name in names)


def test_a_wheel_made_from_the_source_distribution_is_the_same(tree: Path, wheel: Path, tmp_path: Path) -> None:
    archive = built(tree, "sdist", tmp_path)
    succeed("tar", "-xzf", archive, cwd=tmp_path)
    again = built(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path)
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


@pytest.mark.long
def test_modules_of_the_users_own_named_wire_and_services_break_nothing(wheel: Path, tmp_path: Path) -> None:
    site, own = tmp_path / "site", tmp_path / "own"
    succeed(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    for folder in ("file", "folder"):
        (own / folder).mkdir(parents=True)
    (own / "file" / "wire.py").write_text("raise SystemExit('the wrong wire')\n")
    for name in ("wire", "wire/v1", "services", "services/trainer"):
        (own / "folder" / name).mkdir()
        (own / "folder" / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    (own / "folder" / "wire" / "v1" / "common_pb2.py").write_text("raise SystemExit('the wrong message')\n")
    imports = "import headrace.wire.v1.orchestrator_pb2_grpc, headrace.services.trainer.settings"
    for folder in ("file", "folder"):
        path = os.pathsep.join([str(own / folder), str(site)])
        env = {**os.environ, "PYTHONPATH": path}
        where = succeed(sys.executable, "-c", f"{imports}; print(headrace.__file__)", cwd=own / folder, env=env)
        assert Path(where.strip()).is_relative_to(site)
        assert "grpo" in succeed(sys.executable, "-m", "headrace", "algorithms", cwd=own / folder, env=env)
        succeed(sys.executable, "-m", "headrace.services.rollout", "--help", cwd=own / folder, env=env)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tree of the same shape, with the project's own settings of mypy and import-linter."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path in (ROOT / "headrace").iterdir():
        if path.name in LINKED:
            (tmp_path / "headrace" / path.name).symlink_to(f"../{path.name}")
        elif (path / "__init__.py").is_file():
            package = tmp_path / "headrace" / path.name
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
    for name in (
        "headrace",
        *LINKED,
        *(f"services/{path.parent.name}" for path in (ROOT / "services").glob("*/settings.py")),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").touch()
    for path in (ROOT / "headrace").glob("*.py"):
        (tmp_path / "headrace" / path.name).touch()
    return tmp_path


def test_a_type_error_in_a_linked_folder_turns_the_types_red(small: Path) -> None:
    succeed(sys.executable, "-m", "mypy", cwd=small)
    (small / "services/trainer/planted.py").write_text('wrong: int = "text"\n')
    done = run(sys.executable, "-m", "mypy", cwd=small)
    assert done.returncode == 1
    assert "headrace/services/trainer/planted.py:1: error: Incompatible types in assignment" in done.stdout


@pytest.mark.parametrize(
    ("where", "what", "broken"),
    [
        ("wire/planted.py", "headrace.services.trainer", "wire imports nothing else of ours"),
        ("wire/planted.py", "headrace.run", "wire imports nothing else of ours"),
        ("services/reward/planted.py", "headrace.services.trainer", "services never import each other"),
        ("services/reward/planted.py", "headrace.cli", "services do not import the command line"),
    ],
)
def test_an_import_across_a_border_turns_the_lint_red(small: Path, where: str, what: str, broken: str) -> None:
    lint = (Path(sys.executable).parent / "lint-imports", "--no-cache")
    succeed(*lint, cwd=small)
    (small / where).write_text(f"import {what}\n")
    done = run(*lint, cwd=small)
    assert done.returncode == 1
    assert f"{broken} BROKEN" in done.stdout
