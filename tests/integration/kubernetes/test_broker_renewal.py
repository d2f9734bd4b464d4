"""The broker of the component `mutual-tls` shows a renewed certificate without a restart: its own command, on Redis."""

import os
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import yaml

from tests.authority import certificates
from tests.integration.kubernetes.rendered import KUBERNETES
from tests.ports import free_port
from tests.valkey import redis_server
from tests.waiting import until

PATCH = KUBERNETES / "components" / "mutual-tls" / "valkey.yaml"
EVERY = "sleep 60"
"""Between two looks at the files."""
SECRET = {"tls.crt": "broker.pem", "tls.key": "broker-key.pem", "ca.crt": "ca.pem"}
PASSWORD = "of-the-test"


@dataclass(frozen=True, slots=True)
class Broker:
    """The command of the manifest, with its paths in a folder."""

    folder: Path
    port: int

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def mount(self, certs: Path, **others: Path) -> None:
        """Shows these certificates at the mount, all at once, as kubelet does; `others`: files from elsewhere."""
        mounted = self.folder / "tls"
        version = Path(tempfile.mkdtemp(prefix="..", dir=mounted))
        for name, source in SECRET.items():
            shutil.copy(others.get(name.replace(".", "_"), certs / source), version / name)
            if not (mounted / name).is_symlink():
                (mounted / name).symlink_to(f"..data/{name}")
        (mounted / "..data_tmp").symlink_to(version.name)
        (mounted / "..data_tmp").rename(mounted / "..data")

    def shown(self) -> str:
        """The certificate that a new connection is shown; empty before there is a server."""
        try:
            return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=10)
        except OSError:
            return ""

    def client(self, certs: Path) -> redis.Redis:
        url = f"rediss://:{PASSWORD}@127.0.0.1:{self.port}/0?ssl_ca_certs={certs / 'ca.pem'}"
        return redis.Redis.from_url(url, single_connection_client=True)


def script(folder: Path) -> str:
    (container,) = yaml.safe_load(PATCH.read_text())["spec"]["template"]["spec"]["containers"]
    (text,) = container["args"]
    assert text.count(EVERY) == 1
    assert "$$" not in text, "Kubernetes makes one of them"
    for there, here in (("/run/secrets/", f"{folder}/"), ("/etc/valkey/", f"{folder}/"), (EVERY, "sleep 0.2")):
        assert there in text
        text = text.replace(there, here)
    return str(text)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, free_port())
    tools = {
        "valkey-server": f'{redis_server()} "$@" --bind 127.0.0.1 --dir {tmp_path} --tls-port {made.port}',
        "valkey-cli": f'redis-cli -p {made.port} "$@"',
    }
    for folder in ("tls", "broker", "tools"):
        (tmp_path / folder).mkdir()
    for name, command in tools.items():
        (tmp_path / "tools" / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (tmp_path / "tools" / name).chmod(0o755)
    (tmp_path / "valkey.conf").write_text('save ""\n')
    (tmp_path / "broker" / "password").write_text(PASSWORD)
    made.mount(certificates(tmp_path / "first"))
    variables = {**os.environ, "PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}"}
    with (tmp_path / "log").open("w") as log:
        command = ["sh", "-euc", script(tmp_path)]
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True)
    yield made
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def pem(certs: Path) -> str:
    return (certs / "broker.pem").read_text()


def test_a_renewed_certificate_is_shown_and_open_connections_stay(broker: Broker) -> None:
    first, second = broker.folder / "first", certificates(broker.folder / "second")
    until(lambda: broker.shown() == pem(first), "the first certificate", detail=lambda: broker.log)
    before = broker.client(first)
    number = before.client_id()
    # Of another authority: the one in use does not prove it.
    broker.mount(second)
    until(lambda: broker.shown() == pem(second), "the renewed certificate", detail=lambda: broker.log)
    assert before.client_id() == number
    after = broker.client(second)
    assert after.ping()
    until(lambda: "reading the renewed certificate: OK" in broker.log, "its line", detail=lambda: broker.log)
    before.close(), after.close()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(f"rediss://127.0.0.1:{broker.port}/0?ssl_ca_certs={second / 'ca.pem'}").ping()
    with pytest.raises(redis.ConnectionError):
        redis.Redis(port=broker.port, password=PASSWORD).ping()


def test_what_cannot_be_used_is_named_and_the_old_certificate_stays_until_it_can(broker: Broker) -> None:
    first, second = broker.folder / "first", certificates(broker.folder / "second")
    until(lambda: broker.shown() == pem(first), "the first certificate", detail=lambda: broker.log)
    broker.mount(second, tls_key=first / "broker-key.pem")
    until(lambda: "reading the renewed certificate: ERR" in broker.log, "a refusal", detail=lambda: broker.log)
    assert broker.shown() == pem(first)
    broker.mount(second)
    until(lambda: broker.shown() == pem(second), "the renewed certificate", detail=lambda: broker.log)
