"""Delays a run's first prompt until enough replicas serve. Pure apart from the clock value passed in."""

from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.v1 import orchestrator_pb2 as pb


class StartGate:
    """A one-time wait with a description and a deadline."""

    def __init__(self, registry: Registry, *, replicas: int, deadline_s: float, now: float) -> None:
        """Waits until `replicas` serve, for at most `deadline_s` from `now`."""
        self._registry = registry
        self._replicas = replicas
        self.since, self.until = now, now + deadline_s
        self.waiting_for = ""
        """Description of the wait; empty when there is none."""

    def is_over(self, now: float) -> bool:
        """Whether enough replicas serve, or did so at an earlier call, or the deadline has passed."""
        serving = sum(one.state == pb.REPLICA_STATE_SERVING for one in self._registry.alive(now))
        if serving >= self._replicas or now > self.until:
            self._replicas = 0
        self.waiting_for = f"{self._replicas} replicas to serve, {serving} do" if self._replicas else ""
        return not self._replicas
