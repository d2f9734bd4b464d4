"""A run of all services with tokens and over mutual TLS: strangers are refused, and no secret comes out."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from headrace.wire.access.certificates import name_of
from headrace.wire.access.roles import ALLOWED, Role
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.authority import certificates
from tests.e2e.episodes import TABLE, played_run
from tests.e2e.harness import TinyRun
from tests.e2e.held import processes
from tests.e2e.planted import TABLES, Planted, plant, telling_judge
from tests.http_tokens import bearer
from tests.otlp import Collector, collector
from tests.verbs import said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SERVED = {
    "orchestrator": Role.ORCHESTRATOR,
    "trainer": Role.TRAINER,
    "rollout-0": Role.ROLLOUT,
    "reward-0": Role.REWARD,
}
"""Processes that serve gRPC -> the role that their certificate names."""
EVERY = (*SERVED, "environment-0")
"""Those that serve HTTP."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """The run, what is planted in it, and what has come out of it."""

    run: TinyRun
    tls: Path
    planted: Planted
    spans: Collector
    keys: list[str]
    """Headers of the judge's requests."""

    def ports(self) -> dict[str, dict[str, int]]:
        return {name: json.loads(RunPaths(self.run.run_dir).process(name).read_text()) for name in EVERY}

    def token(self, role: Role) -> str:
        return (RunPaths(self.run.run_dir).tokens / role).read_text()

    def secrets(self) -> list[bytes]:
        found = [*self.planted.all(), *(self.token(role).encode() for role in Role)]
        assert len(found) == len(set(found)) == len(Role) + 8 and min(map(len, found)) >= 40
        return found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("doors")
    planted, tls = plant(folder / "secrets"), certificates(folder / "certs")
    with telling_judge() as (judge, keys), collector() as spans, pytest.MonkeyPatch.context() as patch:
        for name, value in {**planted.variables, "HEADRACE_TLS": str(tls)}.items():
            patch.setenv(name, value)
        tables = TABLES.format(judge=judge, folder=folder / "secrets", collector=spans.url)
        table = TABLE + 'variables = ["SEARCH_API_KEY"]\n' + tables
        made = played_run(folder / "tiny", steps=4000, staleness=1, deterministic=False, table=table)
        made.start(
            *("--eval.every", "10000", "--orchestrator.operator_token_file", str(folder / "secrets" / "operator")),
            *("--reward.allow_hosts", json.dumps([judge.removeprefix("http://")])),
        )
        try:
            made.wait_for_step(2)
            yield Attacked(made, tls, planted, spans, keys)
        finally:
            made.close()


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


async def watch(what: Attacked, given: str) -> list[str]:
    """Ids of the replicas, as the orchestrator lists them to an environment service with a token."""
    port = what.ports()["orchestrator"]["grpc_port"]
    async with secure(port, what.tls, Role.ENVIRONMENT, Role.ORCHESTRATOR) as opened:
        metadata = (("authorization", f"Bearer {given}"),)
        call = OrchestratorServiceStub(opened).WatchReplicas(
            pb.WatchReplicasRequest(run_id="tiny"), metadata=metadata, timeout=20
        )
        return sorted(one.replica_id for one in (await call.read()).replicas)


def test_every_process_listens_on_this_machine_alone(attacked: Attacked) -> None:
    found = []
    for process in processes(attacked.run):
        try:
            listening = [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
            found += [(process.name(), one.laddr.ip, one.laddr.port) for one in listening]
        except psutil.NoSuchProcess:
            continue
    assert len(found) >= len(EVERY), found
    assert [one for one in found if one[1] not in LOOPBACK] == []


async def test_every_method_of_every_port_rejects_unknown_callers_and_other_roles(attacked: Attacked) -> None:
    known = attacked.token(Role.TRAINER)
    for name, role in SERVED.items():
        port = attacked.ports()[name]["grpc_port"]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
            codes = await asyncio.gather(*(code_of(opened, method, known) for method in ALLOWED))
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE}, name
        own = [method for method in ALLOWED if f"wire.v1.{role.title()}Service/" in method]
        for given, wanted in ((known, grpc.StatusCode.PERMISSION_DENIED), ("", grpc.StatusCode.UNAUTHENTICATED)):
            async with secure(port, attacked.tls, Role.ROLLOUT, role) as opened:
                codes = await asyncio.gather(*(code_of(opened, method, given) for method in own))
            assert own and set(codes) == {wanted}, (name, dict(zip(own, codes, strict=True)))
    assert await watch(attacked, attacked.token(Role.ENVIRONMENT)) == ["rollout-0"]


def test_a_local_client_without_the_right_token_can_neither_read_nor_stop_the_run(attacked: Attacked) -> None:
    url = f"http://127.0.0.1:{attacked.ports()['orchestrator']['http_port']}"
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        for headers in ({}, bearer("0" * 64)):
            assert http.get("/api/status", headers=headers).status_code == 401
        for role in set(Role) - {Role.OPERATOR}:
            refused = http.post("/api/actions/stop", json={"who": "other"}, headers=bearer(attacked.token(role)))
            assert refused.status_code == 403, role
            reads = http.get("/api/status", headers=bearer(attacked.token(role))).status_code
            assert reads == (200 if role is Role.VIEWER else 403), role
    assert not attacked.run.status()["operator"]["stopping"]
    # Nor does another user of this machine retire the replica.
    drain = f"http://127.0.0.1:{attacked.ports()['rollout-0']['http_port']}/drain"
    assert httpx.post(drain, json={}, trust_env=False, timeout=60).status_code == 401
    assert attacked.run.serving() == ["rollout-0"]


def test_no_process_shows_a_secret(attacked: Attacked) -> None:
    known, passed_on = attacked.secrets(), {value.encode() for value in attacked.planted.variables.values()}
    seen = 0
    for process in processes(attacked.run):
        text = read(Path(f"/proc/{process.pid}/cmdline"))
        seen += bool(text)
        assert not any(secret in text for secret in known), process.pid
        # Variables of the user's are the environment of what the user starts, and no other user reads it.
        text = read(Path(f"/proc/{process.pid}/environ"))
        assert not any(secret in text for secret in known if secret not in passed_on), process.pid
    assert seen > 5


def test_metrics_and_traces_show_no_secret(attacked: Attacked) -> None:
    known = attacked.secrets()
    for name, process in attacked.ports().items():
        for path in ("metrics", "readyz", "openapi.json"):
            with urllib.request.urlopen(f"http://127.0.0.1:{process['http_port']}/{path}", timeout=60) as answer:
                text = answer.read()
            assert len(text) > 10 and not any(secret in text for secret in known), (name, path)
    attacked.run.wait_until(lambda: len(attacked.spans.spans) > 50, "traces")
    assert not any(secret in repr(attacked.spans.spans).encode() for secret in known)
    # They did arrive where they belong.
    assert attacked.spans.headers[0]["x-api-key"] == attacked.planted.files["otlp"]
    assert attacked.keys[0] == f"Bearer {attacked.planted.files['judge']}"


def test_tokens_and_certificates_are_replaced_while_the_run_goes_on(attacked: Attacked) -> None:
    run, tls = attacked.run, attacked.tls
    before, old = attacked.ports(), attacked.token(Role.ENVIRONMENT)
    shown = {role: (tls / f"{role}.pem").read_bytes() for role in Role}
    refused = lines(run, '"rpc_refused"')
    assert "no longer accepted" in said("certs", "rotate", run.run_dir, "--tls", tls, "--lease-s", "6")
    new = attacked.token(Role.ENVIRONMENT)
    assert new != old and all((tls / f"{role}.pem").read_bytes() != shown[role] for role in Role)
    run.wait_for_step(run.steps() + 3)
    assert asyncio.run(watch(attacked, new)) == ["rollout-0"]
    assert lines(run, '"rpc_refused"') == refused  # Each token was accepted while it was used.
    run.wait_until(lambda: refuses(attacked, old), "the old token to be refused")
    assert attacked.ports() == before  # No process was restarted.


def refuses(what: Attacked, given: str) -> bool:
    try:
        asyncio.run(watch(what, given))
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNAUTHENTICATED
    return False


def lines(run: TinyRun, word: str) -> list[str]:
    """Lines of the services' logs with a word."""
    logs = sorted(RunPaths(run.run_dir).logs.iterdir())
    return [line for path in logs for line in path.read_text().splitlines() if word in line]


def test_a_run_trained_over_tls_passes_check_and_leaks_no_secret_to_files(attacked: Attacked) -> None:
    run, known, own = attacked.run, attacked.secrets(), RunPaths(attacked.run.run_dir).tokens
    assert run.stop() == 130
    run.check()
    files = [path for path in run.run_dir.rglob("*") if path.is_file() and own not in path.parents]
    assert len(files) > 20 and any("judge" in path.read_text() for path in run.run_dir.glob("config/*"))
    texts = {path: content(path) for path in (*files, run.folder / "stderr.log")}
    assert [path for path, text in texts.items() if any(secret in text for secret in known)] == []
    # The judge did say its key, and what it said did come here.
    assert any(b"I do not like Bearer ***" in text for text in texts.values())
    assert {path.stat().st_mode & 0o077 for path in own.iterdir()} == {0}


def content(path: Path) -> bytes:
    """What the file holds, without its compression."""
    return repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else read(path)


def read(path: Path) -> bytes:
    """The content; none where the process of a file under /proc has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
