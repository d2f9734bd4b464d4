"""What must hold: a hostile program earns nothing, harms nothing, is over within 2 s, and leaves nothing behind.

Waiting for a busy machine's processors is not charged, here as in the product."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.reward.sandbox.conftest import Bench, Host
from tests.integration.reward.sandbox.hostile import ACTS as HARM
from tests.integration.reward.sandbox.hostile import FRAME
from tests.integration.reward.sandbox.hostile_tricks import TRICKS

ACTS = HARM | TRICKS

LIMIT_S = 2.0
PER_SANDBOX = 4
"""Processes of an idle sandbox: bubblewrap twice, and the fork server with its parent."""
HONEST = """
import os, sys
def solve(n):
    assert os.listdir("/tmp") == [], "something was left in /tmp"
    assert os.environ == {} and os.getpid() == 1
    return n * 2
"""
HONEST_TESTS = {"fn_name": "solve", "inputs": [[21], [4]], "outputs": [42, 8]}


def program(name: str, host: Host) -> str:
    act = ACTS[name]
    if "def act" not in act:
        return act
    known = {"port": host.port, "abstract": host.abstract, "pid": host.process.pid, "file": host.file}
    return FRAME.replace("{act}", act.format(**known))


def wanted(host: Host) -> dict[str, object]:
    return {"fn_name": "solve", "inputs": [[1], [2]], "outputs": [host.secret, host.secret]}


def processes(roots: list[int]) -> int:
    """How many there are below and with these."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # It has just ended.
            continue
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return len(found)


def assert_unharmed(host: Host, bench: Bench) -> None:
    assert host.process.poll() is None
    assert host.file.read_text() == host.secret
    assert not host.visits
    assert processes(bench.boxes.pids) == PER_SANDBOX * len(bench.boxes.pids)


@pytest.mark.parametrize("name", ACTS)
async def test_a_hostile_program_scores_0_and_an_honest_one_beside_and_after_it_1(
    bench: Bench, host: Host, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HEADRACE_SECRET", host.secret)
    source = program(name, host)
    before = bench.boxes.pids
    hostile, beside = await asyncio.gather(bench.score(source, wanted(host)), bench.score(HONEST, HONEST_TESTS))
    assert (hostile.value, hostile.failed) == (0.0, False), hostile.reason
    assert bench.boxes.spent_s[source.strip()] < LIMIT_S
    assert beside.value == 1.0, beside.reason
    for _ in range(3):  # On both sandboxes, most likely.
        after = await bench.score(HONEST, HONEST_TESTS)
        assert after.value == 1.0, after.reason
    assert bench.boxes.pids == before  # None had to be replaced.
    assert_unharmed(host, bench)
