"""How the soak judges: gRPC's own threads by their drift, all else by what is kept."""

import pytest

from benchmarks.soak import table

STEPS = range(6000, 26000, 33)


def count(changes: list[int]) -> list[tuple[float, float]]:
    """One more behind each of these steps."""
    return [(step, 30.0 + sum(step >= change for change in changes)) for step in STEPS]


@pytest.mark.parametrize(
    ("number", "once", "again"),
    [("threads", True, True), ("descriptors", True, True), ("grpc_threads", False, True), ("memory_mb", False, False)],
)
def test_one_more_thread_is_growth_unless_it_is_of_the_pool_of_grpc(number: str, once: bool, again: bool) -> None:
    key = ("trainer", number)
    assert bool(table({key: count([15_000])})[1]) == once
    assert bool(table({key: count(list(range(7000, 26000, 1000)))})[1]) == again
