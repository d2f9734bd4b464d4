"""The broker of the manifests, started by their own command and config."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from headrace.wire.streams.redis import GRANTS
from tests.integration.kubernetes.rendered import Manifest, make_secrets, named, render
from tests.ports import free_port
from tests.valkey import redis_server, server_binary

USERS = {"admin": "password", "keda": "keda"}
"""Further users, and the files with their passwords."""


def container_of(overlay: str) -> Manifest:
    (container,) = named(render(overlay), "StatefulSet", "valkey")["spec"]["template"]["spec"]["containers"]
    return container


@contextmanager
def started(
    folder: Path, places: dict[str, Path], overlay: str = "cpu", binary: str = ""
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`places`: what is mounted, by its path in the container."""
    port, container = free_port(), container_of(overlay)
    config = named(render(overlay), "ConfigMap", "valkey")["data"]["valkey.conf"]
    config = config.replace("6379", str(port)).replace("/data", str(folder))
    (folder / "valkey.conf").write_text(f"bind 127.0.0.1\n{config}")
    (folder / "bin").mkdir()
    (folder / "bin" / "valkey-server").symlink_to(binary or server_binary())
    (script,) = container["args"]
    for path, place in {**places, "/etc/valkey": folder}.items():
        script = script.replace(path, str(place))
    script = script.replace("6379", str(port))
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


@contextmanager
def with_password(folder: Path, password: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (folder / "password").write_text(password)
    with started(folder, {"/run/secrets/broker": folder}) as found:
        yield found


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


def test_over_tls_it_lets_in_the_users_of_the_script_and_nothing_in_plain_text(tmp_path: Path) -> None:
    binary = redis_server()
    secrets, tls = tmp_path / "secrets", tmp_path / "tls"
    make_secrets(secrets, "--tls", "demo")
    tls.mkdir()
    for name, file in {"ca.crt": "ca.pem", "tls.crt": "broker.pem", "tls.key": "broker-key.pem"}.items():
        shutil.copy(secrets / "certs" / file, tls / name)
    (tmp_path / "server").mkdir()
    places = {"/run/secrets/broker": secrets / "broker", "/run/secrets/tls": tls}
    with started(tmp_path / "server", places, "cpu+mutual-tls", binary) as (port, _):
        passwords = {
            role: urlsplit((secrets / "users" / f"{role}.url").read_text().strip()).password for role in GRANTS
        }
        passwords |= {name: (secrets / "broker" / file).read_text() for name, file in USERS.items()}
        query = f"ssl_ca_certs={tls / 'ca.crt'}"
        # The certificate names the Service and, for tools in the pod, localhost.
        admin = ask(f"rediss://admin:{passwords['admin']}@localhost:{port}/0?{query}")
        assert admin.config_get("port") == {"port": "0"} and admin.config_get("maxmemory-policy")
        for name, password in passwords.items():
            own = redis.Redis.from_url(f"rediss://{name}:{password}@localhost:{port}/0?{query}")
            assert own.ping()
            own.close()
        admin.xgroup_create("headrace:{demo}:rollouts", "reward", mkstream=True)
        keda = redis.Redis.from_url(f"rediss://keda:{passwords['keda']}@localhost:{port}/0?{query}")
        assert [group["name"] for group in keda.xinfo_groups("headrace:{demo}:rollouts")] == [b"reward"]
        with pytest.raises(redis.exceptions.NoPermissionError):
            keda.xread({"headrace:{demo}:rollouts": 0})
        with pytest.raises(redis.exceptions.NoPermissionError):
            keda.xinfo_groups("headrace:{demo}:scored")
        for client in (keda, admin):
            client.close()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(f"rediss://localhost:{port}/0?{query}").ping()
        assert b"PONG" not in said_in_the_clear(port)
        assert_valkey_is_named(port, tls / "ca.crt")


def said_in_the_clear(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        try:
            plain.sendall(b"PING\r\n")
            return plain.recv(100)
        except ConnectionError:
            return b""


def assert_valkey_is_named(port: int, authority: Path) -> None:
    """As services and KEDA verify it: under the names of its Service."""
    context = ssl.create_default_context(cafile=authority)
    for name in ("valkey", "valkey.headrace.svc"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
