"""Waiting for a listener: with a deadline, and with a word on who it is."""

import socket
import threading
import time

import pytest

from headrace.wire.process.await_address import problem_at
from headrace.wire.process.await_file import await_end_of
from tests.ports import free_port


def test_it_returns_when_somebody_listens() -> None:
    port = free_port()
    made: list[socket.socket] = []
    timer = threading.Timer(0.7, lambda: made.append(socket.create_server(("127.0.0.1", port))))
    began = time.monotonic()
    timer.start()
    assert await_end_of(lambda: problem_at("127.0.0.1", port, "somebody"), 30)
    assert time.monotonic() - began > 0.6
    timer.join()
    made[0].close()


def test_it_gives_up_in_time_and_says_for_whom(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert not await_end_of(lambda: problem_at("127.0.0.1", port, "the trainer of pod 0"), 0.9)
    first, last = capsys.readouterr().err.splitlines()
    absent = f"the trainer of pod 0 does not listen at 127.0.0.1:{port} ("
    assert first.startswith(f"waiting, 1 s more: {absent}") and last.startswith(f"gave up after 0.9 s: {absent}")
