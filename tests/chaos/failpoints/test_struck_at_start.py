"""A service that starts before its run has tokens dies while it makes them; its next life makes all of them."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, digest_of
from headrace.wire.failpoints import VARIABLE
from headrace.wire.rundir.layout import RunPaths
from tests.chaos.failpoints.expected import AT_START, WORKERS
from tests.e2e.apart import Apart
from tests.e2e.episodes import played_run
from tests.ports import free_port
from tests.valkey import Valkey
from tests.variants import keep

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DEADLINE_S = 120.0


@pytest.mark.parametrize("service", keep({"reward"}, WORKERS))
def test_a_service_that_dies_while_it_makes_tokens_leaves_all_or_none_of_them(
    valkey: Valkey, tmp_path: Path, service: str
) -> None:
    points, port = tmp_path / "failpoints", free_port()
    for kind in ("armed", "reached", "struck"):
        (points / kind).mkdir(parents=True)
    apart = Apart(played_run(tmp_path / "tiny"), tmp_path, plays=True)
    apart.prepare_for(valkey.url, orchestrator=f"127.0.0.1:{port}", port=port)
    tokens = RunPaths(apart.run.run_dir).tokens
    shutil.rmtree(tokens)
    before, behind = (f"{service}.{point}" for point in AT_START)
    try:
        for name in (before, behind):
            (points / "armed" / name).write_text("0")
            apart.spawn(service, {VARIABLE: str(points)})
            assert apart.processes[service].wait(DEADLINE_S) == -signal.SIGKILL, apart.logs()
            assert (points / "struck" / name).exists()
            assert tokens.exists() == (name == behind), "none of them, or all"
        made = {role: (tokens / role).read_text() for role in Role}
        # Its next life serves with those that are there.
        apart.spawn(service, {VARIABLE: str(points)})
        end = time.monotonic() + DEADLINE_S
        while '"serving"' not in apart.log(service).read_text():
            assert apart.processes[service].poll() is None and time.monotonic() < end, apart.logs()
            time.sleep(0.1)
    finally:
        apart.close()
    assert {role: (tokens / role).read_text() for role in Role} == made
    accepted = json.loads((tokens / ACCEPTED).read_text())
    assert accepted == {role: [digest_of(token)] for role, token in made.items()}
