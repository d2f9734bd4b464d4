"""A run of all services over mutual TLS: strangers are refused, and all secrets are replaced while it goes on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from headrace.wire.access.certificates import name_of
from headrace.wire.access.roles import ALLOWED, OPEN, Role
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.authority import certificates
from tests.e2e.episodes import played_run
from tests.e2e.harness import TinyRun
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SERVED = {
    "orchestrator": Role.ORCHESTRATOR,
    "trainer": Role.TRAINER,
    "rollout-0": Role.ROLLOUT,
    "reward-0": Role.REWARD,
}
"""Processes that serve gRPC -> the role that their certificate names."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "certs")


@pytest.fixture(scope="module")
def run(tls: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    made = played_run(tmp_path_factory.mktemp("run") / "tiny", steps=400, staleness=1, deterministic=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_TLS", str(tls))
        made.start("--eval.every", "1000")
    try:
        made.wait_for_step(2)
        yield made
    finally:
        made.close()


def processes(run: TinyRun) -> dict[str, dict[str, int]]:
    return {name: json.loads(RunPaths(run.run_dir).process(name).read_text()) for name in SERVED}


def token(run: TinyRun, role: Role) -> str:
    return (RunPaths(run.run_dir).tokens / role).read_text()


def secure(port: int, tls: Path, role: Role, serves: Role) -> grpc.aio.Channel:
    files = [(tls / name).read_bytes() for name in ("ca.pem", f"{role}-key.pem", f"{role}.pem")]
    options = (("grpc.ssl_target_name_override", name_of(serves)),)
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(*files), options=options)


async def code_of(opened: grpc.aio.Channel, method: str, given: str) -> grpc.StatusCode:
    try:
        await opened.unary_unary(method)(b"", metadata=(("authorization", f"Bearer {given}"),), timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def watch(run: TinyRun, tls: Path, given: str, role: Role = Role.ENVIRONMENT) -> list[str]:
    """Ids of the replicas, as the orchestrator lists them to a caller of a role with a token."""
    port = processes(run)["orchestrator"]["grpc_port"]
    async with secure(port, tls, role, Role.ORCHESTRATOR) as opened:
        metadata = (("authorization", f"Bearer {given}"),)
        call = OrchestratorServiceStub(opened).WatchReplicas(
            pb.WatchReplicasRequest(run_id="tiny"), metadata=metadata, timeout=20
        )
        return sorted(one.replica_id for one in (await call.read()).replicas)


async def test_a_stranger_and_another_role_are_refused_on_every_method_of_every_port(run: TinyRun, tls: Path) -> None:
    known = token(run, Role.TRAINER)
    for name, found in processes(run).items():
        async with grpc.aio.insecure_channel(f"127.0.0.1:{found['grpc_port']}") as opened:
            codes = await asyncio.gather(*(code_of(opened, method, known) for method in (*ALLOWED, *OPEN)))
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE}, name
        async with secure(found["grpc_port"], tls, Role.ROLLOUT, SERVED[name]) as opened:
            own = [method for method in ALLOWED if f"wire.v1.{SERVED[name].title()}Service/" in method]
            codes = await asyncio.gather(*(code_of(opened, method, known) for method in own))
        assert own and set(codes) == {grpc.StatusCode.PERMISSION_DENIED}, (name, dict(zip(own, codes, strict=True)))
    assert await watch(run, tls, token(run, Role.ENVIRONMENT)) == ["rollout-0"]


def test_tokens_and_certificates_are_replaced_while_the_run_goes_on(run: TinyRun, tls: Path) -> None:
    before, old = processes(run), token(run, Role.ENVIRONMENT)
    shown = {role: (tls / f"{role}.pem").read_bytes() for role in Role}
    refused = lines(run, '"rpc_refused"')
    assert "no longer accepted" in said("certs", "rotate", run.run_dir, "--tls", tls, "--lease-s", "6")
    new = token(run, Role.ENVIRONMENT)
    assert new != old and all((tls / f"{role}.pem").read_bytes() != shown[role] for role in Role)
    run.wait_for_step(run.steps() + 3)
    assert asyncio.run(watch(run, tls, new)) == ["rollout-0"]
    assert lines(run, '"rpc_refused"') == refused  # Each token was accepted while it was used.
    run.wait_until(lambda: refuses(run, tls, old), "the old token to be refused")
    assert processes(run) == before  # No process was restarted.
    # The reward service is called by nothing here: it reads its certificates at the next handshake.
    for name in ("orchestrator", "trainer", "rollout-0", "environment-0"):
        text = RunPaths(run.run_dir).log(name).read_text()
        taken = [line for line in text.splitlines() if '"access_reread"' in line]
        assert {what for what in ("tokens", "certificates") if any(what in line for line in taken)} == {
            "tokens", "certificates"
        }, (name, taken)  # fmt: skip


def refuses(run: TinyRun, tls: Path, given: str) -> bool:
    try:
        asyncio.run(watch(run, tls, given))
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNAUTHENTICATED
    return False


def lines(run: TinyRun, word: str) -> list[str]:
    """Lines of the services' logs with a word."""
    logs = sorted(RunPaths(run.run_dir).logs.iterdir())
    return [line for path in logs for line in path.read_text().splitlines() if word in line]


def test_what_was_trained_over_it_is_whole(run: TinyRun) -> None:
    run.stop()
    assert result("check", run.run_dir)["ok"]
