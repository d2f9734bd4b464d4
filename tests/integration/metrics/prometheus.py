"""The real Prometheus for tests; they skip aloud where it is not installed."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.metrics.expressions import DEPLOY, RULES
from tests.ports import free_port

_HOW = "{0} is not installed: `apt-get install --no-install-recommends prometheus` brings it"
_READY_S = 60.0


def program(name: str) -> str:
    """Its path, or the test skips; where HEADRACE_REQUIRE_PROMETHEUS=1 it fails."""
    found = shutil.which(name)
    if found is None:
        assert os.environ.get("HEADRACE_REQUIRE_PROMETHEUS") != "1", _HOW.format(name)
        pytest.skip(_HOW.format(name))
    return found


def promtool(*arguments: str, stdin: str = "") -> str:
    """Runs it; fails with what it said unless it is content. Returns what it said."""
    done = subprocess.run(
        [program("promtool"), *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of an answer of its API; raises AssertionError with its error."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def query(self, expr: str) -> list[dict[str, Any]]:
        """What an expression returns now."""
        result = self.ask("query", query=expr)
        found: list[dict[str, Any]] = result["result"]
        return found if result["resultType"] == "vector" else [{"value": found}]


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, list[str]]) -> Iterator[Prometheus]:
    """Scrapes service -> addresses every second, under the rules of `deploy/`; its data is in `folder`.

    An alert fires a second after its condition has come true for each minute that the rules ask for.
    """
    binary = program("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [_hurried(path, folder) for path in RULES]
    static = [{"targets": addresses, "labels": {"service": service}} for service, addresses in targets.items()]
    config["scrape_configs"] = [{"job_name": "headrace", "static_configs": static}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        running = Prometheus(f"http://{address}")
        _await_ready(address, process, folder / "prometheus.log")
        yield running
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _hurried(path: Path, folder: Path) -> str:
    """A copy of the rules whose alerts wait for seconds in place of minutes."""
    copy = folder / path.name
    copy.write_text(re.sub(r"( for: \d+)m$", r"\1s", path.read_text(), flags=re.MULTILINE))
    return str(copy)


def _await_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=2):
                return
        except OSError:
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.1)
