"""The doors of a live run of all services: what listens, what a stranger gets, and where tokens lie."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from headrace.wire.access.roles import ALLOWED, OPEN, Role
from headrace.wire.rpc import channel
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from tests.e2e.episodes import played_run
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SERVICES = ("orchestrator", "trainer", "rollout-0", "reward-0")
"""Those that serve gRPC."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    made = played_run(tmp_path_factory.mktemp("doors") / "tiny", steps=400, staleness=1, deterministic=False)
    made.start("--eval.every", "1000")
    try:
        made.wait_for_step(2)
        yield made
    finally:
        made.close()


def processes(run: TinyRun) -> list[psutil.Process]:
    supervisor = psutil.Process(json.loads(RunPaths(run.run_dir).supervisor.read_text())["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def tokens(run: TinyRun) -> dict[Role, str]:
    return {role: (RunPaths(run.run_dir).tokens / role).read_text() for role in Role}


def ports(run: TinyRun) -> dict[str, int]:
    return {name: json.loads(RunPaths(run.run_dir).process(name).read_text())["grpc_port"] for name in SERVICES}


async def code_of(port: int, method: str, token: str = "") -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with channel(f"127.0.0.1:{port}") as opened:
        try:
            await opened.unary_unary(method)(b"", metadata=metadata, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def register(run: TinyRun, incarnation: int, token: str = "") -> grpc.StatusCode:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    request = pb.RegisterTrainerRequest(run_id="tiny", boot_id="ff", journaled_incarnation=incarnation)
    async with channel(f"127.0.0.1:{ports(run)['orchestrator']}") as opened:
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
    assert len(found) > 8, found
    assert [one for one in found if one[1] not in LOOPBACK] == []


async def test_a_stranger_is_refused_on_every_method_of_every_port(run: TinyRun) -> None:
    for name, port in ports(run).items():
        codes = await asyncio.gather(*(code_of(port, method) for method in ALLOWED))
        assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}, (name, dict(zip(ALLOWED, codes, strict=True)))
    assert OPEN.isdisjoint(ALLOWED)


async def test_no_caller_can_take_the_trainers_place(run: TinyRun) -> None:
    known = tokens(run)
    assert await register(run, 2**32 - 2) is grpc.StatusCode.UNAUTHENTICATED
    for role in set(Role) - {Role.TRAINER}:
        assert await register(run, 2**32 - 2, known[role]) is grpc.StatusCode.PERMISSION_DENIED, role
    # The token alone is not enough for a journal of another run.
    assert await register(run, 2**32 - 2, known[Role.TRAINER]) is grpc.StatusCode.INVALID_ARGUMENT
    before = run.steps()
    run.wait_for_step(before + 2)


def test_a_token_is_in_its_file_alone(run: TinyRun) -> None:
    known = [token.encode() for token in tokens(run).values()]
    own = RunPaths(run.run_dir).tokens
    files = [path for path in run.run_dir.rglob("*") if path.is_file() and own not in path.parents]
    assert len(files) > 20
    assert [path for path in files if any(token in path.read_bytes() for token in known)] == []
    seen = 0
    for process in processes(run):
        for name in ("cmdline", "environ"):
            text = read(Path(f"/proc/{process.pid}/{name}"))
            seen += bool(text)
            assert not any(token in text for token in known), (process.pid, name)
    assert seen > 10


def read(path: Path) -> bytes:
    """The content; none where the process of a file under /proc has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
