"""SGLang servers that die or stand still in a transfer: the others serve, their service ends, the next returns."""

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
from tests.chaos.publication.strike import PHASES, Moment, Watch
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


def schedulers(processes: list[int]) -> list[int]:
    """Those that hold the weights."""
    found = [each for each in processes if b"scheduler" in Path(f"/proc/{each}/cmdline").read_bytes()]
    assert found
    return found


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)], ids=["killed", "frozen"]
)
async def test_the_other_serves_and_the_struck_one_is_ended_by_its_service_and_returns_from_the_disk(
    stage: Stage, blow: signal.Signals, phase: str
) -> None:
    victim, other = reversed(await stage.cast(2, START_S))
    await stage.publish()
    server = server_of(stage.replicas.pid(victim))
    targets = server if blow is signal.SIGKILL else schedulers(server)

    def strike_server() -> None:
        for process in targets:
            os.kill(process, blow)

    middle = phase == "transfer"
    Watch.moment = Moment(phase, stage.current.version + 1, strike_server, middle=middle, at=f"{victim}-")
    new = await stage.publish()
    assert Watch.moment.over
    await stage.replicas.serving(new, [other], SERVING_S)
    assert stage.outcome(new, other).committed
    outcome = stage.outcome(new, victim)
    # The gate of a verified server opens without asking it again: what became of it may be seen only afterwards.
    assert (outcome.committed and phase == "commit") or outcome.reason.startswith(f"{phase}: ")
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
    assert stage.replicas.routes(victim, newer) == ["gloo" if outcome.committed else "disk"]
    newest = await stage.publish()
    await stage.replicas.serving(newest, [victim, other], SERVING_S)
    assert stage.replicas.routes(victim, newest) == ["gloo"]
    stage.traffic.check()
    assert stage.traffic.looked_at
