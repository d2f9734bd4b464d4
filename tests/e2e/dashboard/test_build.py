"""The committed page is what its source builds to, byte for byte; its types are those of the API; its tests pass."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import missing, need_node

ROOT = Path(__file__).parents[3]
STATIC = Path("services/orchestrator/dashboard/static")
TYPES = Path("src/api/schema.ts")
UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "ECONNRESET")
BUILD_S = 170
_LEFT_OUT = shutil.ignore_patterns("node_modules")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of `ui/` with what `npm ci` installs."""
    need_node()
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "ui", folder / "ui", ignore=_LEFT_OUT)
    done = npm(folder / "ui", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    if done.returncode != 0 and any(code in done.stderr for code in UNREACHABLE):
        missing("npm's registry cannot be reached")
    assert done.returncode == 0, done.stderr
    yield folder / "ui"
    shutil.rmtree(folder)


def npm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["npm", *arguments], cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_committed_page_equals_a_fresh_build(source: Path) -> None:
    done = npm(source, "run", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    built, committed = files(source.parent / STATIC), files(ROOT / STATIC)
    assert sorted(built) == sorted(committed), "cd ui && npm ci && npm run build, and commit what it wrote"
    assert [name for name in built if built[name] != committed[name]] == []


def test_the_typescript_types_match_the_schema(source: Path) -> None:
    done = npm(source, "run", "types")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (source / TYPES).read_text() == (ROOT / "ui" / TYPES).read_text(), "make generate"


def test_the_tests_of_the_source_pass(source: Path) -> None:
    done = npm(source, "test")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_fetches_nothing_from_other_hosts() -> None:
    index = (ROOT / STATIC / "index.html").read_text()
    assert 'src="/assets/' in index and "http" not in index
    styles = "".join(path.read_text() for path in (ROOT / STATIC / "assets").glob("*.css"))
    assert "url(" not in styles and "@import" not in styles
