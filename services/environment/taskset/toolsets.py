"""Waits for servers of tools with an end: `verifiers` 0.4 looks for one for three minutes, even if it has died.

Source: verifiers 0.4, v1/mcp/launch.py (`_read_back_port`, `serve_in_runtime`) and v1/mcp/server.py (`_serve`).
"""

import asyncio
import contextlib
import os
import time

from verifiers.v1.errors import ToolsetError
from verifiers.v1.mcp import launch
from verifiers.v1.runtimes import Runtime

IDLE_S = 10.0
"""A server that neither answers nor uses a CPU for so long does not come up."""
_LOOK_S = 0.05


def bound_toolset_starts() -> None:
    """From here on a server that has ended, or that stands still, is an error at once."""
    launch._read_back_port = _read_back_port


async def _read_back_port(runtime: Runtime, path: str) -> int:
    """The port of the server that was started last, once it answers there: it writes it before it sets itself up."""
    process, port = runtime._background[-1], 0
    used, since = -1.0, time.monotonic()
    while True:
        port = port or await _written(runtime, path)
        if port and await _answers(port):
            return port
        if process.returncode is not None:
            raise ToolsetError(
                f"a server of tools ended with status {process.returncode} before it served; its module must run it: "
                'if __name__ == "__main__": NAME.run()'
            )
        now = _cpu_seconds(process.pid)
        if now > used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since > IDLE_S:
            raise ToolsetError(f"a server of tools did not come up: it has done nothing for {IDLE_S:g} s")
        await asyncio.sleep(_LOOK_S)


async def _written(runtime: Runtime, path: str) -> int:
    with contextlib.suppress(OSError):
        text = (await runtime.read(path)).decode().strip()
        return int(text) if text.isdigit() else 0
    return 0


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _cpu_seconds(pid: int) -> float:
    """What a process has used of a CPU; 0 where /proc does not say."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
