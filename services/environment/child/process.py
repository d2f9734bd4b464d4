"""One child as its worker sees it: started behind limits, asked with deadlines, killed whole."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from headrace.services.environment import metrics
from headrace.services.environment.child.errors import ChildDiedError, ChildLateError, EnvironmentFailedError
from headrace.services.environment.child.frames import (
    EnvironmentReset,
    EnvironmentStep,
    EpisodeReward,
    Json,
    decode_frame,
    encode_frame,
)
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.lifecycle import wait_for
from headrace.wire.telemetry import get_logger

T = TypeVar("T")
log = get_logger("environment.child")
_RESET, _STEP, _REWARD = TypeAdapter(EnvironmentReset), TypeAdapter(EnvironmentStep), TypeAdapter(EpisodeReward)
_TAIL = 4000
"""Characters of a child's output that are kept for error messages; the rest is read and dropped."""
_KILL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildConfig:
    """What a child runs, and its limits."""

    environment: str = ""
    """`module:Class`; empty = tools alone."""
    tools: tuple[str, ...] = ()
    path: Path | None = None
    """Folder of the user's modules, last on the import path."""
    network: bool = False
    memory_mib: int = 0
    """Address space; 0 = no limit."""
    cpu_s: float = 0.0
    """Seconds of a CPU for an episode; 0 = no limit."""
    max_result_chars: int = 4000
    """Longest result of a tool; what is longer is cut."""
    max_frame_bytes: int = 1 << 24
    start_s: float = 30.0


class ChildProcess:
    """One process. Used by one episode at a time."""

    def __init__(self, config: ChildConfig) -> None:
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._tail = ""
        self.dropped_bytes = 0
        """Bytes of its output that were read and not kept."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process is not None and self._process.returncode is None and self._writer is not None

    @property
    def pid(self) -> int:
        """Its process, the leader of its group."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Starts it and waits until the user's code is loaded.

        Raises ConfigError if the code cannot be loaded or the sandbox is missing, EnvironmentFailedError if it is not
        ready in time.
        """
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self._config, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._listening = asyncio.create_task(self._listen())
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=self._config.max_frame_bytes)
        try:
            hello = await wait_for(self._read(), self._config.start_s, "the environment to be loaded")
        except WaitTimeoutError as error:
            await self.kill()
            raise EnvironmentFailedError(f"{error} (environment.start_s); {self._last_words()}") from error
        except BaseException:
            await self.kill()
            raise
        if "refused" in hello:
            await self.kill()
            raise ConfigError(str(hello["refused"]))

    async def reset(self, task: Json, rollout_id: str, attempt: int, *, timeout_s: float) -> EnvironmentReset:
        """Begins an episode.

        As the other calls it raises ChildLateError at the deadline (the process group is killed then), and
        EnvironmentFailedError for what the user's code raised or returned, and for a process that ended or lied.
        """
        return await self._form(_RESET, "reset", timeout_s, task=task, rollout_id=rollout_id, attempt=attempt)

    async def step(self, message: Json, *, timeout_s: float) -> EnvironmentStep:
        """Gives a message of the policy, with its `tool_calls`, to tools or environment."""
        return await self._form(_STEP, "step", timeout_s, message=message)

    async def reward(self, messages: list[Json], *, timeout_s: float) -> EpisodeReward:
        """Asks for the reward of the episode that is over."""
        return await self._form(_REWARD, "reward", timeout_s, messages=messages)

    async def _form(self, form: TypeAdapter[T], name: str, timeout_s: float, **fields: object) -> T:
        answer = await self._call(name, timeout_s, fields)
        try:
            return form.validate_python(answer)
        except ValidationError as error:
            return await self._lied(f"an answer to {name} that has not its form: {error.errors()[0]['msg']}")

    async def _call(self, name: str, timeout_s: float, fields: Json) -> object:
        try:
            return await wait_for(self._asked({"call": name, "fields": fields}), timeout_s, name)
        except WaitTimeoutError as error:
            metrics.CHILDREN_ENDED.labels("late").inc()
            await self.kill()
            raise ChildLateError(f"{name} of the environment", timeout_s) from error
        except asyncio.CancelledError:
            # Its answer would be taken for that of the next call.
            await self.kill()
            raise

    async def kill(self) -> None:
        """Ends it and all that it started. Idempotent."""
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await wait_for(process.wait(), _KILL_S, "a killed child to end")
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    async def _asked(self, frame: Json) -> object:
        assert self._writer is not None
        self._writer.write(encode_frame(frame))
        with contextlib.suppress(ConnectionError):  # Its end is told by what can be read.
            await self._writer.drain()
        answer = await self._read()
        if "error" in answer:
            raise EnvironmentFailedError(str(answer["error"]), str(answer.get("where", "")))
        return answer.get("ok")

    async def _read(self) -> Json:
        assert self._reader is not None
        try:
            line = await self._reader.readline()
            if not line:
                raise await self._death()
            return decode_frame(line)
        except ConnectionError:
            raise await self._death() from None
        except ValueError as error:  # Longer than the limit, or no JSON.
            await self._lied(str(error))

    async def _lied(self, what: str) -> NoReturn:
        metrics.CHILDREN_ENDED.labels("lied").inc()
        await self.kill()
        raise EnvironmentFailedError(
            f"the environment's process broke the protocol: {what[:200]}; {self._last_words()}"
        )

    async def _death(self) -> ChildDiedError:
        metrics.CHILDREN_ENDED.labels("died").inc()
        process = self._process
        status = None
        if process is not None:
            with contextlib.suppress(WaitTimeoutError):
                status = await wait_for(process.wait(), 1.0, "a child to end")
        await self.kill()
        return ChildDiedError(f"the environment's process {_ended(status)}; {self._last_words()}")

    async def _listen(self) -> None:
        """Reads what the user's code prints, so that it never blocks."""
        assert self._process is not None and self._process.stdout is not None
        while chunk := await self._process.stdout.read(1 << 16):
            self._tail += chunk.decode(errors="replace")
            self.dropped_bytes += max(len(self._tail) - _TAIL, 0)
            self._tail = self._tail[-_TAIL:]

    def _last_words(self) -> str:
        said = self._tail.strip()
        return f"it printed: ...{said[-500:]}" if said else "it printed nothing"


def _command(config: ChildConfig, fd: int) -> list[str]:
    """The child's command line, in a sandbox where there is one. Raises ConfigError if it needs one that is missing."""
    own = [sys.executable, "-P", "-m", "headrace.services.environment.child.main", "--fd", str(fd)]
    own += ["--max-result-chars", str(config.max_result_chars), "--memory-mib", str(config.memory_mib)]
    own += ["--cpu-s", str(config.cpu_s), "--environment", config.environment]
    own += [word for tool in config.tools for word in ("--tool", tool)]
    own += ["--path", str(config.path)] if config.path is not None else []
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        if not config.network:
            raise ConfigError(
                "environments are kept from the network by bubblewrap, and there is no `bwrap`: install it "
                "(apt-get install bubblewrap), or set environment.network = true"
            )
        return own
    # A process namespace of its own: what the user's code starts ends with it, whatever session it has moved to.
    apart = ["--unshare-pid", "--die-with-parent", *([] if config.network else ["--unshare-net"])]
    return [bwrap, "--dev-bind", "/", "/", "--proc", "/proc", *apart, "--", *own]


def _ended(status: int | None) -> str:
    match status:
        case None:
            return "closed its socket"
        case number if number < 0:
            return f"was ended by {signal.Signals(-number).name}"
        case number if number > 128:
            return f"was ended by {_signal_name(number - 128)}"
        case number:
            return f"exited with status {number}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
