"""The store at which the ranks of a trainer meet is no door: who reaches it could write commands to the ranks."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import structlog

from headrace.services.trainer.distributed import rendezvous
from headrace.services.trainer.distributed.rendezvous import WaitPolicy, listening_address, open_rendezvous
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


NAMES = {"node0": "127.0.1.1", "vip": "10.9.0.7", "node0.cluster": "10.0.0.4", "node0.public": "203.0.113.9"}
OWN = {"10.0.0.4", "10.9.0.7", "127.0.0.1", "127.0.1.1", "172.16.0.2"}


@pytest.mark.parametrize(
    ("host", "announce", "expected"),
    [
        ("127.0.0.1", "172.16.0.2", "127.0.0.1"),
        ("node0.cluster", "", "10.0.0.4"),
        ("vip", "172.16.0.2", "10.9.0.7"),
        # Behind a translation of addresses.
        ("node0.public", "", "10.0.0.4"),
        ("node0.public", "172.16.0.2", "172.16.0.2"),
        ("node0.public", "gone.invalid", "10.0.0.4"),
        # As Debian resolves a machine's own name.
        ("node0", "", ""),
        ("node0", "172.16.0.2", "172.16.0.2"),
        ("node0", "node0", ""),
    ],
)
def test_the_store_listens_at_the_address_that_other_ranks_connect_to(
    monkeypatch: pytest.MonkeyPatch, host: str, announce: str, expected: str
) -> None:
    def resolve(name: str) -> str:
        if name.endswith(".invalid"):
            raise OSError("unknown")
        return NAMES.get(name, name)

    monkeypatch.setattr(rendezvous, "address_of", resolve)
    towards = {"127.0.0.1": "127.0.0.1", "127.0.1.1": "127.0.0.1"}
    monkeypatch.setattr(rendezvous, "address_towards", lambda name: towards.get(resolve(name), "10.0.0.4"))
    monkeypatch.setattr(rendezvous, "has_address", OWN.__contains__)
    with structlog.testing.capture_logs() as logs:
        assert listening_address(host, announce, WaitPolicy(1.0)) == expected
    assert any(one["event"] == "store_at_every_address" for one in logs) is (expected == "")
