import json
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from headrace.services.trainer.learner.commands import Commands
from headrace.wire.errors import ContractError

TOKEN = "of the trainer"


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))


def ends(store, other=None):
    return Commands(store, 2, rank=0, token=TOKEN), Commands(other or store, 2, rank=1, token=TOKEN)


def test_commands_arrive_in_order_with_their_values_and_payloads(store):
    leader, follower = ends(store)
    leader.send("train", [b"one", b"", b"three"], step=7)
    first = follower.next()
    leader.send("stop")
    assert first.name == "train"
    assert first.values == {"step": 7}
    assert first.payloads == (b"one", b"", b"three")
    assert follower.next().name == "stop"


def test_a_follower_waits_for_a_command_that_comes_later(store):
    # A client of its own, as another process has: one client sends nothing while it waits.
    other = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=30))
    leader, follower = ends(store, other)
    found = []
    thread = threading.Thread(target=lambda: found.append(follower.next()))
    thread.start()
    leader.send("hold", version=3)
    thread.join(20)
    assert [command.values for command in found] == [{"version": 3}]


def test_commands_read_by_every_rank_are_removed_from_the_store(store):
    leader, follower = ends(store)
    for number in range(5):
        leader.send("train", [b"x" * 1000], step=number)
        assert follower.next().values == {"step": number}
    assert store.num_keys() <= 5


def test_a_batch_beyond_the_stores_largest_value_arrives(store):
    leader, follower = ends(store)
    payloads = [bytes([number]) * (5 * 1024 * 1024 + number) for number in range(3)]
    leader.send("train", payloads)
    assert list(follower.next().payloads) == payloads


def test_a_command_stays_until_the_slowest_rank_has_read_it(store):
    leader, quick, slow = (Commands(store, 3, rank=rank, token=TOKEN) for rank in range(3))
    leader.send("load", path="x")
    quick.next()
    sending = threading.Thread(target=lambda: leader.send("train"))
    sending.start()
    sending.join(0.3)
    assert sending.is_alive()
    assert slow.next().name == "load"
    sending.join(20)
    assert [quick.next().name, slow.next().name] == ["train", "train"]


def test_a_command_of_another_token_is_not_obeyed(store):
    follower = Commands(store, 2, rank=1, token=TOKEN)
    Commands(store, 2, rank=0, token="of another").send("train", [b"one"])
    with pytest.raises(ContractError, match="command 0 of rank 0 lacks the signature of this run"):
        follower.next()


@pytest.mark.parametrize("forged", ["head", "payload", "signatures"])
def test_a_command_that_was_changed_in_the_store_is_not_obeyed(store, forged):
    leader, follower = ends(store)
    leader.send("train", [b"one"], step=7)
    signed = json.loads(store.get("command/0/head"))
    match forged:
        case "head":
            store.set("command/0/head", json.dumps({**signed, "head": signed["head"].replace("train", "stop")}))
        case "payload":
            store.set("command/0/0", b"two")
        case _:
            store.set("command/0/head", json.dumps({**signed, "signatures": []}))
    with pytest.raises(ContractError, match="lacks the signature"):
        follower.next()


@pytest.mark.parametrize(
    "text", [b"no JSON", b"{}", b'{"head": "{}", "signatures": ["\xc3\xa9"]}', b'{"head": 3, "signatures": 1}']
)
def test_text_that_is_not_a_command_is_rejected(store, text):
    _, follower = ends(store)
    store.set("command/0/head", text)
    with pytest.raises(ContractError, match="lacks the signature"):
        follower.next()


def test_no_part_is_read_of_a_command_without_a_signature(store):
    _, follower = ends(store)
    head = json.dumps({"name": "train", "values": {}, "sizes": [], "parts": 10**9, "payloads": ""})
    store.set("command/0/head", json.dumps({"head": head, "signatures": []}))
    with pytest.raises(ContractError, match="lacks the signature"):
        follower.next()


def test_an_earlier_command_cannot_be_replayed(store):
    leader, follower = ends(store)
    leader.send("stop")
    before = store.get("command/0/head")
    assert follower.next().name == "stop"
    store.set("command/1/head", before)
    with pytest.raises(ContractError, match="command 1"):
        follower.next()
    # Nor by the same number of another life: a rank has another random word there.
    _, later = ends(store)
    store.set("command/0/head", before)
    with pytest.raises(ContractError, match="command 0"):
        later.next()
