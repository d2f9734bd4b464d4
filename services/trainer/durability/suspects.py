"""Counts, for each replica, the groups in a row that it sampled under weights which this incarnation never had. Pure.

A trainer that went back to its checkpoint drops groups of the version that was lost with it: these are of an older
incarnation, and honest. A group of this incarnation, at its version or above it, whose weights are not the trainer's
is not: something has put other weights into that replica.
"""

from collections.abc import Iterable

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.wire.contracts import PolicyVersion


class Suspects:
    """The counts; a trained group of a replica ends its row."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def dropped(self, groups: Iterable[ReadyGroup], now: PolicyVersion) -> None:
        """Takes groups that were dropped as `unverified_weights` while the trainer's weights were those of `now`."""
        for group in groups:
            if group.replica_id and any(version >= now for version, _ in group.sources):
                self._rows[group.replica_id] = self._rows.get(group.replica_id, 0) + 1

    def trained(self, groups: Iterable[ReadyGroup]) -> None:
        """Takes the groups of a batch."""
        for group in groups:
            self._rows.pop(group.replica_id, None)

    def rows(self) -> dict[str, int]:
        """Replica id -> groups in a row."""
        return dict(self._rows)
