"""Large bodies, many at a time: the reward service holds few of them, says so to the rest, and forgets them all."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.reward_service import RewardProcess
from tests.valkey import Valkey

AT_ONCE = 8
MIB = 1 << 20
BATCH = json.dumps({"samples": [{"prompt": "p" * 3600, "completion": "c" * 3700}] * 4096}).encode()
"""A batch of 29 MiB; parsed it costs several times that."""


@pytest.fixture
def service(tmp_path: Path, valkey: Valkey) -> Iterator[RewardProcess]:
    made = RewardProcess(tmp_path, valkey.url, {"scorers": [{"name": "format", "options": {"pattern": "c+"}}]})
    made.start()
    made.wait_until_serving(60)
    yield made
    made.close()


def peak(service: RewardProcess) -> int:
    """The most memory that the process ever had, in MiB."""
    assert service.process is not None
    lines = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def post(service: RewardProcess, path: str, *, chunked: bool) -> tuple[int, str | None]:
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


def test_eight_large_batches_at_a_time_cost_what_two_do(service: RewardProcess) -> None:
    before = peak(service)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # One half declares its length; each of the other half needs room for the longest body.
        answers = list(pool.map(lambda n: post(service, "/score", chunked=n % 2 == 1), range(AT_ONCE)))
    assert {status for status, _ in answers} <= {200, 503} and (200, None) in answers
    assert all(after == "30" for status, after in answers if status == 503), answers
    # Without a bound: 660 MiB.
    assert peak(service) - before < 450
    assert json.loads(service.get("/readyz")) == {"status": "ready"}
