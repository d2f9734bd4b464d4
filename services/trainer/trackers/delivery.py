"""One tracker on its own thread: reads what the run has written, hands it over, retries, gives up in time."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.services.trainer import metrics
from headrace.services.trainer.trackers.completions import Rows, completions_of
from headrace.services.trainer.trackers.tracker import Kind, Tracker
from headrace.wire.host.regular_file import read_object
from headrace.wire.rundir import atomic
from headrace.wire.rundir.evals import VERSION
from headrace.wire.rundir.jsonl import Record, number_of, parse
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP, TIME
from headrace.wire.telemetry.logs import get_logger

_LOOK_S = 1.0
_LONGEST_DELAY_S = 60.0
_TRIES = 8
"""Attempts after which a refused line is skipped: two minutes."""
log = get_logger("trainer.trackers")


@dataclass(slots=True)
class Feed:
    """A growing file of lines. `key` names the field with a line's number."""

    path: Path
    kind: Kind
    key: str
    offset: int
    """Lines before it are done."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines that are not done, each after the offset of its end; one is in memory at a time."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            end = file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                yield end, line


class Delivery:
    """Runs between `start` and `finish`; only `finish` waits for the tracker, for a limited time."""

    def __init__(
        self,
        name: str,
        tracker: Tracker,
        folder: Path,
        config: Mapping[str, object],
        *,
        completions: int = 0,
        look_s: float = _LOOK_S,
    ) -> None:
        """`folder` is RUN/trackers; the progress of the tracker is stored there. `completions`: rollouts of a step."""
        run = RunPaths(folder.parent)
        self._rollouts, self._completions = run.rollouts, completions
        self._name, self._tracker, self._config, self._look_s = name, tracker, config, look_s
        self._file = folder / f"{name}.json"
        known: dict[str, Any] = {**read_object(self._file)}  # Without it all lines are handed over again.
        self._run = str(known.get("run", ""))
        self._steps = Feed(run.metrics, "train", STEP, int(known.get("metrics", 0)))
        self._evals = Feed(run.evals, "eval", VERSION, int(known.get("evals", 0)))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._failures = 0
        self._tables_fail = False
        self._finished = False
        self._step, self._receipt = 0, ""
        metrics.TRACKER_DROPPED.labels(name)
        metrics.TRACKER_ERRORS.labels(name)

    def start(self) -> None:
        """Starts reading and handing over."""
        self._thread.start()

    def ask_to_finish(self, *, step: int = 0, receipt: str = "") -> None:
        """Requests the end, without waiting. `receipt`: of the run's files after `step`, to be delivered."""
        self._step, self._receipt = step, receipt
        self._stop.set()

    def finish(self, timeout_s: float) -> None:
        """Lets the tracker take the remaining lines, for at most `timeout_s`."""
        self._stop.set()
        self._thread.join(timeout_s)
        left = sum(1 for feed in (self._steps, self._evals) for _ in feed.lines())
        metrics.TRACKER_DROPPED.labels(self._name).inc(left)
        if left or not self._finished:
            effect = "a resumed run hands them over" if left else "it may not show the run's end"
            log.warning("tracker_left", tracker=self._name, lines=left, seconds=round(timeout_s, 1), effect=effect)

    def _work(self) -> None:
        opened, last = False, False
        while not last:
            last = self._stop.wait(self._delay())
            opened = opened or self._call(self._open)
            if opened:
                self._hand_over()
        if opened and self._receipt:
            self._call(lambda: self._tracker.log_receipt(self._step, self._receipt))
        self._finished = opened and self._call(self._tracker.finish)

    def _open(self) -> None:
        self._run = self._tracker.start(self._config, self._run)
        self._save()

    def _hand_over(self) -> None:
        """Hands the new lines over, up to one that fails."""
        for feed in (self._steps, self._evals):
            for end, line in feed.lines():
                if not self._give(feed, parse(line) or {}):
                    return
                feed.offset = end
                self._save()

    def _give(self, feed: Feed, record: Record) -> bool:
        """Returns whether the record is done: logged, given up after many tries, or a foreign one without a number."""
        number = record.get(feed.key)
        if type(number) is not int:
            return True
        at = number_of(record.get(TIME)) or 0.0
        if self._call(lambda: self._tracker.log(feed.kind, number, _numbers(record), at)):
            # Tried once: the numbers of later steps are not to wait for a table.
            if feed.kind == "train" and (rows := completions_of(self._rollouts, number, self._completions)):
                self._give_table(number, rows)
            return True
        if self._failures < _TRIES:
            return False
        metrics.TRACKER_DROPPED.labels(self._name).inc()
        self._failures = 0
        return True

    def _give_table(self, step: int, rows: Rows) -> None:
        """Errors are counted, and the first one is told; they say nothing about the numbers, which arrive."""
        try:
            self._tracker.log_completions(step, rows)
        except Exception as error:  # As in `_call`.
            metrics.TRACKER_ERRORS.labels(self._name).inc()
            if not self._tables_fail:
                self._tables_fail = True
                effect = "tables of completions are missing there; the numbers arrive"
                log.warning("tracker_fails", tracker=self._name, reason=_reason(error), effect=effect)

    def _call(self, act: Callable[[], object]) -> bool:
        """Returns whether the call succeeded. Here and in `_give_table` errors of a tracker are caught."""
        try:
            act()
        except Exception as error:  # Libraries and their servers may raise anything; the run goes on without.
            self._failures += 1
            metrics.TRACKER_ERRORS.labels(self._name).inc()
            if self._failures == 1:
                effect = "the run continues without it"
                log.warning("tracker_fails", tracker=self._name, reason=_reason(error), effect=effect)
            return False
        self._failures = 0
        return True

    def _delay(self) -> float:
        return min(self._look_s * float(2**self._failures), _LONGEST_DELAY_S)

    def _save(self) -> None:
        values = {"run": self._run, "metrics": self._steps.offset, "evals": self._evals.offset}
        # Without it all lines are handed over again.
        atomic.write_text(self._file, json.dumps(values) + "\n", durable=False)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _numbers(record: Record) -> dict[str, float]:
    values = {name: value for name, value in record.items() if name not in (TIME, STEP, VERSION)}
    found = {name: float(v) if isinstance(v, bool) else number_of(v) for name, v in values.items()}
    return {name: value for name, value in found.items() if value is not None}
