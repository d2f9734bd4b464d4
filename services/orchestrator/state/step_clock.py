"""Step times as seen by the orchestrator: the trainer's own clock does not survive the trainer."""

import time

from headrace.services.orchestrator import metrics


class StepClock:
    """Observes the interval between steps and sets the time of the last one."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """Restarts the interval at a new trainer or after a pause: the time before belongs to no step."""
        self._last = time.monotonic()
        metrics.LAST_STEP.set_to_current_time()

    def done(self, steps: int) -> None:
        """Records `steps` done since the last call; a late report may cover several."""
        if steps <= 0:
            return
        now = time.monotonic()
        for _ in range(steps):
            metrics.STEP_INTERVAL.observe((now - self._last) / steps)
        self._last = now
        metrics.LAST_STEP.set_to_current_time()
