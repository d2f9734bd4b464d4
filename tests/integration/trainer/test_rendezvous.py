"""Machines of a trainer: who stands where, who is on the roster, and who is taken for gone."""

import json
import socket
import threading
from types import SimpleNamespace

import pytest
import structlog
import torch
from pydantic import ValidationError
from torch.distributed import HashStore

from headrace.services.trainer.distributed import heartbeat as heartbeats
from headrace.services.trainer.distributed import launch as launches
from headrace.services.trainer.distributed.heartbeat import RankHeartbeat
from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.rendezvous import (
    OVER,
    WaitPolicy,
    beat_key,
    connect,
    join_rendezvous,
    open_rendezvous,
    split_address,
)
from headrace.services.trainer.distributed.stop import StoppedError, StopSignal
from headrace.services.trainer.distributed.topology import RankTopology, settle_place
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import ConfigError, TransientError
from tests.ports import free_port

TWO = {"ranks": 4, "nodes": 2, "rendezvous": "10.0.0.4:29500"}


def place(node=0, rank=None, nodes=2, ranks=4):
    return RankTopology(rank=node * ranks // nodes if rank is None else rank, ranks=ranks, node=node, nodes=nodes)


def test_a_machine_has_ranks_in_a_row_and_devices_from_the_first_on():
    settings = TrainerSettings.model_validate({"trainer": TWO, "node": 1})
    first = settle_place(settings)
    assert (first.rank, first.local, first.first, first.name(3)) == (2, 0, True, "rank 3 of node 1")
    (child,) = first.children(4711)
    assert settle_place(settings, child.arguments()) == child
    assert (child.rank, child.local, child.first, child.node) == (3, 1, False, 1)
    assert [one.rank for one in place(0).children(1)] == [1]


def test_several_machines_without_a_rendezvous_are_rejected():
    with pytest.raises(ConfigError, match="needs HEADRACE_RENDEZVOUS"):
        settle_place(TrainerSettings.model_validate({"trainer": TWO | {"rendezvous": ""}}))


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"ranks": 3, "nodes": 2}, "take 2"),
        ({"ranks": 4, "nodes": 2, "cp": 4}, "cp = 4 does not divide ranks / nodes = 2"),
        ({"ranks": 2, "cp": 2, "backend": "deepspeed"}, "needs backend 'fsdp2'"),
        ({"rendezvous": "here"}, "rendezvous"),
        ({"rendezvous": "here:0"}, "from 1 to 65535"),
        ({"rendezvous": "here:65536"}, "from 1 to 65535"),
    ],
)
def test_impossible_node_settings_are_rejected_with_a_fix(trainer, words):
    with pytest.raises(ValidationError, match=words):
        TrainerSettings.model_validate({"trainer": trainer})


def test_an_address_of_either_kind_is_split():
    assert split_address("trainer-0.jobs:29500") == ("trainer-0.jobs", 29500)
    assert split_address("[fd00::4]:29500") == ("fd00::4", 29500)


def test_a_foreign_announced_address_selects_the_interface_towards_machine_0(monkeypatch):
    chosen = {}
    monkeypatch.setattr(launches, "set_default", chosen.__setitem__)
    options = LaunchOptions(device=torch.device("cpu"), timeout_s=1.0, announce="203.0.113.9")
    RankProcesses(RankTopology(rank=1, ranks=2, port=1), options)._choose_interface("127.0.0.1")
    assert chosen == {"GLOO_SOCKET_IFNAME": "lo"}


PATIENCE = WaitPolicy(60.0)


def attend(port, patience=PATIENCE, *, quiet_s=1.0, **numbers):
    return join_rendezvous(place(1, **numbers), f"127.0.0.1:{port}", patience, quiet_s=quiet_s)


@pytest.fixture
def met():
    """Two machines have met: the store, its port, the life."""
    port, found = free_port(), {}

    def host():
        found["store"] = open_rendezvous(place(0), port, WaitPolicy(60.0))

    thread = threading.Thread(target=host)
    thread.start()
    life = attend(port)
    thread.join(60)
    return found["store"], port, life


def test_machines_rendezvous_and_a_returning_one_ends_the_current_life(met):
    store, port, life = met
    assert store.get("life").decode() == life
    store.set(beat_key(2), "17")
    with pytest.raises(StoppedError, match="its current life continues without this machine"):
        attend(port, WaitPolicy(60.0, lambda: store.check([OVER])))
    assert json.loads(store.get(OVER)) == {"reason": "node 1 was started again", "code": 1}
    with pytest.raises(ConfigError, match=r"node 1 has trainer.nodes and ranks 2 x 3, node 0 has 2 x 2"):
        attend(port, ranks=6)


def test_a_second_process_of_a_live_machine_is_rejected_and_disturbs_no_rank(met):
    store, port, _ = met
    ended = threading.Event()

    def beat():
        count = 0
        while not ended.wait(0.1):
            count += 1
            store.set(beat_key(2), str(count))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(ConfigError, match=r"node 1 is there already, .* \(waited 8 s .* its own HEADRACE_NODE"):
            attend(port, WaitPolicy(8.0), quiet_s=3.0)
    finally:
        ended.set()
        thread.join(60)
    assert not store.check([OVER])


def test_a_port_in_use_is_named_with_a_fix():
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(TransientError, match=rf"waited 1 s for port {port} of trainer.rendezvous, .* another port"):
            open_rendezvous(place(0), port, WaitPolicy(1.0))


def test_a_rendezvous_ends_at_its_deadline_or_when_cancelled():
    with pytest.raises(TransientError, match="for node 1, node 2 of 3 to come"):
        open_rendezvous(place(0, nodes=3, ranks=3), free_port(), WaitPolicy(0.5))
    with pytest.raises(StoppedError, match="asked to stop while it waited for node 0"):
        join_rendezvous(place(1), f"127.0.0.1:{free_port()}", WaitPolicy(60.0, lambda: True), quiet_s=1.0)
    with pytest.raises(TransientError, match="no store answers"):
        connect("127.0.0.1", free_port(), timeout_s=2.0)


class Ended(Exception):
    """In place of the end of the test's own process."""


@pytest.fixture
def life(monkeypatch):
    """A store, a clock, and heartbeats of all four ranks without their threads; an end is raised."""
    now = [1000.0]

    def end(self, reason, code, **more):
        raise Ended(f"{code}: {reason}")

    monkeypatch.setattr(RankHeartbeat, "_end", end)
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    idle = SimpleNamespace(Event=threading.Event, Thread=lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(heartbeats, "time", clock)
    monkeypatch.setattr(heartbeats, "threading", idle)
    store, stops = HashStore(), [StopSignal() for _ in range(4)]
    every = []
    for rank in range(4):
        stop = stops[rank] if rank % 2 == 0 else None
        every.append(RankHeartbeat(lambda: store, place(rank // 2, rank), timeout_s=16.0, stop=stop))
        every[-1].start()

    def beat(*ranks, seconds=2.0):
        now[0] += seconds
        for rank in ranks:
            every[rank]._round(store, str(now[0]))

    return every, stops, beat


def test_a_rank_that_is_silent_too_long_ends_the_run_and_is_named(life):
    _, _, beat = life
    beat(1, 2, 3, 0)
    for _ in range(8):
        beat(1, 2, 0)
    with pytest.raises(Ended, match=r"^1: rank 3 of node 1 is silent for 18 s$"):
        [beat(1, 2, 0) for _ in range(2)]
    for rank in (1, 2, 3):
        with pytest.raises(Ended, match="rank 3 of node 1 is silent"):
            beat(rank)


def test_a_failed_collective_names_the_silent_rank_much_sooner(life):
    every, _, beat = life
    beat(1, 2, 3, 0)
    every[1].failed(TransientError("the sum failed"))
    with pytest.raises(Ended, match=r"rank 2 of node 1 is silent for 10 s \(rank 1 of node 0 failed: TransientError"):
        [beat(1, 3, 0) for _ in range(6)]


def test_a_permanent_error_ends_every_rank_with_its_exit_code(life):
    every, _, beat = life
    with structlog.testing.capture_logs() as lines:
        every[2].failed(ConfigError("no such model"))
    assert [(line["event"], line["error"]) for line in lines] == [("refused", "no such model")]
    with pytest.raises(Ended, match=r"^2: rank 2 of node 1 failed: ConfigError: no such model$"):
        beat(2)
    with pytest.raises(Ended, match=r"^2: "):
        beat(0)


def test_a_failed_heartbeat_ends_its_process_and_is_named(life):
    every, _, _ = life

    def no_store():
        raise KeyError("surprise")

    every[2]._connect = no_store
    with pytest.raises(Ended, match=r"^1: rank 2 of node 1 cannot beat: KeyError: 'surprise'$"):
        every[2]._beat()


def test_a_signal_on_any_machine_reaches_the_leader(life):
    _, stops, beat = life
    stops[2].receive()
    beat(2, 0)
    assert stops[0].asked() and stops[0].signalled
