"""Where requests of the reward service go: to the config's URL alone, to a private address only where it is listed."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.endpoint import Endpoint, EndpointError
from headrace.services.reward.scorer import Context
from headrace.wire.errors import ConfigError
from tests.integration.reward.endpoint.scripted import answer, scripted


def endpoint(url: str, *allow: str, **options: Any) -> Endpoint:
    context = Context(component="ssrf", timeout_s=120.0, allow_hosts=allow)
    given = {"attempt_s": 5.0, "deadline_s": 10.0, "retries": 1, "concurrency": 2} | options
    return Endpoint(url, context=context, what="test", **given)


FORMS = [
    "http://127.0.0.1:{port}",
    "http://2130706433:{port}",
    "http://0:{port}",
    "http://localhost:{port}",
    "http://[::1]:{port}",
    "http://[::ffff:127.0.0.1]:{port}",
    "http://169.254.169.254/latest/meta-data",
    "http://10.0.0.1/",
    "http://user:pass@127.0.0.1:{port}",
    "http://127.0.0.1:{port}?x=1",
    "http://:{port}",
    "http://127.0.0.1:99999",
    "file:///etc/passwd",
    "",
]


@pytest.mark.parametrize("form", FORMS)
async def test_a_private_address_or_a_strange_url_is_refused_before_connecting(form: str) -> None:
    async with scripted() as server:
        with pytest.raises(ConfigError):
            caller = endpoint(form.format(port=server.port), "good.example")
            try:
                await caller.check()
            finally:
                await caller.close()
        assert server.connections == 0


@pytest.mark.parametrize("entry", ["localhost", "localhost:{port}", "LOCALHOST"])
async def test_a_host_is_listed_with_its_port_or_without(entry: str) -> None:
    async with scripted() as server:
        caller = endpoint(f"http://localhost:{server.port}", entry.format(port=server.port).lower())
        await caller.check()
        assert "echo" in await caller.post("/", {})
        await caller.close()
    with pytest.raises(ConfigError, match=r"reward\.allow_hosts = \['127\.0\.0\.1:8001'\]"):
        endpoint("http://127.0.0.1:8001", "127.0.0.1:8000")


async def test_an_unknown_name_passes_the_check_and_is_down() -> None:
    # A name server that is slow, or loses a question, is given up by the resolver itself, after many seconds.
    caller = endpoint("http://nobody.invalid", attempt_s=60.0, deadline_s=120.0)
    await caller.check()
    with pytest.raises(EndpointError) as caught:
        await caller.post("/", {})
    assert caught.value.kind == "down"
    await caller.close()


@pytest.mark.parametrize("status", [301, 307])
async def test_redirects_are_not_followed(status: int) -> None:
    async with scripted() as inner:
        location = f"Location: http://127.0.0.1:{inner.port}/"
        async with scripted(otherwise=lambda _: answer(status, b"", location)) as server:
            caller = endpoint(server.url, f"127.0.0.1:{server.port}", f"127.0.0.1:{inner.port}")
            with pytest.raises(EndpointError, match="redirects") as caught:
                await caller.post("/", {})
            assert caught.value.kind == "down"
            assert inner.connections == 0 and len(server.requests) == 1
            await caller.close()


async def test_proxies_from_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted() as proxy, scripted() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        caller = endpoint(server.url, "127.0.0.1")
        await caller.post("/", {})
        assert proxy.connections == 0
        await caller.close()


async def test_an_api_key_is_not_sent_in_clear_text_to_public_hosts(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    with pytest.raises(ConfigError, match="https"):
        endpoint("http://judge.example", api_key_file=key)
    with pytest.raises(ConfigError, match="api_key_file"):
        endpoint("https://judge.example", api_key_file=tmp_path / "none")
    key.write_text("two words")
    with pytest.raises(ConfigError, match="on one line"):
        endpoint("https://judge.example", api_key_file=key)


async def test_tls_checks_the_name_by_the_given_authority(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", "-days", "2", *curve, *name], check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    def caller(host: str, port: int) -> Endpoint:
        return endpoint(f"https://{host}:{port}", host, ca_file=certificate)

    async with scripted(tls=tls) as server:
        right, wrong = caller("localhost", server.port), caller("127.0.0.1", server.port)
        assert await right.post("/", {"a": 1}) == {"echo": {"a": 1}}
        with pytest.raises(EndpointError, match="certificate verify failed"):
            await wrong.post("/", {})
        await right.close()
        await wrong.close()
