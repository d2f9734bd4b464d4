"""Waits for servers of tools with an end: `verifiers` 0.4 looks for a port for three minutes, whatever became of it.

Source: verifiers 0.4, v1/mcp/launch.py (`_read_back_port`, `serve_in_runtime`).
"""

import asyncio
import contextlib
import os
import time
from typing import Any

from verifiers.v1.errors import ToolsetError
from verifiers.v1.mcp import launch

IDLE_S = 10.0
"""A server that neither reports its port nor uses a CPU for so long does not come up."""
_LOOK_S = 0.05


def bound_toolset_starts() -> None:
    """From here on a server that has ended, or that stands still, is an error at once."""
    launch._read_back_port = _read_back_port


async def _read_back_port(runtime: Any, path: str) -> int:
    process = runtime._background[-1]
    used, since = -1.0, time.monotonic()
    while True:
        with contextlib.suppress(OSError):
            if (text := (await runtime.read(path)).decode().strip()).isdigit():
                return int(text)
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


def _cpu_seconds(pid: int) -> float:
    """What a process has used of a CPU; 0 where /proc does not say."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
