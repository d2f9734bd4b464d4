"""The server: `python -P -m headrace.supervisor.fork_server FD PARENT MODULE...`.

Imports the modules, sends `{}` on the socket FD, and then forks one process a request until the socket is closed. A
forked process leaves the server's loop before it runs its module, so that the module ends as it would unforked.
It becomes a child of PARENT, which must be a subreaper meanwhile: its parent in between exits at once.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time

import setproctitle

from headrace.supervisor.fork_server.request import LONGEST, ForkRequest, module_of
from headrace.wire.process.lifecycle import die_with_parent

_ADOPTED_S = 10.0


def load(modules: list[str]) -> None:
    """Imports what the services will import. What fails here fails in the service too, which reports it."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise SystemExit(f"an import has started threads, which a fork would lose: {names}")
    # A collection in a child would write to, and so copy, every page of what they share.
    gc.collect()
    gc.freeze()


def serve(link: socket.socket, parent: int) -> ForkRequest | None:
    """Forks a process a request. Returns the request in that process, and None in the server once the link is shut."""
    link.send(b"{}")
    while True:
        packet, files, _, _ = socket.recv_fds(link, LONGEST, 2)
        if not packet:
            return None
        between = os.fork()
        if between:
            for file in files:
                os.close(file)
            os.waitpid(between, 0)
        elif os.fork():
            os._exit(0)
        else:
            request = ForkRequest.decode(packet)
            _join(parent, link)
            _become(request, files)
            link.send(json.dumps({"pid": os.getpid()}).encode())
            link.close()
            return request


def _join(parent: int, link: socket.socket) -> None:
    """Waits until this process is a child of `parent`, to die with it; ends it if `parent` no longer waits for it."""
    end = time.monotonic() + _ADOPTED_S
    shut = select.poll()
    shut.register(link, 0)  # Only POLLHUP.
    while os.getppid() != parent:
        if shut.poll(1) or time.monotonic() > end:
            os._exit(1)
    # Not before: the end of the parent in between would be mistaken for the supervisor's.
    die_with_parent()
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _become(request: ForkRequest, files: list[int]) -> None:
    """Turns a copy of the server into the leader of a process group, as if the command line had been executed."""
    os.setsid()
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request.env)
    sys.argv = ["", *request.argv[4:]]
    sys.orig_argv = list(request.argv)
    setproctitle.setproctitle(" ".join(request.argv))


def main() -> ForkRequest | None:
    """Loads and serves; see `serve`."""
    # It finds the memory of the title only in a process that was executed, not in one that was forked.
    setproctitle.getproctitle()
    link, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    load(sys.argv[3:])
    return serve(link, parent)


if __name__ == "__main__":
    asked = main()
    if asked is not None:
        runpy.run_module(module_of(asked.argv), run_name="__main__", alter_sys=True)
