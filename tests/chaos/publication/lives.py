"""Trainers and orchestrators as processes of their own, which die at a moment of a publication.

They are forked from a server that has imported what they need, so that a next life begins at once.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.one_token import take_all_roles

Main = Callable[..., None]


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.publication.preload"])
    return context


class Life:
    """One process that runs `main(connection, *arguments)`."""

    def __init__(self, main: Main, *arguments: Any, log: Path) -> None:
        context = _context()
        self._ours, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_run, args=(main, theirs, log, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    async def ask(self, *words: Any, within_s: float = 30.0) -> Any:
        """Sends a request; raises what the process raised, EOFError if it died."""
        self._ours.send(words)
        return await self.answer(within_s)

    def send(self, *words: Any) -> None:
        self._ours.send(words)

    async def answer(self, within_s: float = 30.0) -> Any:
        there = await asyncio.to_thread(self._ours.poll, within_s)
        assert there, f"no answer within {within_s} s"
        found = self._ours.recv()
        if isinstance(found, Exception):
            raise found
        return found

    async def death(self, within_s: float = 30.0) -> int:
        """Waits for its end; returns the exit code."""
        await asyncio.to_thread(self.process.join, within_s)
        assert self.process.exitcode is not None, f"it lives after {within_s} s"
        return int(self.process.exitcode)

    def close(self) -> None:
        self.process.kill()
        self.process.join(60)
        self._ours.close()


def _run(main: Main, connection: Connection, log: Path, *arguments: Any) -> None:
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    main(connection, *arguments)


def die() -> None:
    """As a machine does."""
    os.kill(os.getpid(), signal.SIGKILL)


async def take(connection: Connection) -> tuple[Any, ...]:
    """The next request from the test."""
    while not connection.poll():
        await asyncio.sleep(0.005)
    words: tuple[Any, ...] = connection.recv()
    return words


def trainer_main(connection: Connection, folder: Path, orchestrator: str) -> None:
    """The trainer's side of a publication: `register`, `publish VERSION`, `die_in_transfer VERSION`."""
    from tests.chaos.publication.stage import trainer
    from tests.chaos.publication.strike import Moment, Watch, watch_groups

    take_all_roles(folder)

    async def serve() -> None:
        watch_groups()
        async with trainer(folder, orchestrator) as side:
            while True:
                try:
                    match await take(connection):
                        case ("register",):
                            await side.register()
                            connection.send(side.incarnation)
                        case ("die_in_transfer", version):
                            Watch.moment = Moment("transfer", version, die, middle=True)
                            connection.send("yes")
                        case ("publish", version):
                            await side.publish(version, 30)
                            connection.send("published")
                except Exception as error:
                    connection.send(error)

    asyncio.run(serve())


def orchestrator_main(connection: Connection, settings: dict[str, Any]) -> None:
    """The whole orchestrator; `die PHASE VERSION MIDDLE`."""
    from headrace.services.orchestrator import app
    from headrace.services.orchestrator.settings import OrchestratorSettings
    from tests.chaos.publication.strike import Moment, Watch, watch_sessions

    def listen() -> None:
        while True:
            phase, version, middle = connection.recv()
            Watch.moment = Moment(phase, version, die, middle=middle)
            connection.send("yes")

    take_all_roles(Path(settings["run_dir"]))
    watch_sessions()
    threading.Thread(target=listen, daemon=True).start()
    asyncio.run(app.serve(OrchestratorSettings.model_validate(settings)))
