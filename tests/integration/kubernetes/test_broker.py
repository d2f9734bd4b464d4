"""The broker of the manifests, started by their own command and config."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import redis

from tests.integration.kubernetes.rendered import named, render
from tests.ports import free_port
from tests.valkey import server_binary


@contextmanager
def started(folder, password) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port, manifests = free_port(), render("cpu")
    (container,) = named(manifests, "StatefulSet", "valkey")["spec"]["template"]["spec"]["containers"]
    config = named(manifests, "ConfigMap", "valkey")["data"]["valkey.conf"]
    config = config.replace("6379", str(port)).replace("/data", str(folder))
    (folder / "valkey.conf").write_text(f"bind 127.0.0.1\n{config}")
    (folder / "password").write_text(password)
    (folder / "bin").mkdir()
    (folder / "bin" / "valkey-server").symlink_to(server_binary())
    (script,) = container["args"]
    script = script.replace("/run/secrets/broker", str(folder)).replace("/etc/valkey", str(folder))
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


def ask(port, password):
    end = time.monotonic() + 60
    while True:
        client = redis.Redis(port=port, password=password)
        try:
            client.ping()
            return client
        except redis.ConnectionError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_it_wants_the_password_and_never_evicts(tmp_path):
    with started(tmp_path, "secret") as (port, _):
        client = ask(port, "secret")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        client.close()


def test_it_does_not_start_without_one(tmp_path):
    with started(tmp_path, "") as (_, process):
        assert process.wait(60) == 1
    assert "empty password" in (tmp_path / "log").read_text()
