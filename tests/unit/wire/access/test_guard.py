"""Every gRPC method of every service: open to the roles that it names, refused to all others and to strangers."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from prometheus_client import REGISTRY

from headrace.wire.access import process, rate
from headrace.wire.access.rate import CallRate
from headrace.wire.access.roles import ALLOWED, Role
from headrace.wire.errors import ConfigError
from headrace.wire.peers import rpc
from headrace.wire.v1 import (
    orchestrator_pb2,
    orchestrator_pb2_grpc,
    reward_pb2,
    reward_pb2_grpc,
    rollout_pb2,
    rollout_pb2_grpc,
    trainer_pb2,
    trainer_pb2_grpc,
)
from headrace.wire.v1 import orchestrator_pb2 as pb

SERVICES = {
    "wire.v1.OrchestratorService": orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server,
    "wire.v1.RewardService": reward_pb2_grpc.add_RewardServiceServicer_to_server,
    "wire.v1.RolloutService": rollout_pb2_grpc.add_RolloutServiceServicer_to_server,
    "wire.v1.TrainerService": trainer_pb2_grpc.add_TrainerServiceServicer_to_server,
}
"""Full name -> function that adds a servicer; the base class of servicers raises in each method that is reached."""
BASES = (
    orchestrator_pb2_grpc.OrchestratorServiceServicer,
    reward_pb2_grpc.RewardServiceServicer,
    rollout_pb2_grpc.RolloutServiceServicer,
    trainer_pb2_grpc.TrainerServiceServicer,
)
METHODS = {
    f"/{service.full_name}/{method.name}"
    for file in (orchestrator_pb2, reward_pb2, rollout_pb2, trainer_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
HEALTH = "/grpc.health.v1.Health/Check"
REACHED = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED)
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    process.use(Role.TRAINER, tmp_path / "tokens", makes=True)
    yield tmp_path / "tokens"
    process.forget()


@pytest.fixture
async def port(folder: Path) -> AsyncIterator[int]:
    servers = {
        name: (lambda made, add=add, base=base: add(base(), made))
        for (name, add), base in zip(SERVICES.items(), BASES, strict=True)
    }
    server = await rpc.serve(servers, "127.0.0.1", 0)
    yield server.port
    await server.stop(0)


async def code_of(port: int, method: str, *metadata: tuple[str, str], body: bytes = b"") -> grpc.StatusCode:
    """Status of a call; of a stream's first answer."""
    async with rpc.channel(f"127.0.0.1:{port}") as opened:
        try:
            if method.rpartition("/")[2] in ("WatchReplicas", "Chat"):
                await opened.unary_stream(method)(body, metadata=metadata, timeout=20).read()
            else:
                await opened.unary_unary(method)(body, metadata=metadata, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def bearer(folder: Path, role: Role) -> tuple[str, str]:
    return ("authorization", f"Bearer {(folder / role).read_text()}")


def test_every_method_names_its_roles() -> None:
    listed = {method for method in ALLOWED if not method.startswith("/grpc.")}
    assert listed == METHODS and len(METHODS) > 20
    assert not [method for method, roles in ALLOWED.items() if not roles]
    assert not [method for method in METHODS if Role.ANNOTATOR in ALLOWED[method]]


async def test_every_method_rejects_callers_without_a_valid_token(port: int, folder: Path) -> None:
    token = (folder / Role.TRAINER).read_text()
    tries = [(), (("authorization", "Bearer "),), (("authorization", f"Bearer {token[:-1]}x"),)]
    tries += [(("authorization", f"Basic {token}"),), (("authorization", "Bearer x"), bearer(folder, Role.TRAINER))]
    for method in sorted(METHODS):
        codes = [await code_of(port, method, *metadata) for metadata in tries]
        assert set(codes) == {UNAUTHENTICATED}, (method, codes)


async def test_a_role_can_call_only_the_methods_that_name_it(port: int, folder: Path) -> None:
    for method in sorted(METHODS):
        codes = {role: await code_of(port, method, bearer(folder, role)) for role in Role}
        allowed = {role for role, code in codes.items() if code in REACHED}
        assert allowed == ALLOWED[method], (method, codes)
        assert {code for role, code in codes.items() if role not in allowed} == {DENIED}


async def test_a_method_that_is_not_in_the_list_is_refused_to_all(port: int, folder: Path) -> None:
    assert await code_of(port, "/wire.v1.TrainerService/New", bearer(folder, Role.TRAINER)) is DENIED
    assert await code_of(port, "/wire.v1.TrainerService/New") is UNAUTHENTICATED


async def test_a_flood_of_a_role_is_refused_and_holds_up_no_other(
    port: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate, "BURST", 5.0)
    monkeypatch.setattr(rate, "MOST_PER_S", 1e-6)
    method, operator = "/wire.v1.RolloutService/GetReplica", bearer(folder, Role.OPERATOR)
    labels = {"reason": "resource_exhausted"}
    before = REGISTRY.get_sample_value("headrace_rpc_refused_total", labels) or 0
    codes = [await code_of(port, method, operator) for _ in range(8)]
    assert set(codes[:5]) <= set(REACHED) and set(codes[5:]) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert REGISTRY.get_sample_value("headrace_rpc_refused_total", labels) == before + 3
    assert await code_of(port, method, bearer(folder, Role.VIEWER)) in REACHED
    sample = "/wire.v1.RolloutService/Sample"
    assert {await code_of(port, sample, bearer(folder, Role.ENVIRONMENT)) for _ in range(8)} <= set(REACHED)


def test_a_bucket_fills_again_and_no_further_than_its_size() -> None:
    now = 0.0
    calls = CallRate(lambda: now)
    role, method = frozenset({Role.ROLLOUT}), "/wire.v1.OrchestratorService/Heartbeat"
    assert sum(calls.admits(role, method) for _ in range(5_000)) == rate.BURST
    now = 0.5
    assert sum(calls.admits(role, method) for _ in range(5_000)) == rate.MOST_PER_S / 2
    now = 1_000.0
    assert sum(calls.admits(role, method) for _ in range(5_000)) == rate.BURST
    assert rate.UNBOUNDED <= METHODS


async def test_health_and_reflection_are_for_every_role(port: int, folder: Path) -> None:
    (reflection,) = [method for method in ALLOWED if "reflection" in method]
    assert await code_of(port, reflection) is UNAUTHENTICATED
    assert await code_of(port, HEALTH) is UNAUTHENTICATED
    assert {await code_of(port, HEALTH, bearer(folder, role)) for role in Role} == {grpc.StatusCode.OK}


async def test_a_request_is_read_after_its_token_and_no_further_than_the_server_takes(folder: Path) -> None:
    add = SERVICES["wire.v1.TrainerService"]
    server = await rpc.serve({"": lambda made: add(BASES[3](), made)}, "127.0.0.1", 0, most_bytes=1000)
    large, token = bytes(10_000), bearer(folder, Role.ORCHESTRATOR)
    for method in ("/wire.v1.TrainerService/GetFates", HEALTH, "/none/Such"):
        assert await code_of(server.port, method, body=large) is UNAUTHENTICATED, "it was read"
    assert await code_of(server.port, HEALTH, token, body=large) is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop(0)


async def test_our_calls_carry_the_token_and_a_foreign_run_is_named(port: int, folder: Path, tmp_path: Path) -> None:
    async def publish() -> None:
        async with rpc.channel(f"127.0.0.1:{port}") as opened:
            ask = orchestrator_pb2_grpc.OrchestratorServiceStub(opened).Publish
            await rpc.call(ask, pb.PublishRequest(), timeout_s=20, what="the orchestrator")

    with pytest.raises(RuntimeError, match="INTERNAL: NotImplementedError"):
        await publish()
    labels = {"reason": "unauthenticated"}
    before = REGISTRY.get_sample_value("headrace_rpc_refused_total", labels) or 0
    process.use(Role.TRAINER, tmp_path / "foreign", makes=True)
    with pytest.raises(ConfigError, match=r"the orchestrator: .*no token that is accepted here.*RUN/run/tokens"):
        await publish()
    assert REGISTRY.get_sample_value("headrace_rpc_refused_total", labels) == before + 1


async def test_without_tokens_nothing_is_served_beyond_this_machine() -> None:
    process.forget()
    with pytest.raises(ConfigError, match=r"cannot listen on 0.0.0.0:0 without tokens"):
        await rpc.serve({}, "0.0.0.0", 0)
