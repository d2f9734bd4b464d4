"""One tracker on its own thread: reads what the run has written, hands it over, retries, gives up in time."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.services.trainer import metrics
from headrace.services.trainer.trackers.line_reader import Line, LineReader
from headrace.services.trainer.trackers.tracker import Tracker
from headrace.wire.rundir import atomic
from headrace.wire.rundir.evals import VERSION
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP
from headrace.wire.telemetry import get_logger

_LOOK_S = 1.0
_LONGEST_DELAY_S = 60.0
_TRIES = 8
"""Attempts after which a refused line is skipped: two minutes."""
_HANGS_S = 60.0
log = get_logger("trainer.trackers")


class Delivery:
    """Runs between `start` and `finish`; only `finish` waits for the tracker, for a limited time."""

    def __init__(
        self, name: str, tracker: Tracker, folder: Path, config: Mapping[str, object], *, look_s: float = _LOOK_S
    ) -> None:
        """`folder` is RUN/trackers; the progress of the tracker is stored there."""
        run = RunPaths(folder.parent)
        self._name, self._tracker, self._config, self._look_s = name, tracker, config, look_s
        self._file = folder / f"{name}.json"
        known = _read(self._file)
        self._run = str(known.get("run", ""))
        self._steps = LineReader(run.metrics, STEP, int(known.get("metrics", 0)))
        self._evals = LineReader(run.evals, VERSION, int(known.get("evals", 0)))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._failures = 0
        self._warned = False
        self._finished = False
        self._step, self._receipt = 0, ""
        self._busy_since: float | None = None
        metrics.TRACKER_DROPPED.labels(name)
        metrics.TRACKER_ERRORS.labels(name)

    def start(self) -> None:
        """Starts reading and handing over."""
        self._thread.start()

    def ask_to_finish(self, *, step: int = 0, receipt: str = "") -> None:
        """Requests the end, without waiting. `receipt`: that of the run's files after `step`, to be handed over."""
        self._step, self._receipt = step, receipt
        self._stop.set()

    def finish(self, timeout_s: float) -> None:
        """Lets the tracker take the remaining lines, for at most `timeout_s`."""
        self._stop.set()
        self._thread.join(timeout_s)
        left = self._steps.left() + self._evals.left()
        if left:
            metrics.TRACKER_DROPPED.labels(self._name).inc(left)
        if left or not self._finished:
            effect = "a resumed run hands them over" if left else "it may not show the run's end"
            log.warning("tracker_left", tracker=self._name, lines=left, seconds=round(timeout_s, 1), effect=effect)

    def look(self) -> None:
        """Logs a warning once if the tracker hangs."""
        since = self._busy_since
        if since is not None and time.monotonic() - since > _HANGS_S:
            self._warn(f"a call has not returned for {_HANGS_S:g} s")

    def _work(self) -> None:
        opened = False
        while True:
            last = self._stop.wait(self._delay())
            opened = opened or self._call(self._open)
            while opened and self._hand_over() and not self._stop.is_set():
                continue
            if last:
                break
        # Once more after the stop, for the last lines and those beyond one block.
        while opened and self._hand_over():
            continue
        if opened and self._receipt:
            self._call(lambda: self._tracker.log_receipt(self._step, self._receipt))
        self._finished = opened and self._call(self._tracker.finish)

    def _open(self) -> None:
        self._run = self._tracker.start(self._config, self._run)
        self._save()

    def _hand_over(self) -> bool:
        """Hands some lines over; returns whether there were any, and all of them are done."""
        moved = False
        for feed, act in ((self._steps, self._tracker.log), (self._evals, self._tracker.log_eval)):
            for line in feed.next():
                if not self._give(act, line):
                    self._save()
                    return False
                feed.offset, moved = line.end, True
        if moved:
            self._save()
        return moved

    def _give(self, act: Callable[[int, Mapping[str, float], float], None], line: Line) -> bool:
        if self._call(lambda: act(line.number, line.numbers, line.at)):
            return True
        if self._failures < _TRIES:
            return False
        metrics.TRACKER_DROPPED.labels(self._name).inc()
        self._failures = 0
        return True

    def _call(self, act: Callable[[], object]) -> bool:
        """Returns whether the call succeeded. The one place where errors of a tracker are caught."""
        self._busy_since = time.monotonic()
        try:
            act()
        except Exception as error:  # Libraries and their servers may raise anything; the run goes on without.
            self._failures += 1
            metrics.TRACKER_ERRORS.labels(self._name).inc()
            self._warn(f"{type(error).__name__}: {error}")
            return False
        finally:
            self._busy_since = None
        self._failures, self._warned = 0, False
        return True

    def _warn(self, reason: str) -> None:
        """Warns once, until the tracker works again."""
        if not self._warned:
            self._warned = True
            log.warning("tracker_fails", tracker=self._name, reason=reason[:500], effect="the run continues without it")

    def _delay(self) -> float:
        return min(self._look_s * float(2**self._failures), _LONGEST_DELAY_S)

    def _save(self) -> None:
        values = {"run": self._run, "metrics": self._steps.offset, "evals": self._evals.offset}
        # Without it all lines are handed over again.
        atomic.write_text(self._file, json.dumps(values) + "\n", durable=False)


def _read(path: Path) -> dict[str, Any]:
    """Reads the stored progress; empty if there is none or it is damaged: then all lines are handed over again."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
