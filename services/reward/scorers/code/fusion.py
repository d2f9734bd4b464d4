"""Another sandbox: a service that speaks SandboxFusion's `POST /run_code`.

https://bytedance.github.io/SandboxFusion/docs/api/run-code-run-code-post. What it isolates, and how well, is the
service's own; expected outputs are not sent to it either. Each test is one request.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.services.reward.endpoint import Endpoint, EndpointError
from headrace.services.reward.sandbox import Limits, Program, SandboxError, SandboxOutcome, SandboxStartError
from headrace.services.reward.sandbox.inside import plain, prelude
from headrace.services.reward.scorer import Context

_BEYOND_S = 10.0
"""Over a test's own time, for the service's queue and its overhead."""
_MIB = 1024 * 1024
_KILLED = 137
_ESCAPE = 6
"""Bytes of one byte of output in JSON, at most."""
_FRAME = 65536
_TOO_MUCH = "OSError: it printed too much"
_CALL = """
import builtins as _builtins, json as _json, sys as _sys, types as _types
_plain = {{"__name__": "plain"}}
exec(compile(_json.loads({plain}), "plain", "exec"), _plain)
if {wants_prelude}:
    _prelude = {{"__name__": "prelude"}}
    exec(compile(_json.loads({prelude}), "prelude", "exec"), _prelude)
    vars(_builtins).update(_prelude["names"]())
_out, _sys.stdout = _sys.stdout, _sys.stderr
_sys.modules["solution"] = _types.ModuleType("solution")
_names = vars(_sys.modules["solution"])
_names["__file__"] = "solution.py"
exec(compile(_json.loads({source}), "<program>", "exec"), _names)
_function = _names[{name}] if {name} in _names else getattr(_names["Solution"](), {name})
_value = _plain["encode"](_function(*_plain["decode"](_json.loads({arguments}))))
_out.write("\\n" + _value + "\\n")
_out.flush()
"""
"""Runs over there: calls the function and writes the encoded value as the last line."""


class SandboxFusion:
    """Runs programs over HTTP; a backend."""

    def __init__(self, url: str, limits: Limits, context: Context, *, api_key_file: Path | None, retries: int) -> None:
        """Raises ConfigError for a URL or a key that cannot be used."""
        self._limits = limits
        attempt_s = limits.timeout_s + _BEYOND_S
        self._places = asyncio.Semaphore(context.processes)
        self._endpoint = Endpoint(
            url.removesuffix("/").removesuffix("/run_code"),
            context=context,
            what="SandboxFusion",
            attempt_s=attempt_s,
            deadline_s=min(attempt_s * (retries + 1), context.timeout_s),
            retries=retries,
            max_bytes=2 * _ESCAPE * limits.output_bytes + _FRAME,
            concurrency=context.processes,
            api_key_file=api_key_file,
        )

    async def start(self) -> None:
        """Raises ConfigError if the address must not be called."""
        await self._endpoint.check()

    async def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        go_on: Callable[[SandboxOutcome], bool],
        begin: Callable[[], None],
    ) -> None:
        """One program at a time on each of the `processes`; see `Backend.run`."""
        async with self._places:
            begin()
            for given in inputs:
                if not go_on(await self._test(program, given)):
                    return

    async def _test(self, program: Program, given: bytes) -> SandboxOutcome:
        body: dict[str, object] = {
            "language": "python",
            "run_timeout": self._limits.timeout_s,
            "memory_limit_MB": self._limits.memory_bytes // _MIB,
            "code": program.source if program.function is None else _calling(program, given),
        }
        if program.function is None:
            body["stdin"] = given.decode()
        try:
            answer = await self._endpoint.post("/run_code", body)
        except EndpointError as error:
            if _is_too_large(error):
                return SandboxOutcome("exit", 1, b"", _TOO_MUCH, 0.0, 0.0)
            kind = SandboxStartError if error.kind == "down" else SandboxError
            raise kind(str(error)) from error
        return _read(answer, called=program.function is not None, limit=self._limits.output_bytes)

    async def close(self) -> None:
        """Drops all connections."""
        await self._endpoint.close()


def _is_too_large(error: EndpointError) -> bool:
    """An answer holds little but what the program printed: that there is too much of it, is the program's doing."""
    return error.kind == "bad_answer" and "the answer is larger than" in error.message


def _calling(program: Program, given: bytes) -> str:
    assert program.function is not None
    twice = {
        "plain": Path(plain.__file__).read_text(),
        "prelude": Path(prelude.__file__).read_text() if program.prelude else "",
        "source": program.source,
        "arguments": given.decode(),
    }
    texts = {name: json.dumps(json.dumps(text)) for name, text in twice.items()}
    return _CALL.format(**texts, name=json.dumps(program.function), wants_prelude=program.prelude)


def _read(answer: object, *, called: bool, limit: int) -> SandboxOutcome:
    """An answer of the protocol; raises SandboxError for any other, and for failures of the service itself."""
    if not isinstance(answer, Mapping):
        raise SandboxError("SandboxFusion: the answer is no object")
    result = answer.get("run_result")
    if answer.get("status") not in ("Success", "Failed") or not isinstance(result, Mapping):
        raise SandboxError(f"SandboxFusion: {answer.get('status')}: {str(answer.get('message'))[:200]}")
    status, code, seconds = result.get("status"), result.get("return_code"), result.get("execution_time")
    output = str(result.get("stdout") or "").encode(errors="replace")[: limit + 1]
    notes = str(result.get("stderr") or "").strip()[-2000:]
    wall_s = float(seconds) if isinstance(seconds, int | float) else 0.0
    if len(output) > limit:
        return SandboxOutcome("exit", 1, output[:limit], _TOO_MUCH, wall_s, 0.0)
    if status == "TimeLimitExceeded":
        return SandboxOutcome("time", _KILLED, output, notes, wall_s, 0.0)
    if status != "Finished" or not isinstance(code, int):
        raise SandboxError(f"SandboxFusion: the run ended as {str(status)[:50]!r}, with exit status {code!r:.50}")
    if called:
        output = output.rstrip().rpartition(b"\n")[2]
    if code < 0:
        return SandboxOutcome("signal", -code, output, notes, wall_s, 0.0)
    return SandboxOutcome("exit", code, output, notes, wall_s, 0.0)
