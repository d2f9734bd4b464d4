"""What environment workers report of their episodes, with leases on a monotonic clock. Pure: the clock is passed in.

For people alone: nothing is decided by it, and a worker that is not heard plays on.
"""

import time
from dataclasses import dataclass

from headrace.services.orchestrator.state.bounds import check_number, check_worker
from headrace.wire.api.status import EnvironmentStatus, EpisodeWait
from headrace.wire.v1 import orchestrator_pb2 as pb

_SHOWN = 16
"""Waits of one worker that the status has."""
_IDLE = ("slot", "weights")
"""What is waited for before an episode is in play."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The last report of one worker; `seen` is in monotonic seconds."""

    request: pb.ReportEpisodesRequest
    seen: float

    @property
    def longest_first(self) -> list[pb.EpisodeInHand]:
        """Its episodes by how long they have waited for the same."""
        return sorted(self.request.episodes, key=lambda one: (-one.seconds, one.id))


class EnvironmentWorkers:
    """The table of environment workers."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._reports: dict[str, WorkerReport] = {}

    def report(self, request: pb.ReportEpisodesRequest, now: float) -> None:
        """Takes a report over; forgets the workers whose lease has ended.

        Raises ContractError for a report out of bounds.
        """
        check_worker(request)
        self._reports = {name: one for name, one in self._reports.items() if now - one.seen <= self._lease_s}
        check_number("environment workers", len(self._reports.keys() - {request.worker_id}))
        self._reports[request.worker_id] = WorkerReport(request, now)

    def view(self, now: float) -> tuple[EnvironmentStatus, ...]:
        """Workers with a live lease, by id."""
        return tuple(_status(one, now) for one in self._alive(now))

    def place_of(self, group_index: int, now: float) -> str:
        """Which worker plays or holds a training group, and what its episode that waits longest waits for.

        One in play comes first: those that wait for a slot wait for it. Empty if no worker has the group.

        Such as `environment-0 plays it: demo/g00000007/2 waits for the tools search, 12 s`.
        """
        for worker in self._alive(now):
            own = [one for one in worker.longest_first if one.group_index == group_index]
            own.sort(key=lambda one: one.kind in _IDLE)
            if own:
                seconds = own[0].seconds + now - worker.seen
                waits = f"{own[0].id} waits for {own[0].waits_for}, {seconds:.0f} s"
                verb = "holds" if own[0].kind in _IDLE else "plays"
                return f"{worker.request.worker_id} {verb} it: {waits}"
        return ""

    def _alive(self, now: float) -> list[WorkerReport]:
        living = [one for one in self._reports.values() if now - one.seen <= self._lease_s]
        return sorted(living, key=lambda one: one.request.worker_id)


def _status(one: WorkerReport, now: float) -> EnvironmentStatus:
    episodes = one.longest_first
    seen = time.time() - (now - one.seen)
    waiting = sum(episode.kind in _IDLE for episode in episodes)
    return EnvironmentStatus(
        id=one.request.worker_id,
        slots=one.request.slots,
        playing=len(episodes) - waiting,
        waiting=waiting,
        seen=round(seen, 1),
        waits=tuple(
            EpisodeWait(id=each.id, kind=each.kind, waits_for=each.waits_for, since=round(seen - each.seconds, 1))
            for each in episodes[:_SHOWN]
        ),
        notes=tuple(one.request.notes),
    )
