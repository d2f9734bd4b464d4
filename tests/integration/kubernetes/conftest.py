"""The control plane of these tests, and the folder that docs/kubernetes.md has its reader make."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kubernetes import control_plane
from tests.integration.kubernetes.rendered import ROOT, make_secrets


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[control_plane.ControlPlane]:
    """Started once: of the files that need it `make test` has one, `make test-all` runs the others in one process."""
    with control_plane.started() as plane:
        yield plane


@pytest.fixture
def my_run(tmp_path: Path) -> Path:
    """Without its kustomization."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    folder = tmp_path / "my-run"
    folder.mkdir()
    make_secrets(folder / "secrets")
    (folder / "run.toml").write_text("[run]\nid = 'mine'\n")
    (folder / "rewards.py").write_text("# mine\n")
    return folder
