"""An outage is reported once it lasts, again if it goes on, and shown in the run directory while it does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.wire.peers import outage
from headrace.wire.peers.outage import Outage, unreachable
from headrace.wire.rundir.layout import RunPaths


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr("headrace.wire.peers.outage.time.monotonic", lambda: now[0])
    outage.show_as("rollout-1", tmp_path, RunPaths(tmp_path).events)
    yield now
    outage.forget()


def test_a_restart_is_not_reported_and_an_outage_is_until_it_ends(clock: list[float], tmp_path: Path) -> None:
    made = Outage("orchestrator", "10.0.0.1:7000")
    with capture_logs() as logs:
        for seconds in (0.0, 1.0, 1.0):
            clock[0] += seconds
            made.failed("refused")
        made.over()
        assert not logs and not list(unreachable(tmp_path))
        for _ in range(80):
            made.failed("refused")
            clock[0] += 0.5
        (shown,) = unreachable(tmp_path)
        made.over()
    assert [line["event"] for line in logs] == ["peer_unreachable", "peer_unreachable", "peer_reached"]
    assert (logs[0]["address"], logs[0]["error"], logs[0]["seconds"]) == ("10.0.0.1:7000", "refused", 3.0)
    assert (shown.who, shown.peer, shown.address, shown.error) == (
        *("rollout-1", "orchestrator", "10.0.0.1:7000", "refused"),
    )
    assert not list(unreachable(tmp_path))


def test_a_try_that_is_not_answered_counts_from_its_beginning(clock: list[float]) -> None:
    with capture_logs() as logs:
        Outage("broker", "a:1").failed("timeout", began=clock[0] - 5)
    assert [line["seconds"] for line in logs] == [5.0]
