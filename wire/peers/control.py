"""Client of the supervisor of a run on this machine: a unix socket that only its user may use.

The client sends one JSON line, the supervisor answers with one, and the connection is closed.

{"verb": "scale", "service": "rollout", "count": 3}  ->  {"ok": true, "said": ["rollout-2 is started"]}
                                                     ->  {"ok": false, "error": "..."}
"""

import asyncio
import json
from pathlib import Path

from headrace.wire.errors import ConfigError, HeadraceError, TransientError
from headrace.wire.process.lifecycle import wait_for

LINE_BYTES = 64 * 1024


async def ask(path: Path, request: dict[str, object], seconds: float) -> list[str]:
    """Sends a request to the supervisor and returns the lines of its answer.

    Raises ConfigError if it refuses, TransientError if nothing listens there, WaitTimeoutError.
    """
    try:
        return await wait_for(_ask(path, request), seconds, "the supervisor to answer")
    except (OSError, ValueError) as error:
        if isinstance(error, HeadraceError):
            raise
        raise TransientError(f"the supervisor does not answer at {path}: {error}") from error


async def _ask(path: Path, request: dict[str, object]) -> list[str]:
    reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        answer = json.loads(await reader.readline())
    finally:
        writer.close()
    if not answer.get("ok"):
        raise ConfigError(str(answer.get("error")))
    return [str(line) for line in answer.get("said", [])]
