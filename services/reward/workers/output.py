"""What users' code prints, on its way into the service's log: at a bounded rate, and what is beyond is counted."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable

from headrace.services.reward import metrics
from headrace.wire.telemetry.logs import get_logger

_CHUNK = 1 << 16
BURST = 1 << 20
"""Bytes that a process may print at once, as a long traceback of each rollout of a batch."""
RATE = 4096.0
"""Bytes a second that it may print for ever: 350 MB a day."""
_SAY_S = 60.0
log = get_logger("reward.output")


class OutputBudget:
    """How much may still be printed. Pure: the clock is passed in."""

    def __init__(self, now: float, *, burst: int = BURST, rate: float = RATE) -> None:
        self._burst, self._rate = burst, rate
        self._left, self._at = float(burst), now

    def takes(self, size: int, now: float) -> bool:
        """Whether a piece of `size` bytes fits, which takes it from the budget; it fits whole or not at all."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if size > self._left:
            return False
        self._left -= size
        return True


def write_to_log(piece: bytes) -> None:
    """Writes to stderr, which is the log. A full disk loses the piece and does not fail the caller."""
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()


async def copy_output(
    printed: asyncio.StreamReader,
    what: str,
    *,
    write: Callable[[bytes], None] = write_to_log,
    budget: OutputBudget | None = None,
) -> None:
    """Copies what a process prints until it ends; logs how much was left out, once a minute at most."""
    budget = budget or OutputBudget(time.monotonic())
    dropped, said_at, whole = 0, -_SAY_S, True
    while piece := await printed.read(_CHUNK):
        now = time.monotonic()
        if budget.takes(len(piece), now):
            write(piece)
            whole = piece.endswith(b"\n")
            continue
        if not whole:
            # The next line of the log must not follow half a line, as of `print(..., end="")`.
            write(b"\n")
            whole = True
        dropped += len(piece)
        metrics.OUTPUT_DROPPED.inc(len(piece))
        if now - said_at >= _SAY_S:
            log.warning("output_dropped", what=what, bytes=dropped, kept_bytes_a_second=RATE)
            dropped, said_at = 0, now
    if not whole:
        write(b"\n")
    if dropped:
        log.warning("output_dropped", what=what, bytes=dropped, kept_bytes_a_second=RATE)
