"""Writes beside training: their order, how many there are, and whose error surfaces where."""

import threading

import pytest

from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.wire.errors import WaitTimeoutError


@pytest.fixture
def opened():
    gate = threading.Event()
    yield gate
    gate.set()


def test_writes_run_in_order_and_no_more_than_the_depth_of_them_wait(opened):
    writer, written = BackgroundWriter("it", depth=2), []

    def write(number):
        opened.wait(20)
        written.append(number)

    writer.start(lambda: write(1))
    assert writer.busy and not writer.full
    writer.start(lambda: write(2))
    assert writer.full
    with pytest.raises(WaitTimeoutError, match="it to be written"):
        writer.wait(0.01)
    threading.Timer(0.1, opened.set).start()
    writer.start(lambda: write(3))
    assert written[:1] == [1]
    writer.wait(20)
    assert written == [1, 2, 3] and not writer.busy


def test_a_failed_write_ends_those_after_it_and_every_later_call_raises_its_error(opened):
    writer, written = BackgroundWriter("it", depth=2), []

    def fail():
        opened.wait(20)
        raise OSError("the disk is full")

    writer.start(fail)
    writer.start(lambda: written.append(2))
    opened.set()
    for call in (writer.wait, writer.check, lambda: writer.start(lambda: written.append(3))):
        with pytest.raises(OSError, match="the disk is full"):
            call()
    assert written == []
