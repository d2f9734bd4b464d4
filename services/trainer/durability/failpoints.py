"""The points of a step: a setting kills the process at one of them in one step (see `headrace.wire.failpoints`)."""

import os
import signal

from headrace.wire import failpoints


class Failpoints:
    """`fail_at` is `POINT:STEP`, or empty for none."""

    def __init__(self, fail_at: str = "") -> None:
        point, _, step = fail_at.partition(":")
        self._point = point
        self._step = int(step) if step else -1

    def reach(self, point: str, step: int) -> None:
        """Ends the process with SIGKILL if this is the point."""
        failpoints.reach(f"step.{point}")
        if point == self._point and step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)
