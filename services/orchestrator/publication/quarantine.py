"""Finds replicas that serve weights which were never published, and says what they must disown."""

from dataclasses import dataclass

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunState
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.codec import VERSION
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.quarantine")
MOST_UNPROVEN = 3
"""Groups in a row under weights that the trainer never had, after which a replica is quarantined."""


@dataclass(frozen=True, slots=True)
class _Order:
    """The version that one boot of a replica was last ordered to disown."""

    boot_id: str
    version: PolicyVersion
    unproven: int
    """Its row of unproven groups then: groups that were already sampled still arrive, and are not a new reason."""


class Quarantine:
    """Judges each heartbeat. A replica that disowns its weights gets the current ones over the disk."""

    def __init__(self, state: RunState, registry: Registry, events: EventLog) -> None:
        self._state, self._registry, self._events = state, registry, events
        self._orders: dict[str, _Order] = {}

    def judge(self, beat: pb.HeartbeatRequest, now: float) -> str:
        """Why the replica must disown the version that it reports; empty if it need not."""
        version = VERSION.from_pb(beat.version)
        known = self._orders.get(beat.replica_id)
        row = self._state.trainer.unproven.get(beat.replica_id, 0)
        if not version.incarnation or not self._registry.knows(beat.replica_id, beat.boot_id):
            return ""
        if known is not None and (known.boot_id != beat.boot_id or row < known.unproven):
            # Another process, or a group of it was trained since.
            del self._orders[beat.replica_id]
            known = None
        why = self._never_published(version) or _unproven(row - (known.unproven if known else 0), row)
        if not why:
            return ""
        if known is None or known.version != version or row - known.unproven >= MOST_UNPROVEN:
            self._orders[beat.replica_id] = _Order(beat.boot_id, version, row)
            self._report(beat.replica_id, version, why)
        self._registry.quarantined(beat.replica_id, now)
        return why

    def _never_published(self, version: PolicyVersion) -> str:
        request = self._state.publication
        if request is None:
            return ""
        newest = PolicyVersion(incarnation=request.incarnation, version=request.version)
        return f"it serves {version}, the newest that was published is {newest}" if version > newest else ""

    def _report(self, replica_id: str, version: PolicyVersion, why: str) -> None:
        metrics.REPLICAS_DISOWNED.inc()
        log.error("replica_quarantined", replica=replica_id, version=str(version), reason=why)
        self._events.append("replica_quarantined", replica_id=replica_id, version=str(version), reason=why)


def _unproven(new: int, row: int) -> str:
    if new < MOST_UNPROVEN:
        return ""
    return f"its last {row} groups were sampled under weights that the trainer never had"
