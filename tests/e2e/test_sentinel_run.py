"""A run whose broker dies goes on with the server that Sentinels put into its place."""

from pathlib import Path

import pytest

from tests.e2e.harness import TinyRun
from tests.sentinel import Watched

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_run_trains_on_when_the_place_of_its_broker_is_taken(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "broker")
    run = TinyRun(tmp_path / "tiny", steps=8, staleness=1, deterministic=False, replicas=1)
    try:
        watched.start()
        run.start("--broker.url", watched.url)
        run.wait_for_step(2)
        watched.first.kill()
        assert run.finish()["steps"] == 8
        assert watched.writable() == watched.second.port
        run.check()
    finally:
        run.close()
        watched.stop()
