"""A broker behind TLS with the run's own authority: a real Redis that asks for a certificate, too."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from headrace.operate.authority import renew
from headrace.supervisor.broker import check_external
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.redis import RedisBroker, server_facts
from tests.authority import certificates
from tests.ports import free_port
from tests.valkey import Valkey, redis_server

ADD_S = 1.0


class Encrypted:
    """A server that speaks TLS on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.tls, self.port = certificates(folder / "certs"), free_port()
        own = {"cert": "broker.pem", "key": "broker-key.pem", "ca-cert": "ca.pem"}
        files = [word for name, file in own.items() for word in (f"--tls-{name}-file", str(self.tls / file))]
        self.server = Valkey(
            folder / "server", "--tls-port", str(self.port), "--tls-auth-clients", "yes", *files, binary=redis_server()
        )

    def url(self, *, host: str = "127.0.0.1", tls: Path | None = None, role: str = "trainer") -> str:
        """With the authority and the certificate in a folder."""
        tls = tls or self.tls
        files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": f"{role}.pem", "ssl_keyfile": f"{role}-key.pem"}
        return f"rediss://{host}:{self.port}/0?" + "&".join(f"{name}={tls / file}" for name, file in files.items())


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    made = Encrypted(tmp_path)
    made.server.start()
    yield made
    made.server.stop()


def expires(path: Path) -> float:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


async def refusal(url: str) -> str:
    """Why no connection is made."""
    broker = RedisBroker(url, "r", retry_deadline_s=ADD_S)
    try:
        with pytest.raises(TransientError) as caught:
            await broker.add(StreamName.PROMPTS, b"x", sequence=1)
        return str(caught.value)
    finally:
        await broker.close()


async def test_groups_travel_over_tls_with_a_private_authority_and_a_client_certificate(encrypted: Encrypted) -> None:
    broker = RedisBroker(encrypted.url(), "r", retry_deadline_s=10)
    await broker.check(10)
    consumer = broker.consumer(StreamName.PROMPTS, "one", lease_s=30)
    await consumer.reclaim_own()
    await broker.add(StreamName.PROMPTS, b"prompt", sequence=1)
    (entry,) = await consumer.read(count=5, block_s=5)
    await consumer.settle(entry, [Put(stream=StreamName.ROLLOUTS, data=b"x" * 1_000_000)])
    assert await broker.live(StreamName.ROLLOUTS) == [b"x" * 1_000_000] and await broker.live(StreamName.PROMPTS) == []
    await broker.close()
    assert (await server_facts(encrypted.url(), timeout_s=10)).kind == "redis"


async def test_the_certificate_of_new_connections_is_watched(encrypted: Encrypted, tmp_path: Path) -> None:
    """The server takes another one meanwhile; the broker's open connections do not see it."""
    broker = RedisBroker(encrypted.url(), "r", retry_deadline_s=10)
    await broker.check(10)
    assert await broker.certificate_expires() == expires(encrypted.tls / "broker.pem")
    longer = tmp_path / "renewed"
    shutil.copytree(encrypted.tls, longer)
    renew(longer, hosts=(), days=9)
    files = ("tls-key-file", longer / "broker-key.pem")
    await broker._link.writer.config_set("tls-cert-file", str(longer / "broker.pem"), *map(str, files))
    assert await broker.certificate_expires() == expires(longer / "broker.pem") > time.time() + 8 * 86400
    files = ("tls-key-file", certificates(tmp_path / "other") / "broker-key.pem")
    await broker._link.writer.config_set("tls-cert-file", str(tmp_path / "other" / "broker.pem"), *map(str, files))
    with pytest.raises(TransientError, match=r"no new connection to the broker: .*CERTIFICATE_VERIFY_FAILED"):
        await broker.certificate_expires()
    assert await broker.memory(), "what is open goes on"
    await broker.close()


async def test_a_broker_without_tls_has_no_certificate(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "plain")
    server.start()
    broker = RedisBroker(server.url, "r", retry_deadline_s=10)
    assert await broker.certificate_expires() == 0
    await broker.close()
    server.stop()


async def test_a_server_with_an_unverified_certificate_is_not_used(encrypted: Encrypted, tmp_path: Path) -> None:
    plain = encrypted.url().partition("?")[0]
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(plain)
    other = certificates(tmp_path / "other")
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal(encrypted.url(tls=other))
    # Its certificate names 127.0.0.1.
    assert "Hostname mismatch" in await refusal(encrypted.url(host="localhost"))


async def test_the_server_rejects_clients_without_a_certificate(encrypted: Encrypted) -> None:
    await refusal(encrypted.url().partition("&")[0])
    await refusal(encrypted.url().partition("?")[0].replace("rediss", "redis"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("?ssl_ca_certs=/none/ca.pem", r"ssl_ca_certs = '/none/ca.pem': no such file; it must hold the auth"),
        ("?ssl_cert_reqs=none", r"ssl_cert_reqs must be `required`"),
        ("?protocol=3", "protocol must be 2"),
        ("?ssl_certfile=FOLDER/trainer.pem", "give ssl_certfile and ssl_keyfile, or none"),
        ("?ssl_ca_cert=FOLDER/ca.pem", "a parameter that does not exist: .*ssl_ca_cert"),
    ],
)
async def test_a_url_that_cannot_work_is_refused_before_a_connection(
    encrypted: Encrypted, more: str, words: str
) -> None:
    url = encrypted.url().partition("?")[0].replace("//", "//user:pass-phrase@") + more.replace(
        "FOLDER", str(encrypted.tls)
    )
    with pytest.raises(ConfigError, match=words) as caught:
        RedisBroker(url, "r")
    assert "pass-phrase" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"\[broker\] url = 'rediss://127") as told:
        await check_external(url, "[broker] url", 1, run_id="r", fresh=True)
    assert "pass-phrase" not in str(told.value)
    with pytest.raises(ConfigError, match="ssl_ca_certs is for rediss://"):
        RedisBroker(f"redis://127.0.0.1/0?ssl_ca_certs={encrypted.tls / 'ca.pem'}", "r")
