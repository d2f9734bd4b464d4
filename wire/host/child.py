"""A child process that runs user code: started with a socket of its own, asked, killed whole."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headrace.wire.errors import WaitTimeoutError
from headrace.wire.host.frames import CLOSED, MAX_FRAME, ForeignFrameError, encode, is_quiet, read
from headrace.wire.process.lifecycle import wait_for

_KILL_S = 10.0
_LAST_WORDS_S = 1.0
"""Time for reading the output of a child that has ended; leftover processes may hold it open."""


class ChildPipe:
    """A pipe for the output of one process, whose reader is this one.

    Not the pipe of `asyncio.subprocess`: with it, `wait` returns only when every process that has inherited the pipe
    has ended, such as a server that the child has started (Python 3.11, base_subprocess.py, `_try_finish`).
    """

    def __init__(self) -> None:
        ours, self.descriptor = os.pipe()
        """`descriptor`: what the process is given as stdout and stderr."""
        self._pipe = os.fdopen(ours, "rb", 0)
        self._transport: asyncio.ReadTransport | None = None

    def handed_over(self) -> None:
        """The process has its end of the pipe, or has failed to start."""
        os.close(self.descriptor)

    async def reader(self) -> asyncio.StreamReader:
        """Begins to read; once."""
        printed = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(printed)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, self._pipe)
        return printed

    def close(self) -> None:
        """Ends the reading; idempotent."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._pipe.close()


class Child:
    """One process and all that it starts. Asked one thing at a time, by a caller that bounds each wait."""

    def __init__(self, what: str, *, most_bytes: int = MAX_FRAME) -> None:
        """`what` names it in errors; `most_bytes` bound what it answers."""
        self._what, self._most_bytes = what, most_bytes
        self.pid = 0
        """Its process, the leader of its group; 0 before it is started."""
        self._process: asyncio.subprocess.Process | None = None
        self._link: socket.socket | None = None
        self._output: ChildPipe | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._link is not None and self._process is not None and self._process.returncode is None

    @property
    def is_quiet(self) -> bool:
        """Whether it lives, and has sent nothing unasked."""
        return self._link is not None and is_quiet(self._link)

    async def launch(
        self,
        command: Callable[[int], Sequence[str]],
        listen: Callable[[asyncio.StreamReader], Coroutine[Any, Any, None]],
        **options: Any,
    ) -> None:
        """Starts `command(fd)`, `fd` its end of the socket; `listen` reads what it prints; `options` as of `Popen`.

        Must be called on the main thread if the child dies with its parent: the kernel ties it to the thread.
        """
        self._link, theirs = socket.socketpair()
        self._link.setblocking(False)
        output = self._output = ChildPipe()
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *command(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output.descriptor,
                    stderr=output.descriptor,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    **options,
                )
            self.pid = self._process.pid
        except BaseException:
            await self.kill()
            raise
        finally:
            output.handed_over()
        self._listening = asyncio.create_task(listen(await output.reader()))

    async def ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        """The answer to a message: the one frame that has its key.

        Raises ConnectionError if it dies, ForeignFrameError for another frame: the code can write into the socket, also
        while it runs for another caller. Raises TypeError and ValueError for what JSON cannot hold.
        """
        key = secrets.token_hex(8)
        await self.send({**message, "key": key})
        answer = await self.read()
        if answer.get("key") != key:
            raise ForeignFrameError("what came answers nothing that was asked, or something else")
        return answer

    async def send(self, message: Mapping[str, object]) -> None:
        """Sends one frame. Raises ConnectionError if it has ended."""
        frame = encode(message)
        await asyncio.get_running_loop().sock_sendall(self._connected(), frame)

    async def read(self) -> dict[str, Any]:
        """The next frame. Raises ConnectionError."""
        return await read(self._connected(), self._most_bytes)

    def _connected(self) -> socket.socket:
        if self._link is None:
            raise ConnectionError(f"{self._what} has ended")
        return self._link

    async def kill(self, grace_s: float = 0.0) -> int | None:
        """Ends it and all that it started; returns its exit status, None if it is killed. Idempotent.

        Its socket is shut down, on which it may leave by itself within the grace, and on which an `ask` ends.
        """
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        status, process = None, self._process
        try:
            if process is not None:
                try:
                    if grace_s:
                        with suppress(WaitTimeoutError):
                            status = await wait_for(process.wait(), grace_s, f"{self._what} to leave")
                finally:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                await wait_for(process.wait(), _KILL_S, f"{self._what} to die")
                self._process = None
        finally:
            if link is not None:
                loop = asyncio.get_running_loop()
                loop.remove_reader(link)
                loop.remove_writer(link)
                link.close()
        await self._clean()
        return status

    async def _clean(self) -> None:
        """What is left to do when it has ended; idempotent."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await asyncio.wait({listening}, timeout=_LAST_WORDS_S)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        output, self._output = self._output, None
        if output is not None:
            output.close()


def ended(status: int | None) -> str:
    """How a process ended by itself, for people; None = it closed its socket."""
    if status is None or status == CLOSED:
        return "closed its socket"
    if status < 0 or status > 128:
        number = -status if status < 0 else status - 128  # A sandbox's own status of a program that a signal ended.
        with suppress(ValueError):
            name = signal.Signals(number).name
            return f"was ended by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
    return f"exited with status {status}"
