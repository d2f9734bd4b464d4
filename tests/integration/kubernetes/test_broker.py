"""The broker of the manifests, started by their own command and config."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.integration.kubernetes.rendered import named, render
from tests.ports import free_port
from tests.valkey import server_binary


@contextmanager
def with_password(folder: Path, password: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (folder / "password").write_text(password)
    port = free_port()
    (container,) = named(render("cpu"), "StatefulSet", "valkey")["spec"]["template"]["spec"]["containers"]
    config = named(render("cpu"), "ConfigMap", "valkey")["data"]["valkey.conf"]
    config = config.replace("6379", str(port)).replace("/data", str(folder))
    (folder / "valkey.conf").write_text(f"bind 127.0.0.1\n{config}")
    (folder / "bin").mkdir()
    (folder / "bin" / "valkey-server").symlink_to(server_binary())
    (script,) = container["args"]
    for path in ("/run/secrets/broker", "/etc/valkey"):
        script = script.replace(path, str(folder))
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*container["command"], script], env=env, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield port, process
        finally:
            # The shell's death alone is not that of the server behind its pipe.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def ask(url: str) -> "redis.Redis":
    """A client, once the server answers."""
    end = time.monotonic() + 60
    while True:
        client = redis.Redis.from_url(url)
        try:
            client.ping()
            return client
        except redis.ConnectionError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_it_wants_the_password_and_never_evicts(tmp_path: Path) -> None:
    with with_password(tmp_path, "secret") as (port, _):
        client = ask(f"redis://:secret@127.0.0.1:{port}")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        client.close()


def test_it_does_not_start_without_one(tmp_path: Path) -> None:
    with with_password(tmp_path, "") as (_, process):
        assert process.wait(60) == 1
    assert "empty password" in (tmp_path / "log").read_text()
