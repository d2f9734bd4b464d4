"""The ranks of several machines live and die together: each one beats in the store of node 0, and looks who is gone.

The collectives would tell of a loss too, but of one that is frozen only at their deadline, and never who it was. Rank
0 judges and writes why the trainer is over; all end then, and whoever runs them starts them all again. In the moment of
the orderly end, when nobody beats any more (`Ranks.leave`), only the collectives' deadline is left.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from services.trainer.meeting import OVER, beat_key
from services.trainer.place import Place
from services.trainer.stop import StopSignal
from wire.entry import REFUSED, exit_code
from wire.telemetry import get_logger

_TROUBLE, _STOP = "trouble", "stop"
_LONGEST_BEAT_S = 2.0
_BEATS_OF_A_LIMIT = 8
_MISSED = 4
"""Beats that a rank misses before it is taken for the cause of a failed collective."""
_LOOK_S = 0.5
log = get_logger("trainer.pulse")


def quiet_after(timeout_s: float) -> float:
    """How long a rank may be without a beat before it is suspect, in seconds; `timeout_s` is what makes it lost."""
    return _MISSED * _every_s(timeout_s)


class Pulse:
    """Of one rank: two daemon threads, which end the process when the trainer is over."""

    def __init__(
        self, connect: Callable[[], Store], place: Place, *, timeout_s: float, stop: StopSignal | None = None
    ) -> None:
        """`connect` opens a connection of its own. `stop`: of the first process of a machine."""
        self._connect, self._place, self._timeout_s, self._stop = connect, place, timeout_s, stop
        self._every_s = _every_s(timeout_s)
        self._wake = threading.Event()
        self._left = False
        self._answered = time.monotonic()
        self._verdict: dict[str, str | int] = {}
        self._trouble = ""
        self._stop_told = False
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._troubled_since = 0.0

    def start(self) -> None:
        """Begins to beat and to watch."""
        now = time.monotonic()
        each = self._place.ranks // self._place.nodes
        # The first processes are there, as the meeting has seen; the others count from their first beat.
        self._beats = dict.fromkeys(range(0, self._place.ranks, each), (b"", now))
        self._answered = now
        threading.Thread(target=self._beat, daemon=True, name="pulse").start()
        if self._place.rank:
            threading.Thread(target=self._watch, daemon=True, name="pulse-watch").start()

    def declare(self, reason: str, code: int) -> None:
        """The trainer is over, on all machines, and this process ends within seconds; from any thread."""
        if not self._left:
            self._verdict = self._verdict or {"reason": reason, "code": code}
            self._wake.set()
            time.sleep(self._timeout_s)

    def failed(self, error: BaseException) -> None:
        """By the main thread when something was raised: others that are lost are named, and all end.

        Returns only if nobody has an answer in time; the process should end then.
        """
        if self._left:
            return
        code = exit_code(error)
        text = f"{self._place.name(self._place.rank)} failed: {type(error).__name__}: {error}"
        if code != 1:
            log.error("refused" if code == REFUSED else "stopped", error=str(error))
            self.declare(text, code)
            return
        # Before all else: this process may be ended any time now, and nobody else knows where it failed.
        log.error("failed", error=str(error), exc_info=error, effect="node 0 looks who is gone")
        self._trouble = text.partition("\n")[0]
        self._wake.set()
        time.sleep((_MISSED + 4) * self._every_s + self._timeout_s)

    def quit(self) -> None:
        """The orderly end: whoever is gone from now on is not missed (one that freezes, by collectives alone)."""
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
            # A rank without a pulse would only be taken for a silent one.
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
            # The others are to read it: the store ends with this process.
            time.sleep(2 * self._every_s + _LOOK_S)
        self._end(str(verdict["reason"]), int(verdict["code"]))

    def _pass_stop_on(self, store: Store) -> None:
        """A signal that any machine gets is one for all: its word goes to rank 0, which says when to stop."""
        if self._stop is None:
            return
        if self._place.rank and self._stop.signalled and not self._stop_told:
            store.set(_STOP, str(self._place.node))
            self._stop_told = True
            log.info("stop_passed_on", to="node 0")
        if self._place.rank == 0 and not self._stop_told and store.check([_STOP]):
            log.info("stopping", told_by=f"node {store.get(_STOP).decode()}")
            self._stop.receive()
            self._stop_told = True

    def _judge(self, store: Store) -> None:
        """By rank 0: who is silent for too long?"""
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
        """A store whose process is frozen does not answer at all."""
        while not self._left:
            silent = time.monotonic() - self._answered
            if silent > self._timeout_s:
                self._end(f"node 0 is silent for {silent:.0f} s", 1)
            time.sleep(min(_LOOK_S, self._every_s))

    def _end(self, reason: str, code: int, exc_info: BaseException | None = None) -> None:
        if self._left:
            return None
        # Twice: `error` is what others look for in the last line of a log.
        told = {"reason": reason, "error": reason, "exit_code": code, "effect": "all ranks on all nodes end"}
        log.error("over", **told, **({"exc_info": exc_info} if exc_info else {}))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 1)


def _every_s(timeout_s: float) -> float:
    return min(_LONGEST_BEAT_S, timeout_s / _BEATS_OF_A_LIMIT)
