"""A process of a taskset as its worker sees it, and the pool of them."""

import asyncio
import json
import secrets
import sys
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter

from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.taskset.frames import PlayedTrace, TasksetConfig
from headrace.services.environment.taskset.harness import HarnessChoice, ready_scripts
from headrace.wire.contracts import Sampling

_TRACE, _ROWS = TypeAdapter(PlayedTrace), TypeAdapter(list[Json])
_HOST = "headrace.services.environment.taskset.host"
_PROBE: Json = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks something up.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["a", "text"],
        },
    },
}


class TasksetProcess(ChildProcess):
    """Plays tasks of one taskset; `socket` leads from it to the policy of the episode."""

    def __init__(self, config: ChildConfig, taskset: TasksetConfig, *, plays: bool = True) -> None:
        """`plays`: whether it starts what the taskset shares among its episodes; else it reads rows alone."""
        self._socket = TemporaryDirectory(prefix="headrace-policy-", ignore_cleanup_errors=True)
        self._taskset, self._plays = taskset, plays
        self.key = secrets.token_hex(16)
        """What its client shows to the policy: the programs that it starts do not know it."""
        super().__init__(config)

    @property
    def socket(self) -> Path:
        """The unix socket on which the worker serves the policy."""
        return Path(self._socket.name) / "socket"

    async def start(self) -> None:
        """Starts it and waits until the taskset is loaded and its tools are served. Raises as every child does."""
        asked = self._taskset
        choice = HarnessChoice(name=asked.harness, taskset=asked.taskset, path=self._config.path)
        scripts = await ready_scripts(choice)
        words = [sys.executable, "-P", "-m", _HOST, "--given", json.dumps(asdict(asked))]
        words += ["--path", str(self._config.path)] if self._config.path is not None else []
        words += ["--harness-folder", str(scripts.folder), "--socket", str(self.socket) if self._plays else ""]
        words += ["--memory-mib", str(self._config.memory_mib), "--cpu-s", str(self._config.cpu_s)]
        # Each is seen where it lies: without bubblewrap there is no other place.
        folders = (scripts.folder, Path(self._socket.name))
        self._config = replace(
            self._config, main=tuple(words), mounts=tuple((folder, str(folder)) for folder in folders)
        )
        await super().start()
        self.once = bool(self.hello.get("executes_code"))  # The policy runs code of its own in the sandbox.
        # Those of a taskset are known in its episodes alone: this one is what a renderer is compared by.
        self.tools = [_PROBE]

    async def play(self, task: Json, sampling: Sampling, *, timeout_s: float) -> PlayedTrace:
        """Plays a task to its end. Raises as the calls of every child do."""
        return await self._form(
            _TRACE,
            "play",
            timeout_s,
            task=task,
            temperature=0.0 if sampling.greedy else sampling.temperature,
            max_tokens=sampling.max_tokens,
            key=self.key,
        )

    async def rows(self, most: int, *, timeout_s: float) -> list[Json]:
        """The data of the first tasks; 0 = of all."""
        found: list[Json] = []
        while page := await self._form(_ROWS, "rows", timeout_s, first=len(found), most=most):
            found += page
        return found

    async def _clean(self) -> None:
        await super()._clean()
        await asyncio.to_thread(self._socket.cleanup)
