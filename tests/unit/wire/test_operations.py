"""What an operation tells while it is under way, and after it."""

import time

import pytest
from prometheus_client import CollectorRegistry, Gauge

from headrace.wire.operations import Operation


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def make(registry: CollectorRegistry) -> Operation:
    names = ("active", "until")
    active, until = (Gauge(name, "For a test.", ["operation"], registry=registry) for name in names)
    return Operation(active.labels("work").set, until.labels("work").set)


def gauges(registry: CollectorRegistry) -> tuple[float | None, float]:
    active, until = (registry.get_sample_value(name, {"operation": "work"}) for name in ("active", "until"))
    assert until is not None
    return active, until


def test_under_way_it_tells_its_deadline_and_afterwards_its_end(registry: CollectorRegistry) -> None:
    operation = make(registry)
    begin = time.time()
    with operation(500.0):
        active, until = gauges(registry)
        assert active == 1 and begin + 500 <= until <= time.time() + 500
    active, until = gauges(registry)
    assert active == 0 and begin <= until <= time.time()


def test_an_error_ends_it_and_passes(registry: CollectorRegistry) -> None:
    operation = make(registry)
    with pytest.raises(OSError, match="disk"), operation(500.0):
        raise OSError("the disk is full")
    active, until = gauges(registry)
    assert active == 0 and until <= time.time()
