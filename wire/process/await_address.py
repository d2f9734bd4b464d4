"""Waits until something listens at an address, and reports in one line which service it waits for.

    python -P -m headrace.wire.process.await_address --seconds 3600 --who "the trainer of pod 0" HOST:PORT

For a process that must not start before another service, where nothing orders the starts. The host's name need not
exist yet. Exit code 0: it listens; 1: not in time.
"""

import argparse
import socket
import sys
import time

_LOOK_S = 1.0
_PRINT_S = 30.0
_CONNECT_S = 5.0


def await_address(host: str, port: int, seconds: float, who: str) -> bool:
    """Returns whether a connection is accepted within `seconds`; meanwhile prints a line each `_PRINT_S` seconds."""
    end, printed_at = time.monotonic() + seconds, 0.0
    while problem := _problem(host, port):
        now = time.monotonic()
        if now > end:
            _say(f"gave up after {seconds:g} s: {who} does not listen at {host}:{port} ({problem}): see its log")
            return False
        if now - printed_at > _PRINT_S:
            printed_at = now
            _say(f"waiting for {who} at {host}:{port} ({problem}), {end - now:.0f} s more")
        time.sleep(_LOOK_S)
    return True


def _problem(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return ""
    except OSError as error:
        return str(error) or type(error).__name__


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> None:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--who", required=True)
    parser.add_argument("address", metavar="HOST:PORT")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    if not host or not port.isdecimal():
        parser.error(f"{options.address!r} is no HOST:PORT")
    sys.exit(0 if await_address(host, int(port), options.seconds, options.who) else 1)


if __name__ == "__main__":
    main()
