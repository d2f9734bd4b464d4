"""The store at which the ranks of a trainer meet is no door: who reaches it could write commands to the ranks."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.rendezvous import WaitPolicy, open_rendezvous
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.wire.errors import TransientError
from tests.ports import free_port
from tests.waiting import until


def test_ranks_that_have_met_go_on_and_no_other_process_connects(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.trainer.sealed_ranks", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and (tmp_path / "done").exists(), done.stderr[-3000:]
    found = json.loads((tmp_path / "ports.json").read_text())
    # gloo's own listeners are there, the store's is not.
    assert found["listening"] and found["store"] not in found["listening"], found


def test_the_store_of_several_machines_listens_at_its_own_address_alone() -> None:
    port, patience = free_port(), WaitPolicy(2.0)
    place = RankTopology(rank=0, ranks=2, node=0, nodes=2)

    def meet() -> None:
        with pytest.raises(TransientError, match=f"node 1 of 2 to come to node 0, which listens at 127.0.0.2:{port}"):
            open_rendezvous(place, port, patience, address="127.0.0.2")

    meeting = threading.Thread(target=meet)
    meeting.start()
    until(lambda: addresses(port) == {"127.0.0.2"}, "the store to listen")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    meeting.join(60)
    assert not meeting.is_alive()


def addresses(port: int) -> set[str]:
    listening = [one for one in psutil.Process().net_connections("inet") if one.status == psutil.CONN_LISTEN]
    return {one.laddr.ip for one in listening if one.laddr.port == port}


def test_a_name_that_is_not_known_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.services.trainer.distributed.launch.set_default", lambda *_: None)
    options = LaunchOptions(device="cpu", timeout_s=10.0, rendezvous="node0.invalid:29500")
    ranks = RankProcesses(RankTopology(rank=1, ranks=2, port=1), options)
    with pytest.raises(TransientError, match=r"waited 1 s.* for a way to node0\.invalid of trainer\.rendezvous"):
        ranks._choose_interface("node0.invalid", WaitPolicy(1.0))


def test_an_announced_address_of_this_machine_is_where_it_listens() -> None:
    chosen: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.services.trainer.distributed.launch.set_default", chosen.__setitem__)
        for announce, expected in (("127.0.0.3", "127.0.0.3"), ("203.0.113.9", "127.0.0.1"), ("", "127.0.0.1")):
            options = LaunchOptions(device="cpu", timeout_s=10.0, announce=announce)
            ranks = RankProcesses(RankTopology(rank=1, ranks=2, port=1), options)
            assert ranks._choose_interface("127.0.0.1", WaitPolicy(1.0)) == expected
    assert chosen == {"GLOO_SOCKET_IFNAME": "lo"}
