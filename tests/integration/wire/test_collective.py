"""The collective group between real processes."""

import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.process import BaseProcess
from threading import Barrier

import pytest
import torch
from torch.distributed import TCPStore

from headrace.wire.errors import TransientError
from headrace.wire.weights import CollectiveGroup, allocate, bucket_digest, make_snapshot, open_store

SIZE_BYTES = 64 * 1024 * 1024
_START_S = 120
"""New processes import torch first, all at once; a group waits no longer than 20 s for its members."""
_JOIN_S = 20
_SEND_S = 20


def receive(name: str, port: int, rank: int, world_size: int, dies: bool, all_are_up: Barrier) -> None:
    """A receiver in a process of its own; exit code 0 = it has the sender's bytes, 3 = it noticed the failure."""
    torch.set_num_threads(1)
    all_are_up.wait(_START_S)
    group = CollectiveGroup.join(name, "gloo", "127.0.0.1", port, rank, world_size, _JOIN_S)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.zeros(SIZE_BYTES, dtype=torch.uint8)
    try:
        group.broadcast(tensor, _SEND_S)
    except TransientError:
        os._exit(3)
    os._exit(0 if bucket_digest(tensor) == bucket_digest(torch.full_like(tensor, 7)) else 1)


def start(name: str, port: int, world_size: int, *, dying_rank: int = 0) -> list[BaseProcess]:
    """Returns when all of them are about to join."""
    context = multiprocessing.get_context("spawn")
    all_are_up = context.Barrier(world_size)
    peers: list[BaseProcess] = [
        context.Process(target=receive, args=(name, port, rank, world_size, rank == dying_rank, all_are_up))
        for rank in range(1, world_size)
    ]
    for peer in peers:
        peer.start()
    all_are_up.wait(_START_S)
    return peers


def exit_codes(peers: list[BaseProcess]) -> list[int | None]:
    for peer in peers:
        peer.join(_START_S)
    return [peer.exitcode for peer in peers]


def test_a_broadcast_reaches_all_members_bit_for_bit() -> None:
    store, port = open_store("127.0.0.1")
    peers = start("whole", port, 3)
    group = CollectiveGroup.join("whole", "gloo", "127.0.0.1", port, 0, 3, _JOIN_S)
    group.broadcast(torch.full((SIZE_BYTES,), 7, dtype=torch.uint8), _SEND_S)
    assert exit_codes(peers) == [0, 0]
    group.abort()
    del store


def test_a_member_killed_before_the_broadcast_fails_the_others_within_the_deadline() -> None:
    store, port = open_store("127.0.0.1")
    peers = start("torn", port, 3, dying_rank=1)
    group = CollectiveGroup.join("torn", "gloo", "127.0.0.1", port, 0, 3, _JOIN_S)
    peers[0].join(_START_S)
    with pytest.raises(TransientError, match="the broadcast in the group torn failed"):
        for _ in range(50):  # kernel buffers may swallow what was sent to the dead
            group.broadcast(torch.full((SIZE_BYTES,), 7, dtype=torch.uint8), _SEND_S)
    group.abort()
    assert exit_codes(peers)[0] == -signal.SIGKILL
    del store


def test_members_that_do_not_come_are_waited_for_only_until_the_deadline() -> None:
    store, port = open_store("127.0.0.1")
    with pytest.raises(TransientError, match=r"rank 0 could not join the group alone in 1\.0 s"):
        CollectiveGroup.join("alone", "gloo", "127.0.0.1", port, 0, 2, 1)
    del store


def test_an_aborted_group_refuses_to_send() -> None:
    store, port = open_store("127.0.0.1")
    group = CollectiveGroup.join("over", "gloo", "127.0.0.1", port, 0, 1, 5)
    snapshot = make_snapshot([("w", torch.ones(3))], dtype=torch.float32)
    group.broadcast(snapshot.buckets[0], 5)
    group.abort()
    group.abort()
    with pytest.raises(TransientError, match="aborted"):
        group.broadcast(allocate(snapshot.plan, "cpu")[0], 5)
    del store


def test_a_sealed_store_rejects_strangers_and_its_members_continue() -> None:
    store, port = open_store("127.0.0.1")
    peers = start("sealed", port, 2)
    group = CollectiveGroup.join("sealed", "gloo", "127.0.0.1", port, 0, 2, _JOIN_S)
    stranger = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    assert any("sealed" in key for key in stranger.list_keys())  # Why a name alone protects nothing.
    for _ in range(2):
        assert store.seal() == ""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 2)
    began = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - began < 0.25  # The store's loop sleeps.
    group.broadcast(torch.full((SIZE_BYTES,), 7, dtype=torch.uint8), _SEND_S)
    assert exit_codes(peers) == [0]
    group.abort()
    store.close()
    assert store.seal() == ""


def test_a_stranger_that_joins_first_fails_only_that_group() -> None:
    """The worst case, one that knows the name: the member fails in time, and a new group works."""
    store, port = open_store("127.0.0.1")
    context = multiprocessing.get_context("spawn")
    both = context.Barrier(1)
    stranger = context.Process(target=receive, args=("wanted", port, 1, 2, False, both))
    stranger.start()
    CollectiveGroup.join("wanted", "gloo", "127.0.0.1", port, 0, 2, _JOIN_S)
    with pytest.raises(TransientError, match="could not join the group wanted"):
        CollectiveGroup.join("wanted", "gloo", "127.0.0.1", port, 1, 2, 3)
    stranger.terminate()
    stranger.join(_START_S)
    store.close()
    store, port = open_store("127.0.0.1")
    peers = start("anew", port, 2)
    group = CollectiveGroup.join("anew", "gloo", "127.0.0.1", port, 0, 2, _JOIN_S)
    group.broadcast(torch.full((SIZE_BYTES,), 7, dtype=torch.uint8), _SEND_S)
    assert exit_codes(peers) == [0]
    group.abort()
