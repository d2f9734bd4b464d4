"""Adversarial reward as a user runs it: a discriminator trained beside the policy, and a scorer that follows it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
STEPS = 8
ARGUMENTS = (
    "--discriminator.every=1",
    "--discriminator.learning_rate=1e-3",
    # By itself a group's scores are the same bits, whatever else is scored.
    '--reward.scorers=[{"name": "discriminator", "options": {"join": false}}]',
    "--eval.component=discriminator",
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., TinyRun]]:
    runs: list[TinyRun] = []

    def begin() -> TinyRun:
        runs.append(TinyRun(tmp_path / f"run-{len(runs)}", steps=STEPS))
        runs[-1].start(*ARGUMENTS)
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def rows(run: TinyRun, step: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(run.run_dir / "rollouts" / f"step-{step:06d}.parquet").to_pylist()
    return found


def current(run: TinyRun) -> str:
    return (run.run_dir / "discriminator" / "current").read_text()


def test_each_group_is_scored_by_the_version_of_its_step_and_kills_change_no_bit(start: Callable[..., TinyRun]) -> None:
    undisturbed = start()
    line = undisturbed.finish()
    assert (line["steps"], line["rollouts"]) == (STEPS, STEPS * 16)
    for step in range(1, STEPS + 1):
        found = rows(undisturbed, step)
        versions = {json.loads(row["scorers"])["discriminator"].split("-")[0] for row in found}
        assert versions == {str(step - 1)}
        assert all(0 <= row["reward"] <= 1 and row["advantage"] is not None for row in found)
    steps = undisturbed.metrics()
    assert steps[-1]["discriminator_loss"] < steps[0]["discriminator_loss"] == pytest.approx(0.6931, abs=1e-3)
    assert steps[-1]["discriminator_accuracy_references"] > 0.5
    assert current(undisturbed).startswith("version-000008 ")

    killed = start()
    for step, service in enumerate(("trainer", "reward-0", "trainer", "rollout-0", "reward-0"), start=1):
        killed.wait_for_step(step)
        killed.kill(service)
    killed.finish()
    assert killed.check()["weights_sha256"] == undisturbed.check()["weights_sha256"]
    assert current(killed) == current(undisturbed)
    for step in range(1, STEPS + 1):
        assert [row["reward"] for row in rows(killed, step)] == [row["reward"] for row in rows(undisturbed, step)]
