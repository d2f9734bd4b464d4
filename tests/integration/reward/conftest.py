"""What all tests of the reward service use."""

import pytest

from headrace.services.reward.endpoint import client


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the tries of a request."""
    monkeypatch.setattr(client, "_FIRST_PAUSE_S", 0.01)
