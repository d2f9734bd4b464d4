"""A full disk is named where the error has no path."""

import errno
from pathlib import Path

import pytest
import typer

from headrace.cli import common


@pytest.mark.parametrize("full", ["run", "tmp"])
def test_the_fullest_disk_is_named(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr(common, "free_bytes", lambda place: 0 if place.name == full else 2**30)
    with pytest.raises(typer.Exit), common.reported_errors(json=False, place=tmp_path / "run"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert f"{tmp_path / full}: the disk is full" in capsys.readouterr().err.replace("\n", "")
