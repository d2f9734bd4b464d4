"""Whole runs of a tiny model, as a user starts them: real processes that tests kill, stop and resume."""

import asyncio
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headrace.demo.arithmetic import CHARACTERS, exercises
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from tests.http_tokens import of_run
from tests.verbs import result, said
from tests.warm.start import Process, python, start

ROOT = Path(__file__).parents[2]
DEADLINE_S = 200

RUN_TOML = """
[run]
id = "tiny"
seed = 5
max_steps = {steps}
max_staleness = {staleness}
[model]
path = "model"
[data]
path = "prompts.jsonl"
eval_path = "held_out.jsonl"
[batch]
groups = 4
group_size = 4
[rollout]
replicas = {replicas}
deterministic = {deterministic}
[rollout.sampling]
max_tokens = 6
top_p = 0.9
[[reward.scorers]]
name = "length"
options = {{ target = 3 }}
[trainer]
learning_rate = 1e-3
checkpoint_every = 3
[eval]
every = 4
prompts = 8
deadline_s = 20
component = "length"
correct_above = -0.5
[broker]
lease_s = 3
[orchestrator]
replica_lease_s = 4
reconcile_s = 5
"""


class TinyRun:
    """One run directory and the commands on it."""

    environment: Mapping[str, str] = MappingProxyType({})
    """Variables beside those of this process."""

    def __init__(
        self, folder: Path, *, steps: int = 8, staleness: int = 0, deterministic: bool = True, replicas: int = 2
    ) -> None:
        """`replicas`: each costs four seconds of a CPU before it serves."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.run_dir = folder / "run"
        shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=32)
        write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
        training, held_out = exercises(seed=1, held_out=16)
        for name, sums in (("prompts.jsonl", training[:50]), ("held_out.jsonl", held_out)):
            rows = [json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in sums]
            (folder / name).write_text("\n".join(rows) + "\n")
        numbers = {"steps": steps, "staleness": staleness, "replicas": replicas}
        text = RUN_TOML.format(**numbers, deterministic=str(deterministic).lower())
        (folder / "run.toml").write_text(text)
        self.process: Process | None = None

    def start(self, *arguments: str, cold: bool = False) -> None:
        """Starts `headrace train` in the background; `cold`: no process of it is forked from one of the tests."""
        command = python("headrace", "train", self.folder / "run.toml", "--json", "--run-dir", self.run_dir, *arguments)
        env = {**os.environ, **self.environment}
        with (self.folder / "stderr.log").open("a") as log, self._stdout.open("w") as out:
            self.process = start(command, out=out, err=log, env=env, cold=cold)

    @property
    def _stdout(self) -> Path:
        return self.folder / "stdout.log"

    def output(self) -> str:
        """What `headrace train` has written to stdout since it was started last."""
        return self._stdout.read_text()

    def steps(self) -> int:
        """Steps in `metrics.jsonl` so far."""
        path = self.run_dir / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]

    def wait_for_step(self, step: int) -> None:
        self.wait_until(lambda: self.steps() >= step, f"step {step}")

    def scale(self, count: int, service: str = "rollout") -> str:
        """`headrace scale SERVICE COUNT`; returns what it said."""
        return said("scale", service, count, self.run_dir)

    def status(self) -> dict[str, Any]:
        """What the orchestrator says of the run; empty while it does not answer."""
        try:
            port = json.loads((self.run_dir / "run" / "orchestrator.json").read_text())["http_port"]
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/status", headers=of_run(self.run_dir))
            with urllib.request.urlopen(asked, timeout=5) as answer:
                shown: dict[str, Any] = json.loads(answer.read())
        except (OSError, ValueError):
            return {}
        return shown

    def serving(self) -> list[str]:
        """Replicas that serve."""
        return [one["id"] for one in self.status().get("replicas", []) if one["state"] == "serving"]

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
        end = time.monotonic() + seconds
        while True:
            # Looked at first: between the condition and this, the run may have come to its end.
            lives = self.process is not None and self.process.poll() is None
            if condition():
                return
            assert lives, f"ended before {what}" + self.logs()
            assert time.monotonic() < end, f"waited {seconds} s for {what}: {self.status()}" + self.logs()
            time.sleep(0.05)

    def pid(self, service: str) -> int:
        return int(self._pid_file(service)["pid"])

    def forked(self, service: str) -> bool:
        """Whether the fork server started it."""
        return bool(self._pid_file(service)["forked"])

    def _pid_file(self, service: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.run_dir / "run" / f"{service}.json").read_text())
        return record

    def kill(self, service: str) -> None:
        """SIGKILLs a service of the run; waits for its successor's pid first if it is just being started again."""
        end = time.monotonic() + 60
        while True:
            try:
                os.kill(self.pid(service), signal.SIGKILL)
                return
            except (OSError, ValueError, KeyError):
                assert time.monotonic() < end, f"{service} has no live process"
                time.sleep(0.05)

    def hold_rollouts_back(self) -> None:
        """Freezes the reward service at a moment when groups lie before it that it has not read."""
        end = time.monotonic() + 60
        reward = self.pid("reward-0")
        while True:
            os.kill(reward, signal.SIGSTOP)
            before = time.monotonic()
            while time.monotonic() < before + 2:
                if self._unread(StreamName.ROLLOUTS):
                    return
                time.sleep(0.05)
            os.kill(reward, signal.SIGCONT)
            assert time.monotonic() < end, f"no group lies before the reward service: {self.status()}"
            time.sleep(0.1)

    def _unread(self, stream: StreamName) -> int:
        url = json.loads((self.run_dir / "run" / "broker.json").read_text())["url"]

        async def look() -> int:
            broker = RedisBroker(url, "tiny")
            try:
                return (await broker.stats(stream)).undelivered
            finally:
                await broker.close()

        return asyncio.run(look())

    def go_on(self, service: str) -> None:
        """After a freeze."""
        os.kill(self.pid(service), signal.SIGCONT)

    def kill_broker_over(self, damage: Callable[[Path], None]) -> None:
        """Damages the embedded broker's folder while it stands still, then SIGKILLs it: it writes nothing more."""
        os.kill(self.pid("broker"), signal.SIGSTOP)
        damage(self.run_dir / "broker")
        self.kill("broker")

    def stop(self) -> int:
        """One Ctrl-C; returns the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def finish(self) -> dict[str, Any]:
        """Waits for the end, while steps are trained, and returns the JSON line; the run must have succeeded."""
        assert self.process is not None
        status, steps = None, -1
        while status is None:
            try:
                status = self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                before, steps = steps, self.steps()
                assert steps > before, f"stands at step {steps} for {DEADLINE_S} s: {self.status()}" + self.logs()
        assert status == 0, self.output() + self.logs()
        line: dict[str, Any] = json.loads(self.output().splitlines()[-1])
        return line

    def close(self) -> None:
        """Ends what is still running: the supervisor's death is that of all its children."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)

    def check(self) -> dict[str, Any]:
        """`headrace check --json`, which must find nothing."""
        try:
            verdict: dict[str, Any] = result("check", self.run_dir)
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from None
        assert verdict["ok"], verdict
        return verdict

    def logs(self) -> str:
        paths = [self.folder / "stderr.log", *sorted(self.run_dir.glob("logs/*.log"))]
        return "".join(f"\n--- {path.name}\n{path.read_text()[-2500:]}" for path in paths if path.exists())
