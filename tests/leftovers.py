"""Processes of a run that are still there."""

from pathlib import Path


def left_running(mark: str) -> list[str]:
    """Command lines of the processes with `mark` in their environment or command line.

    The title of a forked process lies over what `/proc` shows of its environment.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if mark.encode() in (process / "environ").read_bytes() + b"\0" + command:
                found.append(command.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
