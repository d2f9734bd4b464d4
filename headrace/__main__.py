"""`headrace` and `python -m headrace`."""

import os
import signal
import sys

from headrace.wire.process.environment import keep_out

_STOPPED = 130


def main() -> None:
    """Ends the process with the exit status of the command."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # A shell's `&` ignores it for the whole command.
        signal.signal(signal.SIGINT, _stop_early)
    if left_out := keep_out():
        sys.stderr.write(f"note: left out, as it would lead connections of a run elsewhere: {', '.join(left_out)}\n")
    try:
        from headrace.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "headrace").partition(".")[0] == "headrace":
            raise
        sys.stderr.write(
            f"error: the command line needs {error.name}: pip install 'headrace[cli]'; "
            "of the images, those of orchestrator and trainer have it\n"
        )
        sys.exit(2)
    signal.signal(signal.SIGINT, before)
    sys.exit(run(sys.argv[1:]))


def _stop_early(_number: int, _frame: object) -> None:
    """Ctrl-C while modules are imported: there is nothing to clean up, and a traceback would name none of our code."""
    sys.stderr.write("error: stopped before anything was started\n")
    sys.stderr.flush()
    os._exit(_STOPPED)


if __name__ == "__main__":
    main()
