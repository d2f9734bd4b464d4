"""Services that each have only their own token, certificate and broker's user train a run to its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.operate.broker_users import ACL_FILE, write_users
from headrace.wire.access.roles import Role
from headrace.wire.streams.redis import GRANTS
from tests.authority import certificates
from tests.e2e.apart import STEERING, ServicesApart
from tests.e2e.episodes import played_run
from tests.e2e.harness import TinyRun
from tests.ports import free_port
from tests.valkey import Valkey, redis_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Valkey]:
    users, tls = tmp_path / "users", certificates(tmp_path / "certs")
    words, binary, port = ["--aclfile", str(users / ACL_FILE)], "", free_port()
    if request.param == "rediss":
        binary = redis_server()
        words += ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(tls / "ca.pem")]
        words += ["--tls-cert-file", str(tls / "broker.pem"), "--tls-key-file", str(tls / "broker-key.pem")]
    server = Valkey(tmp_path / "server", *words, binary=binary)
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tls / 'ca.pem'}" if binary else server.url
    write_users(users, url, "tiny")
    with (users / ACL_FILE).open("a") as file:
        file.write("user admin on >of-the-test ~* &* +@all\n")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("broker", "plays", "surroundings"),
    [("redis", False, STEERING), ("redis", True, {}), pytest.param("rediss", False, STEERING, marks=pytest.mark.long)],
    indirect=["broker"],
)
def test_each_service_works_with_the_secrets_of_its_own_role_alone_whatever_else_is_set(
    broker: Valkey, plays: bool, surroundings: dict[str, str], tmp_path: Path
) -> None:
    make = played_run if plays else TinyRun
    run = make(tmp_path / "tiny", steps=5, staleness=1, deterministic=False, replicas=1)
    urls = {role: (tmp_path / "users" / f"{role}.url").read_text() for role in GRANTS}
    apart = ServicesApart(run, tmp_path / "secrets", tls=tmp_path / "certs", urls=urls, plays=plays)
    told = apart.prepare()
    assert "collective traffic (weights to the replicas) is neither encrypted nor authenticated" in told
    assert "gRPC is not encrypted: use HEADRACE_TLS" in told  # It was not set for `headrace prepare`.
    apart.start(surroundings)
    try:
        apart.wait_for_the_trainer()
        assert run.steps() == 5
    finally:
        apart.close()
    admin = redis.Redis.from_url(broker.url.replace("//", "//admin:of-the-test@"))
    assert admin.acl_log() == []  # Nothing that a service did was refused.
    assert {one["user"] for one in admin.client_list()} == {"admin"}
    admin.close()
    run.check()
    assert ("variables_left_out" in apart.log("trainer").read_text()) is bool(surroundings)
    assert '"carry": "weights to the replicas"' in apart.log("trainer").read_text()
    assert '"not_encrypted"' not in apart.logs()
    secrets = [urls[role].partition(":")[2].rpartition("@")[0].rpartition(":")[2] for role in Role if role in urls]
    files = [path for path in run.run_dir.rglob("*") if path.is_file()]
    assert len(files) > 20 and all(len(secret) > 20 for secret in secrets)
    assert [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)] == []
