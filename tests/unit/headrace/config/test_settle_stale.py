"""`run.stale` is locked for a run, and one from before that key goes on as it was."""

from pathlib import Path

import pytest

from headrace.config.resolve import Resolved, resolve, settle
from headrace.config.run_dir import check_resumable
from headrace.config.toml import to_toml
from headrace.wire.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.toml"
    file.write_text('[run]\nmax_staleness = 1\n[data]\npath = "p.jsonl"\n')
    return file


def made(run_dir: Path, resolved: Resolved, *, old: bool = False) -> Path:
    """A run directory as the first start leaves it; `old`: of a build that did not know the key."""
    tables = resolved.config.model_dump(mode="json", serialize_as_any=True)
    if old:
        del tables["run"]["stale"]
    (run_dir / "config").mkdir(parents=True)
    (run_dir / "config" / "run.toml").write_text(to_toml(tables))
    return run_dir


def resumed(run_dir: Path, resolved: Resolved) -> str:
    settled = settle(resolved, run_dir, goes_on=True)
    check_resumable(run_dir, settled.config)
    return settled.config.run.stale


def test_a_new_run_waits(config: Path, tmp_path: Path) -> None:
    assert settle(resolve(config), tmp_path / "new", goes_on=False).config.run.stale == "wait"


def test_the_policy_of_a_run_is_kept(config: Path, tmp_path: Path) -> None:
    masking = resolve(config, arguments=["--run.stale", "mask"])
    run_dir = made(tmp_path / "run", masking)
    assert resumed(run_dir, masking) == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(run_dir, resolve(config))


def test_what_a_run_with_an_environment_has_chosen_is_kept_by_a_resume_from_the_same_file(
    config: Path, tmp_path: Path
) -> None:
    config.write_text(config.read_text() + '[environment]\nname = "game:Sums"\n')
    first = settle(resolve(config), tmp_path / "none", goes_on=False)
    assert first.config.run.stale == "mask"
    run_dir = made(tmp_path / "run", first)
    assert resumed(run_dir, resolve(config)) == "mask"
    with pytest.raises(ConfigError, match=r"run.stale was 'mask' .* is now 'wait'"):
        resumed(run_dir, resolve(config, arguments=["--run.stale", "wait"]))
