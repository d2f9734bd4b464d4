"""One life of a child: started, asked, ended."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.services.reward.workers.errors import JobError
from headrace.services.reward.workers.output import copy_output
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.host.child import Child, ended
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.process.users_code import Bug

_LAST_S = 1.0
"""For a child to leave by itself, which has closed its socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a child is to be."""

    target: str
    """module:factory"""
    arguments: Mapping[str, object] = field(default_factory=dict)
    path: str | None = None
    """Comes last on its import path."""
    memory_mb: int | None = None
    """Address space that it may add once it has loaded."""


class DiedAtStartError(ConfigError):
    """It died while it loaded, without a word: another try may go better."""


class WorkerProcess(Child):
    """Answers jobs, one at a time."""

    def cpu_s(self) -> float | None:
        """Processor time that it has used; None where the system does not report it."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def run(self, job: Mapping[str, object]) -> dict[str, object]:
        """The result; raises JobError, and what `ask` raises. The caller bounds it."""
        answer = await self.ask({"job": job})
        if "error" in answer:
            bug = answer.get("bug")
            raise JobError(answer["error"], answer["message"], Bug(**bug) if bug else None)
        result: dict[str, object] = answer["result"]
        return result

    @classmethod
    async def start(cls, order: Order, what: str, deadline_s: float) -> "WorkerProcess":
        """A child that has loaded; raises ConfigError with its own words, or DiedAtStartError. On the main thread."""
        child = cls(what)
        words = (sys.executable, "-P", "-u", "-m", "headrace.services.reward.workers.child")
        await child.launch(lambda fd: (*words, str(fd), str(os.getpid())), lambda printed: copy_output(printed, what))
        is_loaded = False
        try:
            await wait_for(child._load(order), deadline_s, f"{what} to load")
            is_loaded = True
        except WaitTimeoutError as error:
            raise ConfigError(f"{what}: it has not loaded within {deadline_s:g} s") from error
        finally:
            if not is_loaded:
                await child.kill()
        return child

    async def _load(self, order: Order) -> None:
        try:
            await self.send(asdict(order))
            answer = await self.read()
        except ConnectionError as error:
            how = ended(await self.kill(_LAST_S))
            raise DiedAtStartError(f"{self._what}: its process {how} while it loaded") from error
        if "error" in answer:
            raise ConfigError(f"{self._what}: {answer['error']}")
