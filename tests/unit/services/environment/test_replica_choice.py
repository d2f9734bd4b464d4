"""Which replica samples a turn: the one with the most room first, then the one that has the episode's prefix."""

import time
from typing import Any

import pytest

from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.wire.v1 import message_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb


def place(name: str, free_rows: int = 4, *, version: int = 3, **others: Any) -> pb.ReplicaPlace:
    held = message_pb2.PolicyVersion(incarnation=1, version=version)
    fields = {"takes": True, "address": f"{name}:1"} | others
    return pb.ReplicaPlace(replica_id=name, version=held, free_rows=free_rows, **fields)


def listing(*places: pb.ReplicaPlace) -> ReplicaDirectory:
    directory = ReplicaDirectory()
    directory.update(places)
    return directory


def chosen(directory: ReplicaDirectory, *, preferred: str = "", min_version: int = 3) -> str:
    found = directory.choose(min_version, preferred=preferred)
    return "" if found is None else found.replica_id


def test_a_first_turn_goes_to_the_replica_with_the_most_rows_still_free() -> None:
    directory = listing(place("a", 2), place("b", 5), place("c", 4))
    assert chosen(directory) == "b"
    busiest = directory.choose(3)
    assert busiest is not None
    busiest.taken, busiest.in_flight = 2, 2
    assert chosen(directory) == "c"
    directory.update([place("a", 2), place("b", 5), place("c", 4)])  # The next list counts what was taken.
    assert chosen(directory) == "b"


def test_later_turns_stay_with_the_cached_prefix_while_rows_are_free() -> None:
    directory = listing(place("a", 1), place("b", 5))
    assert chosen(directory, preferred="a") == "a"
    home = directory.choose(3, preferred="a")
    assert home is not None
    home.taken = 1
    assert chosen(directory, preferred="a") == "b"


@pytest.mark.parametrize("gone", [place("a", takes=False), place("a", version=2), None])
def test_a_turn_moves_from_a_replica_that_drains_is_too_old_or_gone(gone: pb.ReplicaPlace | None) -> None:
    directory = listing(*([gone] if gone is not None else []), place("b", 1))
    assert chosen(directory, preferred="a") == "b"
    assert chosen(directory, preferred="a", min_version=4) == ""


def test_a_replica_that_was_full_is_passed_over_for_a_while_also_in_the_next_list() -> None:
    directory = listing(place("a", 5), place("b", 1))
    full = directory.choose(3)
    assert full is not None
    full.avoid_until = time.monotonic() + 1000
    directory.update([place("a", 5), place("b", 1)])
    assert chosen(directory, preferred="a") == "b"
    directory.update([place("a", 5, address="moved:1"), place("b", 1)])
    assert chosen(directory) == "a", "one that has moved is another process"


def test_a_turn_that_spans_a_new_replica_list_frees_its_row_when_it_ends() -> None:
    directory = listing(place("a", 2), place("b", 2))
    asked = directory.choose(3)
    assert asked is not None and asked.replica_id == "b"
    asked.in_flight += 1
    directory.update([place("a", 2), place("b", 2)])
    assert chosen(directory) == "a"
    asked.in_flight -= 1
    assert chosen(directory) == "b"
    asked.avoid_until = time.monotonic() + 1000
    assert chosen(directory) == "a"
