"""`headrace annotate RUN_DIR`: the page of a run that has ended, as a process of its own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from headrace.supervisor.once import child_environment
from headrace.wire.access.tokens import remove_tokens
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths
from tests.annotation import write_run
from tests.http_tokens import bearer
from tests.integration.orchestrator.served import Served


@contextmanager
def annotating(run_dir: Path, *arguments: str, verb: str = "annotate") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", verb, str(run_dir), *arguments],
        env=child_environment(inherited(), threads=1),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_annotate_prints_its_url_keeps_votes_and_ends_with_ctrl_c(tmp_path: Path, served: Served) -> None:
    write_run(tmp_path)
    remove_tokens(RunPaths(tmp_path).tokens)
    with annotating(tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line + (process.stderr.read() if process.stderr else "")
        token = line.partition("#token=")[2].split()[0]
        assert not RunPaths(tmp_path).tokens.exists(), "a run whose tokens are elsewhere gets none in its directory"
        with httpx.Client(base_url=found[0], trust_env=False) as http:
            asked = http.get("/api/annotation/next", params={"annotator": "ann"})
            assert asked.status_code == 401
            http.headers.update(bearer(token))
            pair = http.get("/api/annotation/next", params={"annotator": "ann"}).json()["pair"]["id"]
            body = {"annotator": "ann", "pair": pair, "choice": "left"}
            vote = http.post("/api/annotation/votes", json=body, headers={"Origin": found[0]})
            assert vote.json()["judged"] == 1
            assert http.get("/api/status").status_code == httpx.codes.FORBIDDEN, "the link is the annotators'"
        with annotating(tmp_path) as second:
            _, said = second.communicate(timeout=60)
            assert second.returncode == 2 and "already served" in said
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and "1 ranked pairs in" in out
    with (tmp_path / "annotations" / "pairs.jsonl").open() as file:
        assert json.loads(file.readline())["pair"] == pair
