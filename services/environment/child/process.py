"""One child as its worker sees it: started behind limits, asked with deadlines, killed whole."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
from tempfile import TemporaryDirectory
from typing import NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from headrace.services.environment import metrics
from headrace.services.environment.child import frames
from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.errors import (
    ChildDiedError,
    ChildLateError,
    EnvironmentFailedError,
    ToolServerLostError,
)
from headrace.services.environment.child.frames import (
    EnvironmentReset,
    EnvironmentStep,
    EpisodeReward,
    Json,
    decode_frame,
    encode_frame,
)
from headrace.services.environment.child.sandbox import ChildSandbox, child_variables, find_sandbox
from headrace.wire.environment import inherited
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.host.child_pipe import ChildPipe
from headrace.wire.lifecycle import wait_for
from headrace.wire.telemetry import get_logger

T = TypeVar("T")
log = get_logger("environment.child")
_RESET, _STEP, _REWARD = TypeAdapter(EnvironmentReset), TypeAdapter(EnvironmentStep), TypeAdapter(EpisodeReward)
_TOOLS = TypeAdapter(list[Json])
_TAIL = 4000
"""Characters of a child's output that are kept for error messages; the rest is read and dropped."""
_KILL_S = 10.0
_LAST_WORDS_S = 1.0
"""In which the output of a child that has ended is read; what it left behind may hold it open."""


class ChildProcess:
    """One process. Used by one episode at a time."""

    def __init__(self, config: ChildConfig) -> None:
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._output: ChildPipe | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._tail = ""
        self._home: TemporaryDirectory[str] | None = None
        self.tools: list[Json] = []
        """Schemas of its tools, once it has started."""
        self.hello: Json = {}
        """What it said of itself when it had started."""
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
        # The first one asks bubblewrap what this machine lets it do.
        try:
            sandbox = await asyncio.to_thread(find_sandbox, self._config)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFailedError(f"bubblewrap does not answer: {error}") from error
        home = sandbox.home
        if not home:
            self._home = TemporaryDirectory(prefix="headrace-episode-", ignore_cleanup_errors=True)
            home = self._home.name
        ours, theirs = socket.socketpair()
        output = self._output = ChildPipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *sandbox.command(theirs.fileno()),
                cwd="/" if sandbox.home else home,
                env=child_variables(inherited(), self._config, home),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.descriptor,
                stderr=output.descriptor,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            await self.kill()
            raise
        finally:
            theirs.close()
            output.handed_over()
        self._listening = asyncio.create_task(self._listen(await output.reader()))
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=self._config.max_frame_bytes)
        await self._load(sandbox)

    async def _load(self, sandbox: ChildSandbox) -> None:
        """Waits until the user's code is loaded; raises as `start` does, and the process has ended then."""
        try:
            hello = await wait_for(self._read(), self._config.start_s, "the environment to be loaded")
        except WaitTimeoutError as error:
            await self.kill()
            raise EnvironmentFailedError(f"{error} (environment.start_s); {self._last_words()}") from error
        except ChildDiedError as error:
            await self.kill()
            if sandbox.refused(self._tail):
                raise ConfigError(sandbox.refusal(self._last_words())) from error
            raise
        except BaseException:
            await self.kill()
            raise
        if "refused" in hello:
            await self.kill()
            raise ConfigError(str(hello["refused"]))
        try:
            self.hello, self.tools = hello, _TOOLS.validate_python(hello.get("tools"))
        except ValidationError as error:
            await self._lied(f"tools that have not their form: {error.errors()[0]['msg']}")

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
            return await wait_for(self._asked(name, fields), timeout_s, name)
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
            await asyncio.wait({self._listening}, timeout=_LAST_WORDS_S)
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._home is not None:
            self._home.cleanup()
            self._home = None

    async def _asked(self, name: str, fields: Json) -> object:
        assert self._writer is not None
        key = secrets.token_hex(8)
        self._writer.write(encode_frame({"call": name, "fields": fields, "key": key}))
        with contextlib.suppress(ConnectionError):  # The read below reports its end.
            await self._writer.drain()
        answer = await self._read()
        if answer.get("key") != key:  # The code can write into the socket, also for an episode that comes later.
            await self._lied("a line that answers no call, or another one")
        if "lost" in answer:
            raise ToolServerLostError(str(answer["lost"]), str(answer.get("where", "")))
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

    async def _listen(self, printed: asyncio.StreamReader) -> None:
        """Reads what the user's code prints, so that it never blocks."""
        while chunk := await printed.read(1 << 16):
            self._tail += chunk.decode(errors="replace")
            self.dropped_bytes += max(len(self._tail) - _TAIL, 0)
            self._tail = self._tail[-_TAIL:]

    def _last_words(self) -> str:
        said = self._tail.strip()
        return f"it printed: ...{said[-500:]}" if said else "it printed nothing"


def _ended(status: int | None) -> str:
    match status:
        case None | frames.CLOSED:
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
