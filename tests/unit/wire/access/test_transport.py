"""Over mutual TLS every method of every service is refused to a caller without the certificate of its token's role."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from headrace.operate.authority import renew
from headrace.wire.access import process, reread
from headrace.wire.access.certificates import name_of, read_certificates
from headrace.wire.access.roles import ALLOWED, Role
from headrace.wire.errors import TransientError
from headrace.wire.peers import rpc
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.authority import certificates, expired
from tests.unit.wire.access.test_guard import BASES, DENIED, HEALTH, METHODS, SERVICES, bearer

AWAY = grpc.StatusCode.UNAVAILABLE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`certs`, of the run; `other`, of another authority; `expired`."""
    made = tmp_path_factory.mktemp("tls")
    certificates(made / "certs")
    certificates(made / "other")
    expired(made / "certs", Role.TRAINER, made / "expired")
    return made


@pytest.fixture
def tokens(folder: Path, tmp_path: Path) -> Iterator[Path]:
    process.use(Role.ORCHESTRATOR, tmp_path / "tokens", makes=True, tls=folder / "certs")
    yield tmp_path / "tokens"
    process.forget()


@pytest.fixture
async def port(tokens: Path) -> AsyncIterator[int]:
    servers = {
        name: (lambda made, add=add, base=base: add(base(), made))
        for (name, add), base in zip(SERVICES.items(), BASES, strict=True)
    }
    server = await rpc.serve(servers, "127.0.0.1", 0)
    yield server.port
    await server.stop(0)


def shows(port: int, folder: Path | None, role: Role) -> grpc.aio.Channel:
    """A channel of a caller's own making; `folder` None: it shows no certificate."""
    found = (folder.parent / "certs" / "ca.pem").read_bytes() if folder else None
    pair = ((folder / f"{role}-key.pem").read_bytes(), (folder / f"{role}.pem").read_bytes()) if folder else ()
    options = (("grpc.ssl_target_name_override", name_of(Role.ORCHESTRATOR)),)
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(found, *pair), options=options)


async def codes_of(
    opened: grpc.aio.Channel, *metadata: tuple[str, str], methods: set[str]
) -> dict[str, grpc.StatusCode]:
    """Method -> status of a call without a message; a stream's first answer."""
    found = {}
    async with opened:
        for method in sorted(methods):
            try:
                if method.rpartition("/")[2] in ("WatchReplicas", "Chat"):
                    await opened.unary_stream(method)(b"", metadata=metadata, timeout=20).read()
                else:
                    await opened.unary_unary(method)(b"", metadata=metadata, timeout=20)
                found[method] = grpc.StatusCode.OK
            except grpc.aio.AioRpcError as error:
                found[method] = error.code()
    return found


async def test_a_caller_without_a_certificate_of_the_authority_is_refused_on_every_method(
    port: int, tokens: Path, folder: Path
) -> None:
    every = METHODS | {HEALTH}
    token = bearer(tokens, Role.TRAINER)
    root = grpc.ssl_channel_credentials((folder / "certs" / "ca.pem").read_bytes())
    named = (("grpc.ssl_target_name_override", name_of(Role.ORCHESTRATOR)),)
    callers = {
        "plaintext": grpc.aio.insecure_channel(f"127.0.0.1:{port}"),
        "no certificate": grpc.aio.secure_channel(f"127.0.0.1:{port}", root, options=named),
        "other authority": shows(port, folder / "other", Role.TRAINER),
        "expired": shows(port, folder / "expired", Role.TRAINER),
    }
    for what, opened in callers.items():
        found = await codes_of(opened, token, methods=every)
        assert set(found.values()) == {AWAY}, (what, found)


async def test_a_certificate_of_another_role_than_the_tokens_is_refused_on_every_method(
    port: int, tokens: Path, folder: Path
) -> None:
    for shown, given in ((Role.ROLLOUT, Role.TRAINER), (Role.TRAINER, Role.ROLLOUT), (Role.VIEWER, Role.ORCHESTRATOR)):
        found = await codes_of(shows(port, folder / "certs", shown), bearer(tokens, given), methods=METHODS)
        assert set(found.values()) == {DENIED}, (shown, given, found)
    reflection = {method for method in ALLOWED if "reflection" in method}
    opened = shows(port, folder / "certs", Role.ROLLOUT)
    async with opened:
        call = opened.stream_stream(*reflection)(iter([b""]), metadata=(bearer(tokens, Role.VIEWER),), timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is DENIED and "the token is of viewer, the certificate of rollout" in str(caught.value)


async def register(port: int, serves: Role | None) -> None:
    async with rpc.channel(f"127.0.0.1:{port}", serves) as opened:
        ask = OrchestratorServiceStub(opened).RegisterReplica
        await rpc.call(ask, pb.RegisterReplicaRequest(), timeout_s=20, what="the orchestrator")


async def test_our_channels_connect_only_to_the_intended_role(port: int, tokens: Path, folder: Path) -> None:
    process.use(Role.ROLLOUT, tokens, makes=False, tls=folder / "certs")
    with pytest.raises(RuntimeError, match="NotImplementedError"):
        await register(port, Role.ORCHESTRATOR)
    with pytest.raises(RuntimeError, match="NotImplementedError"):
        await register(port, None)  # Its certificate names 127.0.0.1, too.
    with pytest.raises(TransientError, match=r"Hostname Verification"):
        await register(port, Role.TRAINER)
    process.use(Role.ROLLOUT, tokens, makes=False, tls=folder / "other")
    with pytest.raises(TransientError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify"):
        await register(port, Role.ORCHESTRATOR)


async def test_an_authority_is_replaced_by_way_of_a_file_with_both(tokens: Path, folder: Path, tmp_path: Path) -> None:
    sides = {}
    for name in ("certs", "other"):
        sides[name] = tmp_path / name
        shutil.copytree(folder / name, sides[name])
        both = b"".join((folder / one / "ca.pem").read_bytes() for one in ("certs", "other"))
        (sides[name] / "ca.pem").write_bytes(both)
    for serving, calling in (("certs", "other"), ("other", "certs")):
        process.use(Role.ORCHESTRATOR, tokens, makes=True, tls=sides[serving])
        server = await rpc.serve(
            {"wire.v1.OrchestratorService": lambda made: SERVICES["wire.v1.OrchestratorService"](BASES[0](), made)},
            "127.0.0.1", 0,
        )  # fmt: skip
        process.use(Role.ROLLOUT, tokens, makes=False, tls=sides[calling])
        with pytest.raises(RuntimeError, match="NotImplementedError"):
            await register(server.port, Role.ORCHESTRATOR)
        await server.stop(0)


async def test_renewed_certificates_are_shown_by_servers_and_channels_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "LOOK_S", 0.0)
    tls = certificates(tmp_path / "certs")
    seen: list[bytes] = []

    async def register_replica(request: object, context: grpc.aio.ServicerContext) -> pb.RegisterReplicaResponse:
        seen.append(context.auth_context()["x509_pem_cert"][0])
        return pb.RegisterReplicaResponse()

    held, entered = asyncio.Event(), asyncio.Event()

    async def heartbeat(request: object, context: object) -> pb.HeartbeatResponse:
        entered.set()
        await held.wait()
        return pb.HeartbeatResponse()

    def add(server: grpc.aio.Server) -> None:
        kinds = {"RegisterReplica": register_replica, "Heartbeat": heartbeat}
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                one, response_serializer=lambda answer: answer.SerializeToString()
            )
            for name, one in kinds.items()
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("wire.v1.OrchestratorService", handlers),)
        )

    process.use(Role.ORCHESTRATOR, tmp_path / "tokens", makes=True, tls=tls)
    server = await rpc.serve({"wire.v1.OrchestratorService": add}, "127.0.0.1", 0)
    process.use(Role.ROLLOUT, tmp_path / "tokens", makes=False, tls=tls)
    first = read_certificates(tls, Role.ROLLOUT)
    async with rpc.channel(f"127.0.0.1:{server.port}", Role.ORCHESTRATOR) as opened:
        stub = OrchestratorServiceStub(opened)
        await rpc.call(stub.RegisterReplica, pb.RegisterReplicaRequest(), timeout_s=20, what="it")
        under_way = asyncio.ensure_future(
            rpc.call(stub.Heartbeat, pb.HeartbeatRequest(), timeout_s=60, what="the heartbeat")
        )
        await entered.wait()
        renew(tls, hosts=(), days=1)
        second = read_certificates(tls, Role.ROLLOUT)
        await rpc.call(stub.RegisterReplica, pb.RegisterReplicaRequest(), timeout_s=20, what="it")
        assert [bytes(one) for one in seen] == [first.chain, second.chain] and first.chain != second.chain
        assert await served_by(server.port) == (tls / "orchestrator.pem").read_text()
        # A call that began on the old connection ends there.
        held.set()
        await under_way
        # Half a renewal leaves what was there.
        (tls / "rollout-key.pem").write_bytes(first.key)
        await rpc.call(stub.RegisterReplica, pb.RegisterReplicaRequest(), timeout_s=20, what="it")
        assert bytes(seen[-1]) == second.chain
    await server.stop(0)
    process.forget()


async def served_by(port: int) -> str:
    """The certificate that a server shows, as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(shown)
