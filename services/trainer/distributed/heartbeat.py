"""Makes the ranks of several machines fail together: each beats in the store of node 0, which detects lost ranks.

Collectives would fail too, but on a frozen rank only at their deadline, and without naming it. Rank 0 judges the beats
and writes why the trainer is over; all ranks then exit, and their supervisors restart them all. During the orderly end,
when no rank beats any more (`Ranks.leave`), only the collectives' deadline is left.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from headrace.services.trainer.distributed.rendezvous import OVER, beat_key
from headrace.services.trainer.distributed.stop import StopSignal
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.wire.process.entry import REFUSED, exit_code
from headrace.wire.telemetry.logs import get_logger

_TROUBLE, _STOP = "trouble", "stop"
_LONGEST_BEAT_S = 2.0
_BEATS_OF_A_LIMIT = 8
_MISSED = 4
"""Beats that a rank misses before it counts as the cause of a failed collective."""
_LOOK_S = 0.5
log = get_logger("trainer.heartbeat")


def quiet_after(timeout_s: float) -> float:
    """Seconds without a beat after which a rank is suspect; `timeout_s` of silence makes it lost."""
    return _MISSED * _every_s(timeout_s)


class RankHeartbeat:
    """Heartbeat of one rank: two daemon threads, which end the process when the trainer is over."""

    def __init__(
        self, connect: Callable[[], Store], place: RankTopology, *, timeout_s: float, stop: StopSignal | None = None
    ) -> None:
        """`connect` opens a separate connection to the store. `stop`: given on the first process of a machine."""
        self._connect, self._place, self._timeout_s, self._stop = connect, place, timeout_s, stop
        self._every_s = _every_s(timeout_s)
        self._wake = threading.Event()
        self._left = False
        self._answered = time.monotonic()
        self._verdict: dict[str, str | int] = {}
        self._trouble = ""
        self._stop_passed_on = False
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._troubled_since = 0.0

    def start(self) -> None:
        """Starts to beat and to watch."""
        now = time.monotonic()
        each = self._place.ranks // self._place.nodes
        # The rendezvous has seen the first processes; the other ranks count from their first beat.
        self._beats = dict.fromkeys(range(0, self._place.ranks, each), (b"", now))
        self._answered = now
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()
        if self._place.rank:
            threading.Thread(target=self._watch, daemon=True, name="heartbeat-watch").start()

    def declare(self, reason: str, code: int) -> None:
        """Declares the trainer over on all machines; this process ends within seconds. Callable from any thread."""
        if not self._left:
            self._verdict = self._verdict or {"reason": reason, "code": code}
            self._wake.set()
            time.sleep(self._timeout_s)

    def failed(self, error: BaseException) -> None:
        """Reports an error raised in the main thread: lost ranks are identified, and all ranks end.

        Returns only if no verdict arrives in time; the process should end then.
        """
        if self._left:
            return
        code = exit_code(error)
        text = f"{self._place.name(self._place.rank)} failed: {type(error).__name__}: {error}"
        if code != 1:
            log.error("refused" if code == REFUSED else "stopped", error=str(error))
            self.declare(text, code)
            return
        # Before all else: this process may be ended any time now, and no other process knows where it failed.
        log.error("failed", error=str(error), exc_info=error, effect="node 0 looks for the missing rank")
        self._trouble = text.partition("\n")[0]
        self._wake.set()
        time.sleep((_MISSED + 4) * self._every_s + self._timeout_s)

    def quit(self) -> None:
        """Marks the orderly end: ranks gone from now on are not lost. Only collectives notice one that freezes."""
        self._left = True
        self._wake.set()

    def _beat(self) -> None:
        try:
            store = self._connect()
            count = 0
            while not self._left:
                count += 1
                self._round(store, str(count))
                self._answered = time.monotonic()
                self._wake.wait(self._every_s)
                self._wake.clear()
        except (RuntimeError, OSError) as error:
            text = str(error).partition("\n")[0]
            self._end(f"node 0 is gone: the connection to its store is broken ({text})", 1)
        except Exception as error:
            # Without this, a rank that cannot beat would only be reported as silent.
            name = self._place.name(self._place.rank)
            self._end(f"{name} cannot beat: {type(error).__name__}: {error}", 1, exc_info=error)

    def _round(self, store: Store, count: str) -> None:
        rank = self._place.rank
        store.set(beat_key(rank), count)
        if self._verdict:
            store.compare_set(OVER, "", json.dumps(self._verdict))
        elif self._trouble:
            store.compare_set(_TROUBLE, "", self._trouble)
        if store.check([OVER]):
            self._obey(json.loads(store.get(OVER)))
        self._pass_stop_on(store)
        if rank == 0:
            self._judge(store)

    def _obey(self, verdict: dict[str, str | int]) -> None:
        if self._place.rank == 0 and not self._left:
            # Gives the others time to read it: the store ends with this process.
            time.sleep(2 * self._every_s + _LOOK_S)
        self._end(str(verdict["reason"]), int(verdict["code"]))

    def _pass_stop_on(self, store: Store) -> None:
        """Passes a stop signal received on any machine to rank 0, which decides when to stop."""
        if self._stop is None:
            return
        if self._place.rank and self._stop.signalled and not self._stop_passed_on:
            store.set(_STOP, str(self._place.node))
            self._stop_passed_on = True
            log.info("stop_passed_on", to="node 0")
        if self._place.rank == 0 and not self._stop_passed_on and store.check([_STOP]):
            log.info("stopping", told_by=f"node {store.get(_STOP).decode()}")
            self._stop.receive()
            self._stop_passed_on = True

    def _judge(self, store: Store) -> None:
        """On rank 0: declares the trainer over if a rank is silent for too long, or has reported an error."""
        now = time.monotonic()
        for rank in range(1, self._place.ranks):
            if store.check([beat_key(rank)]):
                beat = bytes(store.get(beat_key(rank)))
                if rank not in self._beats or beat != self._beats[rank][0]:
                    self._beats[rank] = (beat, now)
        limit, trouble = self._timeout_s, ""
        if store.check([_TROUBLE]):
            trouble = store.get(_TROUBLE).decode()
            self._troubled_since = self._troubled_since or now
            limit = min(limit, _MISSED * self._every_s)
        silent = {rank: now - heard for rank, (_, heard) in self._beats.items() if rank and now - heard > limit}
        if silent:
            names = "; ".join(f"{self._place.name(rank)} is silent for {age:.0f} s" for rank, age in silent.items())
            self._verdict = self._verdict or {"reason": f"{names}" + (f" ({trouble})" if trouble else ""), "code": 1}
        elif trouble and now - self._troubled_since > (_MISSED + 1) * self._every_s:
            self._verdict = self._verdict or {"reason": trouble, "code": 1}
        if self._verdict:
            self._wake.set()

    def _watch(self) -> None:
        """Ends this process when the store of node 0 is silent: a frozen process does not break the connection."""
        while not self._left:
            silent = time.monotonic() - self._answered
            if silent > self._timeout_s:
                self._end(f"node 0 is silent for {silent:.0f} s", 1)
            time.sleep(min(_LOOK_S, self._every_s))

    def _end(self, reason: str, code: int, exc_info: BaseException | None = None) -> None:
        if self._left:
            return None
        # Twice: readers of the log look for `error` in its last line.
        facts = {"reason": reason, "error": reason, "exit_code": code, "effect": "all ranks on all nodes end"}
        log.error("over", **facts, **({"exc_info": exc_info} if exc_info else {}))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 1)


def _every_s(timeout_s: float) -> float:
    return min(_LONGEST_BEAT_S, timeout_s / _BEATS_OF_A_LIMIT)
