"""A run beside the one that is looked at has pipes in the place of files: no request of a viewer hangs over them."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.wire.environment import inherited
from tests.dashboard_run import write_run
from tests.http_tokens import bearer_of, made_for
from tests.waiting import until

ROUTES = ("/metrics", "/api/series?names=loss", "/api/rollouts", "/api/runs", "/api/compare?runs=evil,run")
REQUESTS = 40
"""More than the server has threads."""


def test_viewers_are_answered_and_the_server_ends_at_a_signal(tmp_path: Path) -> None:
    run, evil = write_run(tmp_path / "run", steps=3, rollouts=8), write_run(tmp_path / "evil", steps=3, rollouts=8)
    for path in (evil / "metrics.jsonl", evil / "evals.jsonl", *evil.glob("events/*.jsonl")):
        path.unlink()
        os.mkfifo(path)
    port = pick_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    tokens = made_for(tmp_path, url)
    words = (str(run), "--port", str(port), "--token-file", str(tokens))
    argv = python("headrace.services.orchestrator.dashboard", *words)
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(argv, env=child_environment(inherited(), threads=1), stdout=log, stderr=log)
    try:
        until(lambda: answers(f"{url}/readyz"), "the server")
        with ThreadPoolExecutor(REQUESTS) as pool:
            lists = list(pool.map(lambda _: get(f"{url}/api/runs"), range(REQUESTS)))
        assert {one.status_code for one in lists} == {200}
        states = {row["name"]: row["state"] for row in lists[0].json()}
        assert states == {"run": "finished", "evil": "unreadable"}
        for route in ROUTES:
            assert get(f"{url}{route}").status_code == 200, route
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) in (0, -signal.SIGTERM)
        assert (tmp_path / "log").read_text().count("run_unreadable") == 1
    finally:
        child.kill()
        child.wait(60)


def get(url: str) -> httpx.Response:
    return httpx.get(url, headers=bearer_of(url), timeout=60, trust_env=False)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
