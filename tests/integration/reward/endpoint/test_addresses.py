"""Server-side request forgery: whatever form a forbidden address takes, no connection is made.

A listening socket proves it: it counts connections.
"""

import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward import metrics
from headrace.services.reward.endpoint import Endpoint, EndpointError
from headrace.services.reward.endpoint import client as module
from headrace.services.reward.scorer import Context
from headrace.wire.errors import ConfigError
from tests.integration.reward.endpoint.scripted import answer, scripted

PUBLIC = "93.184.215.14"


class Resolver:
    """Says each list in turn, the last one for ever."""

    def __init__(self, *says: Sequence[str]) -> None:
        self.says = list(says)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]


def endpoint(url: str, *allow: str, **options: Any) -> Endpoint:
    context = Context(component="ssrf", timeout_s=120.0, allow_hosts=allow)
    given = {"attempt_s": 5.0, "deadline_s": 10.0, "retries": 1, "concurrency": 2} | options
    return Endpoint(url, context=context, what="test", **given)


def refusals() -> float:
    return float(metrics.ENDPOINT_REQUESTS.labels("ssrf", "forbidden")._value.get())


FORMS = [
    "http://127.0.0.1:{port}",
    "http://2130706433:{port}",
    "http://0x7f000001:{port}",
    "http://0x7f.1:{port}",
    "http://0177.0.0.1:{port}",
    "http://127.1:{port}",
    "http://127.0.0.1.:{port}",
    "http://0:{port}",
    "http://0.0.0.0:{port}",
    "http://[::1]:{port}",
    "http://[::]:{port}",
    "http://[::ffff:127.0.0.1]:{port}",
    "http://[::ffff:7f00:1]:{port}",
    "http://[::127.0.0.1]:{port}",
    "http://[64:ff9b::127.0.0.1]:{port}",
    "http://[64:ff9b:1::7f00:1]:{port}",
    "http://[2002:7f00:1::]:{port}",
    "http://[2001:0:7f00:1::]:{port}",
    "http://[fe80::1]:{port}",
    "http://[fe80::1%25lo]:{port}",
    "http://[fe80::1%lo]:{port}",
    "http://[fd00::1]:{port}",
    "http://[fd00:ec2::254]",
    "http://[ff02::1]:{port}",
    "http://169.254.169.254/latest/meta-data",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://good.example@127.0.0.1:{port}",
    "http://user:pass@127.0.0.1:{port}",
    "http://127.0.0.1:{port}\\@good.example",
    "http://good.example#@127.0.0.1:{port}",
    "http://127.0.0.1:{port}?x=1",
    "http://\uff11\uff12\uff17.0.0.1:{port}",
    "http://127.0.0.\u2460:{port}",
    "http://127\u30020\u30020\u30021:{port}",
    "http://local%68ost:{port}",
    "http://local\thost:{port}",
    "http://:{port}",
    "http:127.0.0.1:{port}",
    "http://127.0.0.1:99999",
    "//127.0.0.1:{port}",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_x",
    "ftp://127.0.0.1:{port}",
    "unix:///run/x.sock",
    "",
]


@pytest.mark.parametrize("form", FORMS, ids=ascii)
async def test_every_form_of_a_forbidden_address_is_refused_before_connecting(form: str) -> None:
    async with scripted() as server:
        with pytest.raises(ConfigError):
            endpoint(form.format(port=server.port), "good.example")
        assert server.connections == 0


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["::1"],
        ["fe80::1%lo"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        [PUBLIC, "127.0.0.1"],
        ["2606:4700::1111", "fd00::1"],
    ],
    ids=",".join,
)
async def test_a_name_that_stands_for_a_private_address_is_refused(answers: list[str]) -> None:
    async with scripted() as server:
        caller = endpoint(f"http://judge.example:{server.port}", resolve=Resolver(answers))
        before = refusals()
        with pytest.raises(ConfigError, match=r"judge\.example is .* address"):
            await caller.check()
        with pytest.raises(EndpointError, match=r"judge\.example is .* address") as caught:
            await caller.post("/", {})
        assert caught.value.kind == "down" and refusals() == before + 2
        assert server.connections == 0
        await caller.close()


async def test_a_name_that_turns_private_after_the_check_is_refused() -> None:
    async with scripted() as server:
        caller = endpoint(f"http://judge.example:{server.port}", resolve=Resolver([PUBLIC], ["127.0.0.1"]))
        await caller.check()
        with pytest.raises(EndpointError, match="a loopback address"):
            await caller.post("/", {})
        assert server.connections == 0
        await caller.close()


async def test_the_connection_goes_to_the_checked_address_and_the_host_stays_the_name() -> None:
    # Nothing but the resolver knows this name, and it is asked once: no second look-up can say something else.
    resolver = Resolver(["127.0.0.1"], ["10.255.255.1"])
    async with scripted() as server:
        caller = endpoint(f"http://judge.example:{server.port}", "judge.example", resolve=resolver)
        await caller.post("/", {})
        await caller.post("/", {})
        assert server.requests[0].headers["host"] == f"judge.example:{server.port}"
        assert resolver.asked == 1 and server.connections == 1
        await caller.close()


async def test_a_listed_name_may_be_private_but_never_a_metadata_service() -> None:
    caller = endpoint("http://judge.example", "judge.example", resolve=Resolver(["169.254.169.254"]))
    with pytest.raises(ConfigError, match="a metadata service's address"):
        await caller.check()
    await caller.close()
    await endpoint("http://169.254.1.1", "169.254.1.1").close()
    with pytest.raises(ConfigError, match="unspecified"):
        endpoint("http://0.0.0.0", "0.0.0.0")


@pytest.mark.parametrize("place", ["http://127.0.0.1:{port}/", "file:///etc/passwd", "/other", "gopher://x"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int, place: str) -> None:
    async with scripted() as inner:
        location = f"Location: {place.format(port=inner.port)}"
        async with scripted(otherwise=lambda _: answer(status, b"", location)) as server:
            caller = endpoint(server.url, f"127.0.0.1:{server.port}", f"127.0.0.1:{inner.port}")
            with pytest.raises(EndpointError, match="redirects") as caught:
                await caller.post("/", {})
            assert caught.value.kind == "down"
            assert inner.connections == 0 and len(server.requests) == 1
            await caller.close()


async def test_the_environments_proxies_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted() as proxy, scripted() as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        caller = endpoint(server.url, "127.0.0.1")
        await caller.post("/", {})
        assert proxy.connections == 0
        await caller.close()


async def test_a_key_is_not_sent_in_the_clear_to_strangers(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    with pytest.raises(ConfigError, match="https"):
        endpoint("http://judge.example", api_key_file=key)
    with pytest.raises(ConfigError, match="api_key_file"):
        endpoint("https://judge.example", api_key_file=tmp_path / "none")
    key.write_text("two words")
    with pytest.raises(ConfigError, match="on one line"):
        endpoint("https://judge.example", api_key_file=key)


async def test_tls_checks_the_name_though_the_connection_goes_to_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
    name = ["-subj", "/CN=judge.example", "-addext", "subjectAltName=DNS:judge.example", "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", "-days", "2", *curve, *name], check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    def caller(host: str, port: int) -> Endpoint:
        return endpoint(f"https://{host}:{port}", host, resolve=Resolver(["127.0.0.1"]), ca_file=certificate)

    async with scripted(tls=tls) as server:
        right, wrong = caller("judge.example", server.port), caller("other.example", server.port)
        assert await right.post("/", {"a": 1}) == {"echo": {"a": 1}}
        with pytest.raises(EndpointError, match="certificate verify failed"):
            await wrong.post("/", {})
        await right.close()
        await wrong.close()
