"""Holds a run's first prompt back until the replicas it is to begin with serve. Pure but for the clock passed in."""

from services.orchestrator.registry import Registry
from wire.v1 import orchestrator_pb2 as pb


class Beginning:
    """A wait with a name and a deadline; over once and for all."""

    def __init__(self, registry: Registry, *, replicas: int, deadline_s: float, now: float) -> None:
        """Waits for `replicas` to serve, from `now` on for at most `deadline_s`."""
        self._registry = registry
        self._replicas = replicas
        self.since, self.until = now, now + deadline_s
        self.waiting_for = ""
        """In words; empty when it does not wait."""

    def is_over(self, now: float) -> bool:
        """Enough replicas serve, or have served together before, or the time is up."""
        serving = sum(one.state == pb.REPLICA_STATE_SERVING for one in self._registry.alive(now))
        if serving >= self._replicas or now > self.until:
            self._replicas = 0
        self.waiting_for = f"{self._replicas} replicas to serve, {serving} do" if self._replicas else ""
        return not self._replicas
