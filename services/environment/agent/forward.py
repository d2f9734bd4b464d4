"""Inside the sandbox: the parent of an agent's program, and the way from its port to the endpoint of the episode.

Imports nothing of ours: it is run as a file. The worker speaks to it over a socket, in frames as of
`wire/host/frames.py`: `lay` (files into the working folder, `{name: [mode, base64]}`), `find` (a command), `run` (a
command to its end), `clear` (ends all that runs here but this), `read` (a file).
"""

import argparse
import asyncio
import base64
import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

WORK = Path("/tmp/work")
"""The working folder."""
LOGS = Path("/tmp/logs/verifier")
"""What is seen as /logs/verifier."""
SOCKET = "/policy/socket"
_LENGTH = 8
"""Bytes of a frame's length."""
_MOST_BYTES = 1 << 20
"""Longest file that is read."""
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_FIRST_PIDS = 8
"""Below it lie the first processes of a namespace of their own alone."""


async def main() -> int:
    """Answers until the worker closes the socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--memory-mib", type=int, default=0)
    parser.add_argument("--cpu-s", type=float, default=0.0)
    asked = parser.parse_args()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The program has the same user: it must neither trace this process nor write into it.
    libc.prctl(_PR_SET_DUMPABLE, 0)
    WORK.mkdir()
    LOGS.mkdir(parents=True)
    server = await asyncio.start_server(lambda *streams: forward(SOCKET, *streams), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = socket.socket(fileno=asked.fd)
    os.set_inheritable(asked.fd, False)
    reader, writer = await asyncio.open_connection(sock=link, limit=1 << 26)
    writer.write(_frame({"ready": True, "tools": []}))
    with contextlib.suppress(asyncio.IncompleteReadError):  # The worker has closed the socket.
        while True:
            size = int.from_bytes(await reader.readexactly(_LENGTH))
            frame = json.loads(await reader.readexactly(size))
            answer = await _answered(frame, port, asked)
            writer.write(_frame({**answer, "key": frame["key"]}))
            await writer.drain()
    return 0


def _frame(message: dict[str, object]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(_LENGTH) + body


async def _answered(frame: dict[str, Any], port: int, asked: argparse.Namespace) -> dict[str, object]:
    fields = frame["fields"]
    try:
        match frame["call"]:
            case "lay":
                return {"ok": _lay(fields["files"])}
            case "find":
                return {"ok": _find(fields["command"][0], fields["variables"]["PATH"])}
            case "run":
                return {
                    "ok": await _run(fields["command"], _variables(fields["variables"], fields["key"], port), asked)
                }
            case "clear":
                return {"ok": _clear(fields["file"])}
            case "read":
                return {"ok": _read(fields["files"])}
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": f"there is no call {frame['call']}"}


def _variables(given: dict[str, str], key: str, port: int) -> dict[str, str]:
    """The variables of a command; with a key it reaches the policy."""
    if not key:
        return given
    return {**given, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": key, "OPENAI_MODEL": "policy"}


def _lay(files: dict[str, tuple[int, str]]) -> bool:
    """Writes files; what stands at a file's place, or in the way to it, is replaced."""
    for name, (mode, text) in files.items():
        place = WORK / name
        for above in [*reversed(place.relative_to(WORK).parents)][1:]:
            if (WORK / above).is_symlink() or (WORK / above).is_file():
                (WORK / above).unlink()
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.write_bytes(base64.b64decode(text))
        place.chmod(mode | 0o600)
    return True


def _find(word: str, path: str) -> bool:
    """Whether a program is there: a name on the path, or a file of the working folder."""
    return shutil.which(word if os.sep not in word else os.path.join(WORK, word), path=path) is not None


async def _run(command: list[str], variables: dict[str, str], asked: argparse.Namespace) -> int:
    """Runs a command to its end; returns its status, below 0 for a signal."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if asked.memory_mib:
            resource.setrlimit(resource.RLIMIT_AS, (asked.memory_mib << 20, asked.memory_mib << 20))
        if asked.cpu_s:
            resource.setrlimit(resource.RLIMIT_CPU, (int(asked.cpu_s) + 1, int(asked.cpu_s) + 2))

    # Where it is found by the new path: execvp of the child would look it up by this process's.
    found = shutil.which(command[0], path=variables["PATH"]) or command[0]
    process = await asyncio.create_subprocess_exec(
        *(found, *command[1:]), cwd=WORK, env=variables, stdin=subprocess.DEVNULL, preexec_fn=limit
    )
    return await process.wait()


def _clear(file: str) -> bool:
    """Ends all other processes of the namespace, and removes what a reward could be taken for."""
    if os.getpid() >= _FIRST_PIDS:
        raise OSError("this is no namespace of its own: nothing is killed")
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    if LOGS.parent.is_symlink() or not LOGS.parent.is_dir():
        LOGS.parent.unlink(missing_ok=True)
    shutil.rmtree(LOGS.parent, ignore_errors=True)
    LOGS.mkdir(parents=True)
    if file and not (WORK / file).is_dir():
        (WORK / file).unlink(missing_ok=True)
    return True


def _read(files: list[str]) -> list[str] | None:
    """Name and text of the first file that is there."""
    for name in files:
        place = WORK / name
        if place.is_file():
            with place.open("rb") as file:
                return [name, file.read(_MOST_BYTES).decode(errors="replace")]
    return None


async def forward(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carries one connection to the endpoint behind the unix socket at `path`, and back."""
    try:
        to_reader, to_writer = await asyncio.open_unix_connection(path)
    except OSError:  # There is no endpoint any more.
        writer.close()
        return
    await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
