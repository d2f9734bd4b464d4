"""`RUN/rollouts` stays within its bound, and a full disk is no reason to end a run."""

import resource
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.records.rollout_folder import RolloutFolder
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import Message, Score, ScoredGroup, encode
from tests import builders

OUTCOME = StepOutcome(metrics={}, advantages=(0.5, -0.5), token_advantages=())


def add(rollouts: RolloutFolder, *steps: int) -> None:
    group = builders.masked_group(4)
    scored = ScoredGroup(
        group=group, scores=tuple(Score(rollout_id=one.rollout_id, value=1.0) for one in group.rollouts)
    )
    message = Message(header=builders.header(4), body=scored)
    ready = ReadyGroup(
        group_index=4,
        group_id=message.header.group_id,
        min_version=0,
        sources=frozenset(),
        scored=scored,
        data=encode(message),
    )
    for step in steps:
        rollouts.add(step, [ready], OUTCOME)


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.iterdir())


def mib(folder: Path, files: float) -> float:
    """The size of so many files."""
    return (folder / "step-000001.parquet").stat().st_size * files / 1024**2


def unwritten() -> float:
    return REGISTRY.get_sample_value("headrace_trainer_rollouts_unwritten_steps_total") or 0.0


def test_the_oldest_steps_go_when_the_folder_is_larger_than_asked_for(tmp_path: Path) -> None:
    add(RolloutFolder(tmp_path, keep_mib=0), *range(1, 13))
    assert steps(tmp_path) == [*range(1, 13)], "0 keeps all"
    (tmp_path / "step-000004.parquet").unlink()  # By hand: no harm.
    # A next life, with a bound: what lies there already counts.
    rollouts = RolloutFolder(tmp_path, keep_mib=mib(tmp_path, 4.5))
    add(rollouts, 13)
    assert steps(tmp_path) == [10, 11, 12, 13]
    (tmp_path / "step-000010.parquet").unlink()
    add(rollouts, 14, 15)
    assert steps(tmp_path) == [12, 13, 14, 15]


def test_a_full_disk_is_counted_and_logged_once_a_minute_without_ending_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    folder, before = tmp_path / "rollouts", unwritten()
    folder.mkdir()
    rollouts = RolloutFolder(folder, keep_mib=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        for step in (1, 2):
            add(rollouts, step)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert unwritten() == before + 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("rollouts_not_written") == 1
    assert list(folder.iterdir()) == [], "a half-written file takes room"
    add(rollouts, 3)
    assert steps(folder) == [3] and unwritten() == before + 2
