"""The doors of a live run of all services: what listens, what a stranger gets, and where tokens lie."""

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

from headrace.wire.access.roles import ALLOWED, OPEN, Role
from headrace.wire.http.guard import OPEN_PATHS
from headrace.wire.rpc import channel
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.e2e.episodes import TABLE, played_run
from tests.e2e.harness import TinyRun
from tests.e2e.held import paused, processes
from tests.e2e.planted import TABLES, Planted, plant, telling_judge
from tests.http_tokens import bearer
from tests.otlp import Collector, collector

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SERVICES = ("orchestrator", "trainer", "rollout-0", "reward-0")
"""Those that serve gRPC."""
EVERY = (*SERVICES, "environment-0")
"""Those that serve HTTP."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """What is planted in the run, and what has come out of it."""

    planted: Planted
    spans: Collector
    keys: list[str]
    """Headers of the judge's requests."""
    operator: Path
    """The operator's token."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TinyRun, Attacked]]:
    folder = tmp_path_factory.mktemp("doors")
    planted = plant(folder / "secrets")
    with telling_judge() as (judge, keys), collector() as spans, pytest.MonkeyPatch.context() as patch:
        for name, value in planted.variables.items():
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
            yield made, Attacked(planted, spans, keys, folder / "secrets" / "operator")
        finally:
            made.close()


@pytest.fixture
def run(attacked: tuple[TinyRun, Attacked]) -> TinyRun:
    return attacked[0]


def tokens(run: TinyRun) -> dict[Role, str]:
    return {role: (RunPaths(run.run_dir).tokens / role).read_text() for role in Role}


def addresses(run: TinyRun) -> dict[str, str]:
    """Where each service serves gRPC."""
    found = {name: json.loads(RunPaths(run.run_dir).process(name).read_text())["grpc_socket"] for name in SERVICES}
    return {name: f"unix:{path}" for name, path in found.items()}


def http_port(run: TinyRun, name: str) -> int:
    return int(json.loads(RunPaths(run.run_dir).process(name).read_text())["http_port"])


async def code_of(address: str, method: str, token: str = "", request: bytes = b"") -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with channel(address) as opened:
        try:
            await opened.unary_unary(method)(request, metadata=metadata, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def register(run: TinyRun, incarnation: int, token: str = "") -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    request = pb.RegisterTrainerRequest(run_id="tiny", boot_id="ff", journaled_incarnation=incarnation)
    async with channel(addresses(run)["orchestrator"]) as opened:
        try:
            await OrchestratorServiceStub(opened).RegisterTrainer(request, metadata=metadata, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_every_process_listens_on_this_machine_alone(run: TinyRun) -> None:
    found = []
    for process in processes(run):
        try:
            listening = [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
            found += [(process.name(), one.laddr.ip, one.laddr.port) for one in listening]
        except psutil.NoSuchProcess:
            continue
    assert len(found) >= len(EVERY), found
    assert [one for one in found if one[1] not in LOOPBACK] == []


def test_grpc_is_served_where_no_other_user_can_enter(run: TinyRun) -> None:
    for name, address in addresses(run).items():
        socket = Path(address.removeprefix("unix:"))
        assert socket.is_socket(), (name, address)
        assert socket.parent.stat().st_mode & 0o077 == 0
        settings = json.loads(RunPaths(run.run_dir).settings(name).read_text())
        assert (settings["grpc_port"], settings["grpc_socket"]) == (0, str(socket))
        assert settings["orchestrator_address"] == addresses(run)["orchestrator"]


async def test_a_stranger_is_refused_on_every_method_of_every_port(run: TinyRun) -> None:
    for name, address in addresses(run).items():
        codes = await asyncio.gather(*(code_of(address, method) for method in ALLOWED))
        assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}, (name, dict(zip(ALLOWED, codes, strict=True)))
    assert OPEN.isdisjoint(ALLOWED)


def test_another_client_of_this_machine_neither_reads_nor_stops_the_run(run: TinyRun) -> None:
    url = f"http://127.0.0.1:{http_port(run, 'orchestrator')}"
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        listed = [(path, act) for path, acts in http.get("/openapi.json").json()["paths"].items() for act in acts]
        guarded = [(path, act) for path, act in listed if path not in OPEN_PATHS]
        assert {"/api/status", "/api/events", "/api/actions/stop", "/v1/models"} <= {path for path, _ in guarded}
        for path, act in guarded:
            for headers in ({}, bearer("0" * 64)):
                assert http.request(act, path, json={}, headers={"Origin": url, **headers}).status_code == 401, path
        known = tokens(run)
        body, origin = {"who": "other"}, {"Origin": url}
        for role in set(Role) - {Role.OPERATOR}:
            refused = http.post("/api/actions/stop", json=body, headers=origin | bearer(known[role]))
            assert refused.status_code == 403, role
            reads = http.get("/api/status", headers=bearer(known[role])).status_code
            assert reads == (200 if role is Role.VIEWER else 403), role
        assert "data" in http.get("/v1/models", headers=bearer(known[Role.VIEWER])).json()
    assert not run.status()["operator"]["stopping"]
    run.wait_for_step(run.steps() + 1)


def test_a_web_page_reaches_no_route_of_any_service(run: TinyRun) -> None:
    foreign = {"Host": "evil.example", "Origin": "http://evil.example"}
    for name in EVERY:
        with httpx.Client(base_url=f"http://127.0.0.1:{http_port(run, name)}", trust_env=False, timeout=60) as http:
            listed = [(path, act) for path, acts in http.get("/openapi.json").json()["paths"].items() for act in acts]
            assert len(listed) >= 3, name
            for path, act in listed:
                answer = http.request(act, path, json={}, headers=foreign | bearer(tokens(run)[Role.OPERATOR]))
                assert (answer.status_code != 403) is (path in OPEN_PATHS), (name, path)
                if act == "post":
                    assert http.post(path, content="{}", headers={"Content-Type": "text/plain"}).status_code == 403
    # Nor does another user of this machine retire the replica.
    url = f"http://127.0.0.1:{http_port(run, 'rollout-0')}/drain"
    assert httpx.post(url, json={}, trust_env=False, timeout=60).status_code == 401
    assert run.serving() == ["rollout-0"]


async def test_no_caller_can_take_the_trainers_place(run: TinyRun) -> None:
    known = tokens(run)
    assert await register(run, 2**32 - 2) is grpc.StatusCode.UNAUTHENTICATED
    for role in set(Role) - {Role.TRAINER}:
        assert await register(run, 2**32 - 2, known[role]) is grpc.StatusCode.PERMISSION_DENIED, role
    # The token alone is not enough for a journal of another run.
    assert await register(run, 2**32 - 2, known[Role.TRAINER]) is grpc.StatusCode.INVALID_ARGUMENT
    before = run.steps()
    run.wait_for_step(before + 2)


async def test_damaged_requests_with_a_token_are_refused(run: TinyRun) -> None:
    known = tokens(run)
    for name, address in addresses(run).items():
        for method, roles in ALLOWED.items():
            code = await code_of(address, method, known[min(roles)], b"\xff" * 100)
            assert code is not grpc.StatusCode.OK and code is not grpc.StatusCode.UNAVAILABLE, (name, method, code)
    run.wait_for_step(run.steps() + 1)


def known_secrets(run: TinyRun, attacked: Attacked) -> list[bytes]:
    found = [*attacked.planted.all(), *(token.encode() for token in tokens(run).values())]
    assert len(found) == len(set(found)) == len(Role) + 8 and min(map(len, found)) >= 40
    return found


def test_no_process_shows_a_secret(attacked: tuple[TinyRun, Attacked]) -> None:
    run, what = attacked
    known, passed_on = known_secrets(run, what), {value.encode() for value in what.planted.variables.values()}
    seen = 0
    for process in processes(run):
        text = read(Path(f"/proc/{process.pid}/cmdline"))
        seen += bool(text)
        assert not any(secret in text for secret in known), process.pid
        # Variables of the user's are the environment of what the user starts, and no other user reads it.
        text = read(Path(f"/proc/{process.pid}/environ"))
        assert not any(secret in text for secret in known if secret not in passed_on), process.pid
    assert seen > 5


def test_metrics_and_traces_show_no_secret(attacked: tuple[TinyRun, Attacked]) -> None:
    run, what = attacked
    known = known_secrets(run, what)
    for name in EVERY:
        port = http_port(run, name)
        for path in ("metrics", "readyz", "openapi.json"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
                text = answer.read()
            assert len(text) > 10 and not any(secret in text for secret in known), (name, path)
    run.wait_until(lambda: len(what.spans.spans) > 50, "traces")
    assert not any(secret in repr(what.spans.spans).encode() for secret in known)
    # They did arrive where they belong.
    assert what.spans.headers[0]["x-api-key"] == what.planted.files["otlp"]
    assert what.keys[0] == f"Bearer {what.planted.files['judge']}"


def test_a_run_that_was_attacked_and_lost_its_broker_ends_in_order(attacked: tuple[TinyRun, Attacked]) -> None:
    run, what = attacked
    run.kill("broker")
    run.wait_for_step(run.steps() + 2)
    paused(run, what.operator)
    assert run.stop() == 130
    run.check()


def test_no_file_of_the_run_holds_a_secret(attacked: tuple[TinyRun, Attacked]) -> None:
    run, what = attacked
    known, own = known_secrets(run, what), RunPaths(run.run_dir).tokens
    said_by_command = run.folder / "stderr.log"
    files = [path for path in run.run_dir.rglob("*") if path.is_file() and own not in path.parents]
    assert len(files) > 20 and any("judge" in path.read_text() for path in run.run_dir.glob("config/*"))
    texts = {path: content(path) for path in (*files, said_by_command)}
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
