"""The reward service as a process on a real broker, as the supervisor would start it."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

from headrace.services.reward.settings import RewardSettings
from tests.warm.start import Process, python, start


class RewardProcess:
    """One instance; it can be killed and started again."""

    def __init__(
        self, folder: Path, url: str, reward: dict[str, Any], *, instance: str = "0", lease_s: float = 3
    ) -> None:
        self.folder, self.instance = folder, instance
        self.log = folder / f"reward-{instance}.log"
        settings = RewardSettings.model_validate(
            {
                "run": {"id": "test"},
                "run_dir": str(folder),
                "broker": {"url": url, "lease_s": lease_s},
                "reward": reward,
                "instance": instance,
            }
        )
        self._config = folder / f"reward-{instance}.json"
        self._config.write_text(settings.model_dump_json(serialize_as_any=True))
        self.process: Process | None = None

    def start(self) -> None:
        command = python("headrace.services.reward", "--config", self._config)
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        with self.log.open("ab") as log:
            self.process = start(command, env=env, out=log, err=log)

    @property
    def port(self) -> int:
        """Port of its HTTP server as reported; 0 until then."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return next((int(line["http_port"]) for line in reversed(lines) if line.get("event") == "serving"), 0)

    def wait_until_serving(self, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.port:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, "it did not start: " + self.log.read_text()
            time.sleep(0.02)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
