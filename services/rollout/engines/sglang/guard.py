"""Runs one command and kills everything it started as soon as its own standard input ends. Standard library only.

An SGLang server starts child processes that arrange to die with it only late in their start-up: those of a server that
was killed while loading live on. So the server runs under this guard, in one process group with it. The guard's
standard input is a pipe from the service: it ends when the service ends, for any reason.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Runs `argv`, then kills the whole process group including itself; writes the exit status to stderr before."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end_all())
    # The server inherits open files, such as the lock of a GPU.
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard, close_fds=False)
    threading.Thread(target=_watch, daemon=True).start()
    status = server.wait()
    sys.stderr.write(f"the server ended with status {status}\n")
    sys.stderr.flush()
    _end_all()
    return status


def _watch() -> None:
    sys.stdin.buffer.read()
    _end_all()


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)


def _die_with_guard() -> None:
    """Asks the kernel to kill the server if the guard itself is killed (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
