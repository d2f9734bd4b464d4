"""An SGLang server that dies in a transfer: the others serve, its service ends, the next returns."""

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from headrace.services.orchestrator.settings import PublicationTable
from tests.chaos.publication import strike
from tests.chaos.publication.stage import Stage, open_stage
from tests.chaos.publication.strike import Moment
from tests.sglang import group_of, sglang_venv
from tests.valkey import Valkey

pytestmark = [pytest.mark.sglang, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
TIMES = PublicationTable(prepare_s=5, transfer_s=6, verify_s=10, commit_s=5)
START_S = 170
SERVING_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    server = {"venv": sglang_venv(), "device": "cpu"}
    table = {"engine": "sglang", "sglang": server, "engine_timeout_s": 8.0}
    strike.install(patch)
    folder = tmp_path_factory.mktemp("stage")
    valkey = Valkey(folder / "valkey")
    valkey.start()
    try:
        async with open_stage(folder / "run", valkey.url, times=TIMES, **table) as opened:
            yield opened
    finally:
        valkey.stop()


def server_of(service: int) -> list[int]:
    """The processes of the SGLang server that the service with this id has launched."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == service and (found := group_of(int(entry.name))):
                return found
    raise AssertionError("the service has no server")


async def test_a_killed_server_ends_its_service_which_returns_from_disk(
    stage: Stage,
) -> None:
    victim, other = reversed(await stage.cast(2, START_S))
    await stage.publish()
    server = server_of(stage.replicas.pid(victim))

    def strike_server() -> None:
        for process in server:
            os.kill(process, signal.SIGKILL)

    moment = Moment(victim, strike_server)
    new = await stage.publish()
    assert moment.over
    await stage.replicas.serving(new, [other], SERVING_S)
    assert stage.outcome(new, other).committed
    assert stage.outcome(new, victim).reason.startswith("transfer: ")
    assert await stage.replicas.end(victim, 30) != 0
    end = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in server):
        assert time.monotonic() < end, "a process of the server outlives its service"
        time.sleep(0.05)

    stage.traffic.flows = False
    stage.replicas.start(victim)
    newer = await stage.publish()
    await stage.replicas.serving(newer, [other], SERVING_S)
    await stage.replicas.serving(newer, [victim], START_S)
    assert stage.replicas.routes(victim, newer) == ["disk"]
    newest = await stage.publish()
    await stage.replicas.serving(newest, [victim, other], SERVING_S)
    assert stage.replicas.routes(victim, newest) == ["gloo"]
    stage.traffic.check()
    assert stage.traffic.looked_at
