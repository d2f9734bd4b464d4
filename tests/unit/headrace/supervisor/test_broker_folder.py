"""The embedded broker's folder is made before each start, and put aside where it is what kills the server."""

from pathlib import Path

import pytest

from headrace.supervisor.broker import EmbeddedBroker, embedded


@pytest.fixture
def broker(tmp_path: Path) -> EmbeddedBroker:
    return embedded(tmp_path, {})


def test_the_folder_is_made_before_each_start(broker: EmbeddedBroker) -> None:
    for early in (0, 1, 2, 3):
        assert broker.prepare(early) == ""
        broker.data.rmdir()


def test_broker_data_is_set_aside_and_kept_after_two_crashes(broker: EmbeddedBroker) -> None:
    folder = broker.data
    for number in (1, 2):
        broker.prepare(0)
        (folder / "log").write_text(f"damaged {number}")
        assert broker.prepare(1) == "" and (folder / "log").exists()
        told = broker.prepare(2)
        assert f"{folder} is now broker.damaged-{number}, and it starts empty" in told
        assert list(folder.iterdir()) == []
        assert (folder.with_name(f"broker.damaged-{number}") / "log").read_text() == f"damaged {number}"
