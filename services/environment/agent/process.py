"""The sandbox of one episode's program as its worker sees it."""

import asyncio
import base64
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter

from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.child.sandbox import child_variables
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.own_code import files_in

_FORWARD = Path(__file__).with_name("forward.py")
_SEEN = "/policy"
_HOME = "/tmp"
_FLAG, _STATUS, _FILE = TypeAdapter(bool), TypeAdapter(int), TypeAdapter(tuple[str, str] | None)
_QUICK_S = 60.0
"""Time for the sandbox's own work."""
_HARBOR = ("/logs/verifier/reward.txt", "/logs/verifier/reward.json")
Files = dict[str, tuple[int, str]]
"""Name -> mode and base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What an episode runs."""

    command: tuple[str, ...]
    reward_command: tuple[str, ...] = ()
    reward_file: str = ""
    """In the working folder; empty = what `reward_command` writes below /logs/verifier, if there is one."""

    @property
    def reward_files(self) -> tuple[str, ...]:
        """Where a reward is looked for; empty = the episode has none of its own."""
        if self.reward_file:
            return (self.reward_file,)
        return _HARBOR if self.reward_command else ()


class AgentProcess(ChildProcess):
    """A sandbox in which one program is run, and its reward command after it."""

    once = True

    def __init__(self, config: ChildConfig, agent: AgentConfig) -> None:
        self._socket = TemporaryDirectory(prefix="headrace-policy-", ignore_cleanup_errors=True)
        super().__init__(
            replace(
                config,
                path=None,  # Its files are laid into the working folder, the reward's once the program has ended.
                only_sandboxed=True,
                main=(sys.executable, "-I", str(_FORWARD), *_limits(config)),
                mounts=((Path(self._socket.name), _SEEN), (_FORWARD, str(_FORWARD))),
                links=(("/tmp/logs", "/logs"),),
            )
        )
        self._source, self.agent = config.path, agent

    @property
    def socket(self) -> Path:
        """The unix socket that the program's port leads to."""
        return Path(self._socket.name) / "socket"

    async def start(self) -> None:
        """Starts the sandbox, and lays the files of the program into it.

        Raises ConfigError for a command that is not there, and as the process of an environment does.
        """
        withheld = set(withheld_from(self.agent.reward_command, self._source))
        if both := withheld & set(withheld_from(self.agent.command, self._source)):
            raise ConfigError(
                f"environment.reward_command: it names {min(both)}, which environment.command runs: what gives the "
                "reward is kept from the program, so put it into a folder of its own"
            )
        await super().start()
        await self._lay({name: one for name, one in _files(self._source) if name.split("/")[0] not in withheld})
        found = await self._form(_FLAG, "find", _QUICK_S, command=self.agent.command, variables=self._variables())
        if not found:
            await self.kill()
            raise ConfigError(
                f"there is no {self.agent.command[0]!r} in the sandbox (environment.command), neither on its PATH nor "
                "as a file of environment.path; environment.folders names further folders"
            )

    async def run(self, task_json: str, key: str, seconds: float) -> int:
        """Runs the program to its end; returns its exit status. Raises ChildDiedError if a signal ended it."""
        await self._lay({"task.json": _content(task_json.encode())})
        return await self._ended(self.agent.command, key, seconds)

    async def run_reward(self, task_json: str, seconds: float) -> tuple[str, str] | None:
        """Runs the reward command, if there is one; returns name and text of the file with the reward, None = none.

        What the program left running is killed before, and the files of the command and the task are laid anew.
        """
        command = self.agent.reward_command
        if command:
            await self._form(_FLAG, "clear", _QUICK_S, file=self.agent.reward_file)
            withheld = withheld_from(command, self._source)
            files = {name: one for name, one in _files(self._source) if name.split("/")[0] in withheld}
            await self._lay({**files, "task.json": _content(task_json.encode())})
            await self._ended(command, "", seconds)
        return await self._form(_FILE, "read", _QUICK_S, files=self.agent.reward_files)

    def last_words(self) -> str:
        """The end of the program's output."""
        return self._last_words()

    async def _clean(self) -> None:
        await super()._clean()
        await asyncio.to_thread(self._socket.cleanup)

    def _variables(self) -> dict[str, str]:
        """What every program is given, with the interpreter and the programs of our packages first on the path."""
        found = child_variables(inherited(), self._config, _HOME)
        own = os.path.dirname(sys.executable)
        return found | {"PATH": os.pathsep.join([own, found.get("PATH") or os.defpath])}

    async def _lay(self, files: Files) -> None:
        await self._form(_FLAG, "lay", _QUICK_S, files=files)

    async def _ended(self, command: Sequence[str], key: str, seconds: float) -> int:
        status = await self._form(_STATUS, "run", seconds, command=command, variables=self._variables(), key=key)
        if status < 0:
            words = self._last_words()
            await self.kill()
            raise ChildDiedError(f"{command[0]} was ended by signal {-status}; {words}")
        return status


def withheld_from(command: Sequence[str], source: Path | None) -> list[str]:
    """Files and folders at the top of `environment.path` that the reward command names: the program sees none of them.

    `["bash", "tests/test.sh"]` withholds `tests`.
    """
    named = {word.removeprefix("./").split("/")[0] for word in command}
    return sorted(one for one in named - {"", ".", ".."} if source is not None and (source / one).exists())


def _limits(config: ChildConfig) -> list[str]:
    return ["--memory-mib", str(config.memory_mib), "--cpu-s", str(config.cpu_s)]


def _files(source: Path | None) -> Iterator[tuple[str, tuple[int, str]]]:
    if source is None:
        return
    for file in sorted(files_in(source)):
        yield file.relative_to(source).as_posix(), _content(file.read_bytes(), file.stat().st_mode & 0o777)


def _content(data: bytes, mode: int = 0o644) -> tuple[int, str]:
    return mode, base64.b64encode(data).decode()
