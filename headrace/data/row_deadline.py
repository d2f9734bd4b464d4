"""A deadline for the rendering of one row: a chat template is a program, and may not end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from headrace.wire.errors import DataError

ROW_S = 60.0
"""Seconds that one row may take."""


@contextlib.contextmanager
def row_deadline(seconds: float | None = None) -> Iterator[None]:
    """Raises DataError within the block after `seconds` (`ROW_S`), by SIGALRM: there is none beside the main thread."""
    seconds = ROW_S if seconds is None else seconds
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise DataError(
            f"the chat template has not ended within {seconds:g} s: look for a loop in the model's chat_template.jinja"
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
