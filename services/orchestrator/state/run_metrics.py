"""The state of the run, as metrics."""

import time
from collections import Counter

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.registry import STATE_NAMES, Registry
from headrace.services.orchestrator.state.run_state import RunPhase, RunState


class RunMetrics:
    """Refreshes the run's gauges on each call of `look`."""

    def __init__(self, settings: OrchestratorSettings, state: RunState, registry: Registry) -> None:
        self._state = state
        self._registry = registry
        self._lost: set[str] = set()
        metrics.MAX_STALENESS.set(settings.run.max_staleness)
        metrics.MAX_STEPS.set(settings.run.max_steps)
        self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Refreshes the gauges; `now` is in monotonic seconds."""
        for phase in RunPhase:
            metrics.RUN_PHASE.labels(str(phase)).set(phase is self._state.phase)
        states = Counter(STATE_NAMES[replica.state] for replica in self._registry.alive(now))
        for name in STATE_NAMES.values():
            metrics.REPLICAS.labels(name).set(states[name])
        lost = {replica.boot_id for replica in self._registry.overdue(now)}
        metrics.REPLICAS_LOST.inc(len(lost - self._lost))
        # A frozen replica that recovers is counted again when it freezes again.
        self._lost = lost
