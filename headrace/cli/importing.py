"""Modules of the command line are imported under its own words for Ctrl-C and for a package that is missing."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BAD_INPUT, _STOPPED = 2, 130


@contextmanager
def importing() -> Iterator[None]:
    """While modules are imported, a signal ends the process at once: there is nothing to clean up.

    A traceback would name none of our code.
    """
    numbers = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, _stop_early) for one in numbers}  # A shell's `&` ignores SIGINT.
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "headrace").partition(".")[0] == "headrace":
            raise
        sys.stderr.write(
            f"error: the command line needs {error.name}: pip install 'headrace[cli]'; "
            "of the images, those of orchestrator and trainer have it\n"
        )
        sys.exit(_BAD_INPUT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_early(_number: int, _frame: object) -> None:
    sys.stderr.write("error: stopped before anything was started\n")
    sys.stderr.flush()
    os._exit(_STOPPED)
