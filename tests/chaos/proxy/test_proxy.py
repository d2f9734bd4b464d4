"""Each fault of the proxy does to real connections what it says."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from tests.chaos.proxy.faults import BlackHole, Cut, Delay, Duplicate, Hold, Refuse, Reset, Throttle
from tests.chaos.proxy.proxy import FaultProxy
from tests.chaos.proxy.resp import RequestSplitter
from tests.valkey import Valkey

PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"


@pytest.fixture
def proxy(valkey: Valkey) -> Iterator[FaultProxy]:
    made = FaultProxy(valkey.port, redis=True)
    made.start()
    yield made
    made.stop()


def connect(proxy: FaultProxy, seconds: float = 60) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), seconds)


def test_it_passes_bytes_on_and_a_lifted_refusal_is_no_trace(proxy: FaultProxy) -> None:
    with closing(connect(proxy)) as one:
        one.sendall(PING)
        assert one.recv(64) == PONG
        proxy.set(Refuse())
        with pytest.raises(ConnectionResetError):
            one.recv(64)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    proxy.set(None)
    with closing(connect(proxy)) as two:
        two.sendall(PING)
        assert two.recv(64) == PONG


def test_a_reset_reaches_open_connections_and_new_ones(proxy: FaultProxy) -> None:
    with closing(connect(proxy)) as one:
        one.sendall(PING)
        assert one.recv(64) == PONG
        proxy.set(Reset())
        with pytest.raises(ConnectionResetError):
            one.recv(64)
        with pytest.raises(ConnectionResetError), closing(connect(proxy)) as two:
            two.recv(64)
    assert proxy.hits == 2


def test_a_cut_ends_a_connection_within_an_answer(proxy: FaultProxy) -> None:
    proxy.set(Cut(len(PING) + 3, len(PING) + 3))
    with closing(connect(proxy)) as one:
        one.sendall(PING)
        assert one.recv(64) == PONG[:3]
        with pytest.raises(ConnectionResetError):
            one.recv(64)
    assert proxy.hits == 1


def test_what_is_delayed_or_throttled_comes_later_and_whole(proxy: FaultProxy) -> None:
    for fault in (Delay(0.3), Throttle(len(PING))):
        proxy.set(fault)
        with closing(connect(proxy)) as one:
            began = time.monotonic()
            one.sendall(PING)
            found = b""
            while len(found) < len(PONG):
                found += one.recv(64)
            assert found == PONG and time.monotonic() - began >= 0.3
        assert proxy.hits


def test_a_black_hole_answers_nothing_and_resets_what_it_swallowed_from(proxy: FaultProxy) -> None:
    with closing(connect(proxy)) as one, closing(connect(proxy)) as two:
        two.sendall(PING)
        assert two.recv(64) == PONG
        proxy.set(BlackHole())
        one.sendall(PING)
        one.settimeout(0.3)
        with pytest.raises(TimeoutError):
            one.recv(64)
        one.settimeout(60)
        proxy.set(None)
        with pytest.raises(ConnectionResetError):
            one.recv(64)
        two.sendall(PING)
        assert two.recv(64) == PONG


async def test_what_was_held_is_executed_later_though_its_caller_has_given_up(
    proxy: FaultProxy, valkey: Valkey
) -> None:
    direct = RedisBroker(valkey.url, "test")
    proxy.set(Hold())
    with closing(connect(proxy)) as one:
        one.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nlate\r\n$1\r\n1\r\n")
    assert await direct._link.writer.get("late") is None
    proxy.set(None)
    async with asyncio.timeout(60):
        while await direct._link.writer.get("late") is None:
            await asyncio.sleep(0.01)
    await direct.close()


async def test_a_duplicated_request_is_executed_twice_and_answered_once(proxy: FaultProxy, valkey: Valkey) -> None:
    proxy.set(Duplicate(1))
    broker, direct = RedisBroker(f"redis://127.0.0.1:{proxy.port}/0", "test"), RedisBroker(valkey.url, "test")
    await broker.add(StreamName.ROLLOUTS, b"one")
    async with asyncio.timeout(60):
        while (await direct.stats(StreamName.ROLLOUTS)).length < 2:
            await asyncio.sleep(0.01)
    await broker.add(StreamName.PROMPTS, b"one", sequence=1)
    assert (await direct.stats(StreamName.PROMPTS)).length == 1
    await broker.close()
    await direct.close()


def test_requests_are_split_wherever_their_bytes_are_and_a_transaction_is_one() -> None:
    multi, execute = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
    put = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\n"
    whole = PING + multi + put + execute + put
    for size in (1, 2, 7, len(whole)):
        splitter = RequestSplitter()
        found = [one for start in range(0, len(whole), size) for one in splitter.feed(whole[start : start + size])]
        assert found == [PING, multi + put + execute, put], size
