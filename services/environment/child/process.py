"""One child as its worker sees it: started under limits, asked with deadlines, killed whole."""

import asyncio
import subprocess
from collections.abc import Awaitable
from tempfile import TemporaryDirectory
from typing import NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from headrace.services.environment import metrics
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
)
from headrace.services.environment.child.sandbox import ChildSandbox, child_variables, find_sandbox
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.host.child import Child, ended
from headrace.wire.host.frames import ForeignFrameError
from headrace.wire.process.environment import inherited
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

T = TypeVar("T")
log = get_logger("environment.child")
_RESET, _STEP, _REWARD = TypeAdapter(EnvironmentReset), TypeAdapter(EnvironmentStep), TypeAdapter(EpisodeReward)
_TOOLS = TypeAdapter(list[Json])
_TAIL = 4000
"""Characters of a child's output that are kept for error messages; the rest is read and dropped."""
_END_S = 1.0
"""For a child to end by itself, which has closed its socket."""


class ChildProcess(Child):
    """One process. Used by one episode at a time."""

    once = False
    """Whether it plays one episode alone."""

    def __init__(self, config: ChildConfig) -> None:
        super().__init__("the environment's process", most_bytes=config.max_frame_bytes)
        self._config = config
        self._tail = ""
        self._home: TemporaryDirectory[str] | None = None
        self.tools: list[Json] = []
        """Schemas of its tools, once it has started."""
        self.hello: Json = {}
        """What it said of itself when it had started."""
        self.dropped_bytes = 0
        """Bytes of its output that were read and not kept."""

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
        await self.launch(
            sandbox.command,
            self._listen,
            cwd="/" if sandbox.home else home,
            env=child_variables(inherited(), self._config, home),
        )
        await self._load(sandbox)

    async def _load(self, sandbox: ChildSandbox) -> None:
        """Waits until the user's code is loaded; raises as `start` does, and the process has ended then."""
        try:
            hello = await wait_for(self._heard(self.read()), self._config.start_s, "the environment to be loaded")
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
            # Its answer would be mistaken for the next call's.
            await self.kill()
            raise

    async def _clean(self) -> None:
        await super()._clean()
        if self._home is not None:
            self._home.cleanup()
            self._home = None

    async def _asked(self, name: str, fields: Json) -> object:
        try:
            answer = await self._heard(self.ask({"call": name, "fields": fields}))
        except (TypeError, ValueError) as error:
            raise EnvironmentFailedError(f"{name} cannot be sent: {error}") from error
        if "lost" in answer:
            raise ToolServerLostError(str(answer["lost"]), str(answer.get("where", "")))
        if "error" in answer:
            raise EnvironmentFailedError(str(answer["error"]), str(answer.get("where", "")))
        return answer.get("ok")

    async def _heard(self, answer: Awaitable[Json]) -> Json:
        try:
            return await answer
        except ForeignFrameError as error:
            await self._lied(str(error))
        except ConnectionError:
            metrics.CHILDREN_ENDED.labels("died").inc()
            how = ended(await self.kill(_END_S))
            raise ChildDiedError(f"the environment's process {how}; {self._last_words()}") from None

    async def _lied(self, what: str) -> NoReturn:
        metrics.CHILDREN_ENDED.labels("lied").inc()
        await self.kill()
        raise EnvironmentFailedError(
            f"the environment's process broke the protocol: {what[:200]}; {self._last_words()}"
        )

    async def _listen(self, printed: asyncio.StreamReader) -> None:
        """Reads what the user's code prints, so that it never blocks."""
        while chunk := await printed.read(1 << 16):
            self._tail += chunk.decode(errors="replace")
            self.dropped_bytes += max(len(self._tail) - _TAIL, 0)
            self._tail = self._tail[-_TAIL:]

    def _last_words(self) -> str:
        said = self._tail.strip()
        return f"it printed: ...{said[-500:]}" if said else "it printed nothing"
