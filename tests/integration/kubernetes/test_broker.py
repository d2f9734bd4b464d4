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
def started(folder: Path) -> Iterator[int]:
    """Its port; `folder` stands for what is mounted."""
    (container,) = named(render("cpu"), "StatefulSet", "valkey")["spec"]["template"]["spec"]["containers"]
    port = free_port()
    config = named(render("cpu"), "ConfigMap", "valkey")["data"]["valkey.conf"]
    config = config.replace("6379", str(port)).replace("/data", str(folder))
    (folder / "valkey.conf").write_text(f"bind 127.0.0.1\n{config}")
    (folder / "bin").mkdir()
    (folder / "bin" / "valkey-server").symlink_to(server_binary())
    (script,) = container["args"]
    for path in ("/run/secrets/broker", "/etc/valkey"):
        script = script.replace(path, str(folder))
    script = script.replace("6379", str(port))
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*container["command"], script], env=env, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield port
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
    (tmp_path / "password").write_text("secret")
    with started(tmp_path) as port:
        client = ask(f"redis://:secret@127.0.0.1:{port}")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        client.close()
