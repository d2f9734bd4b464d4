"""Waiting for files: with a deadline, and with a word on who writes them."""

import threading
import time
from pathlib import Path

import pytest

from headrace.wire.await_file import await_files


def test_it_returns_when_the_last_file_is_there(tmp_path: Path) -> None:
    first, last = tmp_path / "first", tmp_path / "deep" / "last"
    first.touch()

    def write() -> None:
        last.parent.mkdir()
        last.touch()

    timer = threading.Timer(0.7, write)
    began = time.monotonic()
    timer.start()
    assert await_files([first, last], 20, "somebody")
    assert time.monotonic() - began > 0.6
    timer.join()


def test_it_gives_up_in_time_and_says_for_what_and_on_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not await_files([tmp_path / "never"], 0.4, "the init container `prepare`")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for {tmp_path}/never, written by the init container `prepare`")
    assert last.startswith(f"gave up after 0.4 s: there is no {tmp_path}/never; it is written by the init container")
