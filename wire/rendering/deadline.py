"""A deadline for one rendering: a chat template is a program, and may not end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from headrace.wire.errors import ConfigError

TEMPLATE_S = 20.0
"""Seconds that one rendering may take."""


@contextlib.contextmanager
def template_deadline() -> Iterator[None]:
    """Raises ConfigError within the block after `TEMPLATE_S`, by SIGALRM: there is none beside the main thread."""
    seconds = TEMPLATE_S
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise ConfigError(
            f"the chat template has not ended within {seconds:g} s: look for a loop in the model's chat_template.jinja"
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
