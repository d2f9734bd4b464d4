"""Waiting for a listener: with a deadline, and with a word on who it is."""

import pytest

from headrace.wire.process.await_address import await_address
from tests.ports import free_port


def test_it_gives_up_at_its_deadline_and_names_the_listener(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert not await_address("127.0.0.1", port, 0.9, "the trainer of pod 0")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for the trainer of pod 0 at 127.0.0.1:{port} (")
    assert last.startswith(f"gave up after 0.9 s: the trainer of pod 0 does not listen at 127.0.0.1:{port}")
