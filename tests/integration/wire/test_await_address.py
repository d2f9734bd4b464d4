"""Waiting for a listener: with a deadline, and with a word on who it is."""

import pytest

from headrace.wire.process.await_address import problem_at
from headrace.wire.process.await_file import await_end_of
from tests.ports import free_port


def test_it_gives_up_at_its_deadline_and_names_the_listener(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert not await_end_of(lambda: problem_at("127.0.0.1", port, "the trainer of pod 0"), 0.9)
    first, last = capsys.readouterr().err.splitlines()
    absent = f"the trainer of pod 0 does not listen at 127.0.0.1:{port} ("
    assert first.startswith(f"waiting, 1 s more: {absent}") and last.startswith(f"gave up after 0.9 s: {absent}")
