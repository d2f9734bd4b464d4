"""Large bodies, many at a time: the reward service holds few of them, says so to the rest, and forgets them all."""

import http.client
import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.services.reward.settings import RewardSettings
from tests.valkey import Valkey
from tests.waiting import until
from tests.warm.start import Process, python, start

AT_ONCE = 8
MIB = 1 << 20
BATCH = json.dumps({"samples": [{"prompt": "p" * 3600, "completion": "c" * 3700}] * 4096}).encode()
"""A batch of 29 MiB; parsed it costs several times that."""


@dataclass
class Service:
    """The reward service as a process."""

    process: Process
    port: int

    @property
    def peak_mib(self) -> int:
        """The most memory that the process ever had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey) -> Iterator[Service]:
    config, log = tmp_path / "reward-0.json", tmp_path / "log"
    scorer = {"name": "format", "options": {"pattern": "c+"}}
    settings = RewardSettings.model_validate(
        {
            "run": {"id": "test"}, "run_dir": str(tmp_path), "broker": {"url": valkey.url},
            "reward": {"scorers": [scorer]}, "instance": "0",
        }
    )  # fmt: skip
    config.write_text(settings.model_dump_json(serialize_as_any=True))
    with log.open("ab") as out:
        process = start(python("headrace.services.reward", "--config", config), out=out, err=out)

    def port() -> int:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return next((int(line["http_port"]) for line in lines if line.get("event") == "serving"), 0)

    try:
        yield Service(process, until(port, "the service to serve", detail=log.read_text))
    finally:
        process.kill()
        process.wait(60)


def post(service: Service, path: str, *, chunked: bool) -> tuple[int, str | None]:
    """Status and Retry-After; 0 if the connection ends under the body."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    pieces = (BATCH[at : at + MIB] for at in range(0, len(BATCH), MIB))
    try:
        connection.request(
            "POST", path, pieces if chunked else BATCH, {"Content-Type": "application/json"}, encode_chunked=chunked
        )
        answer = connection.getresponse()
        answer.read()
    except (ConnectionError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
    return answer.status, answer.getheader("Retry-After")


def test_eight_large_batches_at_once_use_no_more_memory_than_two(service: Service) -> None:
    before = service.peak_mib
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # One half declares its length; each of the other half needs room for the longest body.
        answers = list(pool.map(lambda n: post(service, "/score", chunked=n % 2 == 1), range(AT_ONCE)))
    assert {status for status, _ in answers} <= {200, 503} and (200, None) in answers
    assert all(after == "30" for status, after in answers if status == 503), answers
    # Without a bound: 660 MiB.
    assert service.peak_mib - before < 450
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/readyz", timeout=60) as answer:
        assert json.load(answer) == {"status": "ready"}
