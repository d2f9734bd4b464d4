"""What is no regular file holds no reader of a run directory up: it is refused at once, in one line with its path."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.wire.errors import DataError
from headrace.wire.host.regular_file import IrregularFileError, open_regular, read_regular
from headrace.wire.rundir import jsonl, rollouts
from headrace.wire.rundir.tail import Added, Tail

WAIT_S = 60
"""Ends a reader that hangs."""


def made(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                before = Path.cwd()
                os.chdir(path.parent)
                try:
                    server.bind(path.name)
                finally:
                    os.chdir(before)
    return path


KINDS = ("pipe", "device", "folder", "socket")


def outcome(act: Callable[[], object]) -> object:
    """What `act` returns or raises; the test fails if it waits for ever."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(act())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert found, "it hangs"
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_irregular_file_is_refused_at_once_with_its_path(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "odd", kind)
    for act in (
        open_regular,
        read_regular,
        lambda one: list(jsonl.read(one)),
        lambda one: list(jsonl.read_backwards(one)),
    ):
        error = outcome(lambda act=act: act(path))  # type: ignore[misc]
        assert isinstance(error, IrregularFileError)
        assert str(error) == f"{path}: is no regular file, and is not read: move it away"
    assert outcome(lambda: jsonl.last(path)) == {}
    assert outcome(lambda: Tail(path).read()) == Added()
    parquet = outcome(lambda: rollouts.read(path, ("step",)))
    assert isinstance(parquet, DataError) and str(path) in str(parquet) and "no regular file" in str(parquet)
