"""The verbs that look, on a real run: while it lives, and after it has ended."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.inspect.history.check import check_run
from headrace.operate.scale import scale
from headrace.wire.access.roles import Role
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.http_tokens import bearer
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 60
_ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "headrace", *arguments]


class Watched:
    """`headrace watch` on a terminal of its own."""

    def __init__(self, run_dir: Path) -> None:
        master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command("watch", str(run_dir), "--every", "0.5"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},
        )
        os.close(slave)
        self._read = bytearray()
        self._thread = threading.Thread(target=self._drain, args=(master,), daemon=True)
        self._thread.start()

    def _drain(self, master: int) -> None:
        try:
            while data := os.read(master, 65536):
                self._read += data
        except OSError:  # The other end is closed.
            return
        finally:
            os.close(master)

    def text(self) -> str:
        return _ESCAPE.sub(b"", bytes(self._read)).decode(errors="replace")

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while words not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.05)

    def wait(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._thread.join(60)
        return status


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    """Alive at its first use; the tests are in the order in which it lives and ends."""
    tiny = TinyRun(tmp_path_factory.mktemp("looking") / "tiny", steps=STEPS, staleness=1, deterministic=False)
    tiny.start()
    yield tiny
    tiny.close()


@pytest.fixture(scope="module")
def ended(run: TinyRun) -> TinyRun:
    run.finish()
    return run


def until_the_trainer_waits(run_dir: Path) -> Any:
    """The status as soon as it says that no replica takes prompts: the trainer first trains what has come."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        shown = result("status", str(run_dir))
        if any(one["who"] == "trainer" and "no rollout replica" in one["waits_for"] for one in shown["waits"]):
            return shown
        time.sleep(0.2)
    raise AssertionError("the trainer never waited for a replica")


def test_every_inspection_command_works_on_a_live_run(run: TinyRun) -> None:
    run.wait_for_step(2)
    for _ in range(4):  # While steps are taken.
        assert check_run(run.run_dir).problems == ()
    begin = time.time()
    scale("rollout", "0", run.run_dir)  # So it lives for as long as it is looked at, and there is a wait to tell of.
    log, followed = run.folder / "watch.log", run.folder / "followed.log"
    with log.open("w") as file, followed.open("w") as follows:
        lines = subprocess.Popen(command("watch", str(run.run_dir), "--every", "0.5"), stdout=file)
        follower = subprocess.Popen(command("logs", str(run.run_dir), "-f", "-n", "0"), stdout=follows)
    screen = Watched(run.run_dir)
    leaver = Watched(run.run_dir)
    try:
        shown = until_the_trainer_waits(run.run_dir)
        port = shown["services"]["orchestrator"]["http_port"]
        url = f"http://127.0.0.1:{port}"
        waits = {one["who"]: one for one in shown["waits"]}
        assert {"orchestrator", "trainer", "reward-0"} <= set(waits)
        trainer = waits["trainer"]
        assert "no rollout replica" in trainer["waits_for"] and trainer["until"] is None
        assert begin - 1 < trainer["since"] < time.time() + 1  # Rounded to tenths of a second.
        token_file = str(RunPaths(run.run_dir).tokens / Role.VIEWER)
        elsewhere = result("status", "--url", url, "--token-file", token_file)
        assert "give its file with --token-file" in said("status", "--url", url, status=2)
        assert elsewhere["orchestrator"]["max_steps"] == STEPS and "supervisor" not in elsewhere
        # A group counts as issued before it is put on the stream, and its event is written only then.
        newest = max(int(event["group_index"]) for event in read_events(run.run_dir) if event["event"] == "issued")
        story = result("explain", str(newest), str(run.run_dir))
        assert story["life"][0]["what"].startswith(("issued", "served"))
        link = f"{url}/#token={(RunPaths(run.run_dir).tokens / Role.OPERATOR).read_text()}"
        assert link in said("dashboard", str(run.run_dir))
        leaver.wait_for("orchestrator")  # Before that, Python may still be starting.
        leaver.process.send_signal(signal.SIGINT)
        assert leaver.wait() == 0, leaver.text()
        assert run.process is not None and run.process.poll() is None, "watching is no part of the run"
        scale("rollout", "2", run.run_dir)
        assert lines.wait(DEADLINE_S) == 0 and screen.wait() == 0 and follower.wait(60) == 0
    finally:
        for process in (lines, follower, screen.process, leaver.process):
            process.kill()
            process.wait(60)
    begun = (run.folder / "stderr.log").read_text().splitlines()
    starting, address = (
        [number for number, line in enumerate(begun) if line.startswith(words)]
        for words in ("starting: ", f"dashboard: {url}/")
    )
    step = next(number for number, line in enumerate(begun) if line.startswith("step 1/"))
    assert len(address) == 1 and max(starting) < address[0] < step, begun[: step + 1]
    printed = log.read_text().splitlines()
    assert len(printed) > 3 and any("waits for" in line for line in printed), printed
    table = screen.text()
    for part in ("service", "orchestrator", "rollout-1", "credit", f"/{STEPS}"):
        assert part in table, table[-3000:]
    # Of a replica that was added meanwhile, too.
    assert {"trainer", "rollout-1"} <= {line.partition(" | ")[0] for line in followed.read_text().splitlines()}


def test_explain_tells_the_history_of_a_trained_group_and_rollout(ended: TinyRun) -> None:
    # Which groups are trained in which step is not said beforehand: a late one may have been dropped as stale.
    trained = pq.read_table(ended.run_dir / "rollouts" / "step-000050.parquet", columns=["group_id"])
    group = trained.column("group_id")[0].as_py()
    story = result("explain", group, str(ended.run_dir))
    assert story["state"] == "trained" and story["step"] == 50 and len(story["rollouts"]) == 4
    whats = [moment["what"] for moment in story["life"]]
    order = ["issued, to be", "generated", "scored", "put in the batch", f"step {story['step']} is done"]
    found = [next(number for number, what in enumerate(whats) if what.startswith(begin)) for begin in order]
    assert found == sorted(found), whats
    assert any(f"version {story['step']}, which has learned from it" in what for what in whats)
    assert "score length" in said("explain", f"{story['id']}/2", str(ended.run_dir))
    held_out = result("explain", "e0-1", str(ended.run_dir))
    assert held_out["state"] == "evaluated" and held_out["prompt"].endswith("=")


def test_an_ended_run_is_listed_compared_and_drawn(ended: TinyRun, tmp_path: Path) -> None:
    (row,) = result("runs", "list", str(ended.folder))
    assert (row["name"], row["state"], row["steps"]) == ("run", "finished", STEPS)
    both = result("runs", "compare", str(ended.run_dir), str(ended.run_dir))
    assert both["config"] == [] and both["runs"][0]["groups_dropped"] == both["runs"][1]["groups_dropped"]
    assert said("runs", "compare", "--csv", str(ended.run_dir), str(ended.run_dir)).count("\nrun,") == 2
    assert "the configs are the same" in said("runs", "compare", str(ended.run_dir), str(ended.run_dir))
    assert result("config", "diff", str(ended.folder / "run.toml"), str(ended.run_dir))["equal"]
    files = result("plot", str(ended.run_dir), "--out", str(tmp_path / "curves"))["files"]
    assert [Path(file).suffix for file in files] == [".png", ".svg"] and all(Path(file).is_file() for file in files)
    assert said("watch", str(ended.run_dir)).endswith("finished\n")


def test_logs_of_all_services_are_shown_by_time(ended: TinyRun) -> None:
    shown = [line.partition(" | ") for line in said("logs", ended.run_dir, "-n", 100_000).splitlines()]
    assert {name for name, _, _ in shown} == {path.stem for path in RunPaths(ended.run_dir).logs.glob("*.log")}
    times = [line[:26] for _, _, line in shown if re.match(r"2\d{3}-\d\d-\d\dT", line)]
    assert len(times) > 20 and times == sorted(times)
    last = said("logs", ended.run_dir, "rollout", "-n", 2).splitlines()
    assert len(last) == 2 and all(line.startswith("rollout-") for line in last)
    assert "'rolout' is not one of rollout-" in said("logs", ended.run_dir, "rolout", status=2)


def test_the_dashboard_of_an_ended_run_is_served_until_ctrl_c(ended: TinyRun) -> None:
    before = set(ended.run_dir.rglob("*"))
    with subprocess.Popen(command("dashboard", str(ended.run_dir)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#token=(\w+)", process.stdout.readline())
        assert found
        series = f"{found[1]}api/series?names=reward_mean&points=10"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(series, timeout=20)
        with urllib.request.urlopen(urllib.request.Request(series, headers=bearer(found[2])), timeout=20) as answer:
            assert json.loads(answer.read())["last"] == STEPS
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
    assert set(ended.run_dir.rglob("*")) == before, "looking changes nothing"


def test_the_doctor_finds_this_machine_fit_for_the_run(ended: TinyRun) -> None:
    told = result("doctor", str(ended.folder / "run.toml"), "--run-dir", str(ended.folder))
    assert told["ok"] and {row["name"] for row in told["checks"]} >= {"torch", "redis", "sandbox", "model", "data"}


BASH = """
source <(headrace --show-completion bash)
complete_line() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _headrace_completion headrace
    echo "${COMPREPLY[*]}"
}
"""
COMPLETED = {
    ("headrace", "expl"): {"explain"},
    ("headrace", "runs", ""): {"list", "compare"},
    ("headrace", "train", "--dry"): {"--dry-run"},
    ("headrace", "train", "--run.max-st"): {"--run.max-steps", "--run.max-staleness"},
    ("headrace", "train", "run.toml", "--run.seed", "3", "--trainer.learning-r"): {"--trainer.learning-rate"},
}


def test_a_real_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m headrace "$@"\n')
    (tmp_path / "headrace").chmod(0o755)
    script = BASH + "".join(f"complete_line {shlex.join(words)}\n" for words in COMPLETED)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    found = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(COMPLETED, found, strict=True)) == COMPLETED, done.stdout + done.stderr
