"""What the run is at, as metrics."""

import time
from collections import Counter

from services.orchestrator import metrics
from services.orchestrator.registry import STATE_NAMES, Registry
from services.orchestrator.run_state import RunPhase, RunState
from services.orchestrator.settings import OrchestratorSettings


class Meter:
    """Looks at the run whenever it is told to."""

    def __init__(self, settings: OrchestratorSettings, state: RunState, registry: Registry) -> None:
        self._state = state
        self._registry = registry
        self._lost: set[str] = set()
        metrics.MAX_STALENESS.set(settings.run.max_staleness)
        metrics.MAX_STEPS.set(settings.run.max_steps)
        self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Refreshes the gauges; `now` is of the monotonic clock."""
        for phase in RunPhase:
            metrics.RUN_PHASE.labels(str(phase)).set(phase is self._state.phase)
        states = Counter(STATE_NAMES[replica.state] for replica in self._registry.alive(now))
        for name in STATE_NAMES.values():
            metrics.REPLICAS.labels(name).set(states[name])
        lost = {replica.boot_id for replica in self._registry.overdue(now)}
        metrics.REPLICAS_LOST.inc(len(lost - self._lost))
        # A frozen one that comes back is lost anew when it freezes again.
        self._lost = lost
