"""`python -P -m tests.warm.run FOLDER MODULE ARGUMENT...`, forked: becomes `python -P -m MODULE ARGUMENT...` in FOLDER.

The command line `headrace` begins with a second fork, a process that becomes the fork server of its run once it starts
one: a child of this one, as if it had been executed, that has its libraries already.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import setproctitle

from headrace.supervisor.fork_server import __main__ as server
from headrace.supervisor.fork_server import client
from headrace.supervisor.fork_server.request import LONGEST, module_of
from headrace.wire.process.lifecycle import die_with_parent
from tests.warm.loaded import ENVIRONMENT
from tests.warm.variables import differing

_RUN = "headrace"


class Dormant:
    """The forked process as its parent sees it: what `ForkServer` uses of `subprocess.Popen`."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid, self.link = pid, link
        self._ended = False

    def wait(self, timeout: float) -> None:
        """Waits for its end. Raises subprocess.TimeoutExpired."""
        end = time.monotonic() + timeout
        while not self._ended:
            self._ended = bool(os.waitpid(self.pid, os.WNOHANG)[0])
            if not self._ended and time.monotonic() > end:
                raise subprocess.TimeoutExpired("the fork server", timeout)
            time.sleep(0.005)

    def kill(self) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)


def fork() -> Dormant | None:
    """Forks it; None in the child, once that is a process of the run and is to go on with `sys.argv`."""
    link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return Dormant(pid, link)
    link.close()
    die_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    os.setsid()
    packet, files, _, _ = socket.recv_fds(theirs, LONGEST, 2)
    if not packet:
        os._exit(0)
    theirs.close()
    modules = json.loads(packet)
    null = os.open(os.devnull, os.O_RDWR)
    for file, number in ((null, 0), (null, 1), (files[1], 2)):
        os.dup2(file, number)
    os.close(null)
    os.close(files[1])
    setproctitle.setproctitle(" ".join(client.command_line(files[0], parent, modules)))
    server.load(modules)
    asked = server.serve(socket.socket(fileno=files[0]), parent)
    if asked is None:
        os._exit(0)
    return None


def awake(dormant: Dormant, link: int, errors: int, modules: Sequence[str]) -> Dormant:
    """Makes it the fork server of a run, in place of one that is executed."""
    socket.send_fds(dormant.link, [json.dumps(list(modules)).encode()], [link, errors])
    dormant.link.close()
    return dormant


def become(module: str) -> None:
    """Runs the module as the main one."""
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    folder, module, *arguments = sys.argv[1:]
    os.chdir(folder)
    sys.argv = ["", *arguments]
    sys.orig_argv = [sys.executable, "-P", "-m", module, *arguments]
    setproctitle.setproctitle(" ".join(sys.orig_argv))
    if module == _RUN:
        dormant = fork()
        if dormant is None:
            become(module_of(tuple(sys.orig_argv)))
            return
        execute = client.execute_server

        def begin(link: int, errors: int, modules: Sequence[str], env: dict[str, str]) -> object:
            if dormant.link.fileno() < 0 or differing(env, ENVIRONMENT):
                return execute(link, errors, modules, env)
            return awake(dormant, link, errors, modules)

        client.execute_server = begin
    become(module)
