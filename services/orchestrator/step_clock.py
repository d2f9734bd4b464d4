"""When steps are done, as the orchestrator sees it: the trainer's own clock ends with the trainer."""

import time

from services.orchestrator import metrics


class StepClock:
    """Told of each step."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.restart()

    def restart(self) -> None:
        """A life of the trainer begins, or a pause has ended: what was before is no step's time."""
        self._last = time.monotonic()
        metrics.LAST_STEP.set_to_current_time()

    def done(self, steps: int) -> None:
        """So many were done since the last call; a report that was late tells of several."""
        if steps <= 0:
            return
        now = time.monotonic()
        for _ in range(steps):
            metrics.STEP_INTERVAL.observe((now - self._last) / steps)
        self._last = now
        metrics.LAST_STEP.set_to_current_time()
