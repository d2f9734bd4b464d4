"""Runs one command and kills everything it started as soon as its own standard input ends. Standard library only.

An SGLang server starts further processes that ask to die with it only once they are well under way: those of a server
that was killed while it loaded live on. So the server runs under this guard, in one process group with it. The guard's
standard input is a pipe from the service: it ends when the service does, however that happened.
"""

import os
import signal
import subprocess
import sys
import threading


def main(argv: list[str]) -> int:
    """Runs `argv`; ends with the whole process group, so no exit status arrives: it is told in the last line."""
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def watch() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    status = server.wait()
    sys.stderr.write(f"the server ended with status {status}\n")
    sys.stderr.flush()
    os.killpg(0, signal.SIGKILL)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
