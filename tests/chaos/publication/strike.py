"""At which moment of a publication a test strikes: groups that tell how far a transfer is."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.services.trainer.publication import sender
from headrace.wire.weights import CollectiveGroup

_BUCKETS = 3
"""A version has so many."""


class Moment:
    """The middle of the transfer of one version to one replica; `act` happens once."""

    next: "Moment | None" = None
    """What is to be struck next; shared by all groups of this process."""

    def __init__(self, replica: str, act: Callable[[], None]) -> None:
        self.over = False
        self._group, self._act = f"{replica}-", act
        Moment.next = self

    def strike(self, group: str) -> None:
        if not self.over and group.startswith(self._group):
            self.over = True
            self._act()


class WatchedGroup(CollectiveGroup):
    """Strikes when the first bucket of a version has arrived and the second is to be sent."""

    def broadcast(self, tensor: Any, timeout_s: float) -> None:
        self.sent = getattr(self, "sent", 0) + 1
        if Moment.next and self.sent % _BUCKETS == 2:
            Moment.next.strike(self.name)
        super().broadcast(tensor, timeout_s)


def install(patch: pytest.MonkeyPatch) -> None:
    """For as long as `patch` lasts."""
    patch.setattr(sender, "CollectiveGroup", WatchedGroup)
