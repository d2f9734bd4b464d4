"""What another machine sees of the run's lock file."""

from pathlib import Path

import pytest

from headrace.supervisor.lock import RunLock, RunWatch


def test_a_lock_file_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = RunLock(tmp_path)
    watch = RunWatch(tmp_path)

    def refuse(path: Path) -> bytes:
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        assert not watch.ended()
    lock.release()
    assert watch.ended()
