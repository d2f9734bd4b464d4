"""A disk that refuses is named in one sentence, whatever the library made of it, and leaves nothing half-written."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from safetensors import SafetensorError

from headrace.wire.errors import DiskError
from headrace.wire.host import disk_fault
from headrace.wire.process import entry
from headrace.wire.rundir import jsonl

REFUSALS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the disk reports an input/output error",
}


def of_sqlite(tmp_path: Path) -> sqlite3.Error:
    """SQLite's own error for a file that may not grow."""
    db = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
    db.execute("CREATE TABLE t (x BLOB)")
    db.execute("PRAGMA max_page_count = 4")
    try:
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    except sqlite3.Error as error:
        return error
    finally:
        db.close()
    raise AssertionError("it fitted")


@pytest.mark.parametrize(("number", "said"), REFUSALS.items())
def test_a_disk_fault_names_path_free_space_and_fix(tmp_path: Path, number: int, said: str) -> None:
    fault = disk_fault.disk_fault(OSError(number, os.strerror(number)), tmp_path / "deep" / "file", 4096)
    assert fault is not None
    words = str(fault)
    assert words.startswith(f"{tmp_path}/deep/file: {said} (") and "4.0 KiB needed" in words and " free on /" in words
    assert "--resume" in words and "\n" not in words


def test_a_disk_fault_is_found_in_causes_and_exception_groups(tmp_path: Path) -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as error:
            raise RuntimeError("a task failed") from error
    except RuntimeError as error:
        grouped = BaseExceptionGroup("tasks", [ValueError("other"), error])
    assert disk_fault.disk_fault(grouped, tmp_path) is not None


def test_a_full_disk_is_recognized_in_errors_of_sqlite_and_safetensors(tmp_path: Path) -> None:
    rust = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    for error in (of_sqlite(tmp_path), rust):
        assert "the disk is full" in str(disk_fault.disk_fault(error, tmp_path))


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ECONNREFUSED, "no"), FileNotFoundError("x"), ValueError("28"), RuntimeError("(os error 28)")],
)
def test_other_errors_are_not_mistaken_for_disk_faults(tmp_path: Path, error: Exception) -> None:
    assert disk_fault.disk_fault(error, tmp_path) is None
    with pytest.raises(type(error)), disk_fault.writing(tmp_path):
        raise error


def test_a_process_ended_by_a_disk_fault_exits_with_3(tmp_path: Path) -> None:
    assert entry.exit_code(DiskError("full")) == entry.GIVEN_UP == 3
    assert entry.exit_code(OSError(errno.ENOSPC, "full")) == 3
    assert entry.exit_code(OSError(errno.ECONNRESET, "reset")) == 1


def test_a_partly_written_line_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    jsonl.append(path, {"step": 1}, durable=False)
    with monkeypatch.context() as patched:
        fill_after(patched, 5)
        with pytest.raises(DiskError):
            jsonl.append(path, {"step": 2}, durable=False)
    jsonl.append(path, {"step": 3}, durable=False)
    assert [row["step"] for row in jsonl.read(path)] == [1, 3]


def fill_after(patched: pytest.MonkeyPatch, room: int) -> None:
    """`os.write` takes `room` bytes without an error, as a disk does that fills, and then refuses."""
    real, left = os.write, [room]

    def write(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data)[: left[0]]
        left[0] -= len(part)
        return real(descriptor, part)

    patched.setattr(os, "write", write)


def test_the_probe_says_whether_a_folder_takes_writes_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk_fault.probe(tmp_path) is None

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "the disk is full" in str(disk_fault.probe(tmp_path))
    assert os.listdir(tmp_path) == []
