"""A pipe for the output of a child process, whose other end does not outlast the child for its parent."""

import asyncio
import os


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
