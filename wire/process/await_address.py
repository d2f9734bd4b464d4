"""Waits until something listens at an address, and reports in one line which service it waits for.

    python -P -m headrace.wire.process.await_address --seconds 3600 --who "the trainer of pod 0" HOST:PORT

For a process that must not start before another service, where nothing orders the starts. The host's name need not
exist yet. Exit code 0: it listens; 1: not in time.
"""

import argparse
import socket
import sys

from headrace.wire.process.await_file import await_end_of

_CONNECT_S = 5.0


def problem_at(host: str, port: int, who: str) -> str:
    """Why no connection is accepted; empty if one is."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        return f"{who} does not listen at {host}:{port} ({str(error) or type(error).__name__})"
    return ""


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
    sys.exit(0 if await_end_of(lambda: problem_at(host, int(port), options.who), options.seconds) else 1)


if __name__ == "__main__":
    main()
