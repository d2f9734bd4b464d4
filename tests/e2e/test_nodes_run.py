"""A trainer on two machines, as a user starts it: `headrace train` on one, `headrace join` on the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.supervisor.ports import pick_ports
from tests.e2e.harness import TinyRun
from tests.waiting import until
from tests.warm.start import Process, python, start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DEADLINE_S = 180


def two_machines() -> tuple[str, ...]:
    """One rank on each."""
    meet = f"--trainer.rendezvous=127.0.0.1:{pick_ports(1)[0]}"
    return ("--trainer.ranks=2", "--trainer.nodes=2", "--trainer.node_timeout_s=10", meet)


@contextmanager
def joined(run_dir: Path, node: int = 1) -> Iterator[Process]:
    """Machine `node`, from when machine 0 has written the run's settings."""
    until((run_dir / "run" / "trainer.json").is_file, "the trainer's start", DEADLINE_S)
    with (run_dir.parent / "join.log").open("wb") as log:
        process = start(python("headrace", "join", run_dir, "--node", node), out=log, err=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.long
def test_a_two_machine_run_with_one_killed_ends_with_the_weights_of_one_machine(tmp_path: Path) -> None:
    one, two = (TinyRun(tmp_path / name, steps=10, replicas=1) for name in ("one", "two"))
    try:
        one.start("--trainer.ranks=2")
        two.start(*two_machines())
        with joined(two.run_dir) as other:
            until(lambda: two.steps() >= 2, "two machines to train", DEADLINE_S)
            two.kill("trainer-node-1")
            two.finish()
            assert other.wait(DEADLINE_S) == 0, (two.folder / "join.log").read_text() + two.logs()
        one.finish()
        assert two.check()["weights_sha256"] == one.check()["weights_sha256"]
        log = (two.run_dir / "logs" / "trainer.log").read_text()
        assert "rank 1 of node 1 is silent" in log or "node 1 was started again" in log
    finally:
        one.close()
        two.close()
