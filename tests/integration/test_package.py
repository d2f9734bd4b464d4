"""What is installed is `headrace` alone, whatever a user calls their own modules; and what is linked is checked."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("services", "wire")
MANIFESTS = ROOT / "deploy" / "kubernetes"
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
    shutil.copytree(MANIFESTS, copy / "deploy" / "kubernetes")
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
    return {name for name in names if name.endswith(".py") and "/manifests/" not in name}


def test_the_wheel_installs_headrace_alone_and_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"headrace"}
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "headrace").rglob("*.py")}
    for name in LINKED:
        ours |= {f"headrace/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / name).rglob("*.py")}
    assert modules(names) == ours
    assert any(name.startswith("headrace/services/orchestrator/dashboard/static/") for name in names)
    manifests = {path.relative_to(MANIFESTS).as_posix() for path in MANIFESTS.rglob("*") if path.is_file()}
    assert {name.partition("/manifests/")[2] for name in names if "/manifests/" in name} == manifests


def test_a_wheel_made_from_the_source_distribution_is_the_same(tree: Path, wheel: Path, tmp_path: Path) -> None:
    archive = built(tree, "sdist", tmp_path)
    succeed("tar", "-xzf", archive, cwd=tmp_path)
    again = built(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path)
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> str:
    """The command of the wheel in an environment of its own, which finds the dependencies of this one."""
    succeed(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    succeed(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(one for one in sys.path if one.endswith("site-packages")))
    where = succeed(python, "-P", "-c", "import headrace; print(headrace.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(site)
    return str(tmp_path / "venv" / "bin" / "headrace")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_newcomers_own_data_and_reward_train_once_the_reward_has_no_bug(installed: str, tmp_path: Path) -> None:
    """As the pages tell it: a file of one's own, `init`, a bug that the run names, a resume, eval, export."""
    (tmp_path / "rows.csv").write_text("question,solution\n" + "".join(f"say {a},{a}\n" for a in "abcdefghijkl"))
    succeed(installed, "init", "rows.csv", "--out", "mine", cwd=tmp_path)
    reward = tmp_path / "mine" / "reward.py"
    right = reward.read_text()
    reward.write_text(right.replace("completion.strip()", "completion.stirp()"))
    short = ("--run.max-steps", 2, "--rollout.replicas", 1, "--run-dir", "run")
    failed = run(installed, "train", "mine/run.toml", *short, cwd=tmp_path)
    told = failed.stdout + failed.stderr
    assert failed.returncode == 1 and "no attribute 'stirp'" in told and f"{reward}" in told, told
    reward.write_text(right)
    assert "finished: 2 steps" in succeed(installed, "train", "--resume", "--run-dir", "run", cwd=tmp_path)
    assert "at version 0 (12 prompts)" in succeed(installed, "eval", "run", "rows.csv", cwd=tmp_path)
    succeed(installed, "export", "run", "--out", "model", cwd=tmp_path)
    assert succeed(installed, "generate", "model", "--prompt", "say a", "--max-tokens", 3, cwd=tmp_path)


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
