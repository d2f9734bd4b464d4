"""Algorithms and ranks in whole runs: critics, greedy baselines, dynamic sampling; kills and other rank counts."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.armed import arm
from tests.e2e.harness import DEADLINE_S, TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Start = Callable[..., TinyRun]
PPO = ("--algorithm.name", "ppo", "--critic.learning-rate", "1e-3", "--algorithm.kl-target", "0.05")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs and leaves none behind, whatever the test does."""
    runs: list[TinyRun] = []

    def begin(*arguments: str, environment: Mapping[str, str] = MappingProxyType({}), **shape: Any) -> TinyRun:
        runs.append(TinyRun(tmp_path / f"run-{len(runs)}", **{"steps": 6, "replicas": 1, **shape}))
        runs[-1].environment = environment
        runs[-1].start(*arguments)
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def finished(run: TinyRun) -> dict[str, Any]:
    run.finish()
    verdict = run.check()
    assert verdict["ok"], verdict
    return verdict


def test_a_killed_ppo_run_with_critic_and_reference_ends_with_the_same_weights(start: Start) -> None:
    quiet = start(*PPO)
    expected = finished(quiet)
    assert all(step["value_loss"] > 0 and step["updates"] == 4 for step in quiet.metrics())
    killed = start(*PPO)
    killed.wait_for_step(4)
    killed.kill("trainer")
    assert finished(killed)["weights_sha256"] == expected["weights_sha256"]
    coefficients = [{step["step"]: step["kl_coef"] for step in run.metrics()} for run in (quiet, killed)]
    assert coefficients[0] == coefficients[1]
    assert len(set(coefficients[0].values())) > 1


@pytest.mark.long
def test_a_rank_that_is_killed_takes_the_trainer_along_and_nothing_is_lost(start: Start) -> None:
    run = start("--trainer.ranks", "2", "--trainer.cp", "2", "--trainer.checkpoint-every", "2", *PPO)
    run.wait_for_step(3)
    leader = psutil.Process(run.pid("trainer"))
    (follower,) = [child for child in leader.children() if "--rank" in child.cmdline()]
    follower.kill()
    leader.wait(90)
    finished(run)
    assert "rank_lost" in (run.run_dir / "logs" / "trainer.log").read_text()
    assert not psutil.pid_exists(follower.pid)


@pytest.mark.long
@pytest.mark.parametrize("context", ["1", "2"])
def test_two_ranks_of_which_one_is_killed_in_half_a_shard_end_in_the_same_bits(
    start: Start, tmp_path: Path, context: str
) -> None:
    point = "trainer.step.half_written"
    two = ("--trainer.ranks", "2", "--trainer.cp", context, "--trainer.checkpoint-every", "2")
    expected = finished(start(*two))["weights_sha256"]
    killed = start(*two, environment=arm(tmp_path / "points", point, 2))
    assert finished(killed)["weights_sha256"] == expected
    assert (tmp_path / "points" / "struck" / point).exists()


@pytest.mark.long
@pytest.mark.parametrize("then", [("--trainer.ranks", "1"), ("--trainer.ranks", "2", "--trainer.cp", "2")])
def test_a_run_of_two_ranks_stops_and_resumes_with_one_or_with_shared_rows(start: Start, then: tuple[str, ...]) -> None:
    run = start("--trainer.ranks", "2")
    run.wait_for_step(3)
    run.stop()
    run.start("--resume", *then)
    finished(run)
    log = (run.run_dir / "logs" / "trainer.log").read_text()
    assert re.search(r'"event": "rank_started"', log)
    assert {step["step"] for step in run.metrics()} == set(range(1, 7))


@pytest.mark.long
def test_remax_asks_for_a_greedy_rollout_of_each_prompt_and_trains_the_others(start: Start) -> None:
    run = start("--algorithm.name", "remax")
    finished(run)
    assert all(step["rollouts"] == 16 for step in run.metrics())
    made = [pq.read_table(path).num_rows for path in (run.run_dir / "rollouts").glob("*.parquet")]
    assert made == [20] * 6


@pytest.mark.long
def test_dynamic_sampling_drops_uninformative_groups_and_reports_it(start: Start) -> None:
    run = start("--algorithm.name", "dapo", "--batch.group-size", "2", staleness=1, deterministic=False)
    line = run.finish()
    verdict = run.check()
    assert verdict["ok"], verdict
    assert line["groups_dropped"].get("uninformative", 0) > 0


@pytest.mark.long
def test_dynamic_sampling_gives_up_with_a_reason_when_no_group_is_informative(start: Start) -> None:
    run = start("--algorithm.name", "dapo", "--algorithm.discard-limit", "1", "--rollout.sampling.max-tokens", "1")
    assert run.process is not None
    run.process.wait(DEADLINE_S)
    assert run.process.returncode == 1
    said = (run.folder / "stderr.log").read_text() + (run.run_dir / "logs" / "trainer.log").read_text()
    assert "algorithm.discard_limit" in said
