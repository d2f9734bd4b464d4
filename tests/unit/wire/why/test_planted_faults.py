"""Faults planted into a healthy, learning run that the trainer's own writers record."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UntrainedGroups
from headrace.services.trainer.records.step_record import StepRecord, TrainedStep
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import FinishReason, Message, Score, ScoredGroup, encode
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import steps_of
from headrace.wire.why.compare import SHARE, largest_fall
from headrace.wire.why.measure import step_differences
from tests import builders

STEPS, BEGINS, GROUPS, SIZE = 26, 20, 12, 4
WEIGHTS = {"correct": 1.0, "format": 0.2, "judge": 0.3}


@dataclass(kw_only=True)
class World:
    """What a group and the step's line are drawn from."""

    source: str
    replica: str
    correct: float
    format: float = 0.9
    judge: float = 0.5
    abstains: float = 0.03
    length: float = 12.0
    limit: int = 40
    lag: int = 0
    prompt: int = 30
    gap: float = 1e-6


Fault = Callable[[World], None]


def always(**values: float) -> Fault:
    return lambda world: vars(world).update(values)


def of_one(name: str, of: str, **values: float) -> Fault:
    return lambda world: vars(world).update(values) if getattr(world, name) == of else None


def drawn(index: int, step: int, draw: random.Random, fault: Fault | None) -> tuple[ScoredGroup, World]:
    source, replica = draw.choice(["book", "web"]), draw.choice(["rollout-0", "rollout-1"])
    learned = 0.3 + 0.5 * (1 - math.exp(-step / 15)) + (0.1 if source == "book" else -0.1)
    world = World(source=source, replica=replica, correct=learned + draw.uniform(-0.1, 0.1))
    if fault and step >= BEGINS:
        fault(world)
    group = builders.group(index, size=SIZE, data_source=world.source, difficulty=draw.randrange(4))
    version = max(0, step - 1 - world.lag - draw.randrange(2))
    rollouts, scores = [], []
    for one in group.rollouts:
        length = min(world.limit, 1 + int(draw.expovariate(1 / world.length)))
        found = {"correct": float(draw.random() < world.correct), "format": float(draw.random() < world.format)}
        if draw.random() >= world.abstains:
            found["judge"] = min(1.0, max(0.0, draw.gauss(world.judge, 0.2)))
        value = sum(WEIGHTS[name] * value for name, value in found.items())
        scores.append(Score(rollout_id=one.rollout_id, value=value, components=found, weights=WEIGHTS))
        (span,) = one.spans
        made = replace(
            one,
            token_ids=np.zeros(length, np.int32),
            logprobs=np.full(length, -0.5, np.float32),
            finish_reason=FinishReason.LENGTH if length == world.limit else FinishReason.STOP,
            spans=(replace(span, end=length, version=replace(span.version, version=version)),),
            text=f"it is {draw.randrange(6)}",
        )
        rollouts.append(made)
    prompt = replace(group.prompt, text="x" * int(world.prompt * draw.uniform(0.7, 1.3)))
    whole = replace(group, prompt=prompt, rollouts=tuple(rollouts), replica_id=world.replica)
    return ScoredGroup(group=whole, scores=tuple(scores)), world


def write(run_dir: Path, fault: Fault | None = None, *, seed: int = 0) -> Path:
    draw, record = (
        random.Random(seed),
        StepRecord(run_dir, keep_rollouts_mib=0, most_lag=9, source_column="data_source"),
    )
    for step in range(1, STEPS + 1):
        batch = []
        for index in range(GROUPS * step, GROUPS * (step + 1)):
            scored, world = drawn(index, step, draw, fault)
            message = Message(header=builders.header(index), body=scored)
            ids = {"group_index": index, "group_id": message.header.group_id, "min_version": 0}
            batch.append(ReadyGroup(**ids, sources=frozenset(), scored=scored, data=encode(message)))
        numbers = {
            "loss": draw.gauss(0, 0.01),
            "grad_norm": draw.lognormvariate(0, 0.3),
            "entropy": 0.5 * math.exp(-step / 40) + draw.gauss(0, 0.01),
            "clip_fraction": abs(draw.gauss(0.02, 0.01)),
            "learning_rate": 1e-4 * min(1.0, step / 5),
            "logprob_gap_mean": world.gap * draw.lognormvariate(0, 0.5),
        }
        times = {
            "seconds": 1 + draw.random() ** 4,
            "train_seconds": 0.5,
            "wait_batch_seconds": 0,
            "wait_batch_share": 0,
        }
        outcome = StepOutcome(metrics=numbers, advantages=(0.1,) * GROUPS * SIZE, token_advantages=())
        trained = TrainedStep(step, batch, outcome, times | {"replayed": False, "incarnation": 1}, UntrainedGroups())
        record.write(trained, record.line(trained))
    return run_dir


FAULTS = {
    "a scorer changes": (always(format=0.1), ("rewards/format/mean", "", "")),
    "a data source goes bad": (of_one("source", "web", correct=0.0), ("rewards/correct/mean", "data_source", "web")),
    "a replica samples garbage": (
        of_one("replica", "rollout-1", correct=0.0, format=0.05, length=30),
        ("rewards/format/mean", "replica_id", "rollout-1"),
    ),
    "answers are cut": (always(limit=10), ("truncated_share", "", "")),
    "rollouts are older": (always(lag=4), ("staleness_mean", "", "")),
    "a scorer abstains": (always(abstains=0.5), ("rewards/judge/abstained", "", "")),
    "prompts get longer": (always(prompt=60), ("prompt_characters_mean", "", "")),
    "one component falls, the total stays": (always(format=0.5, judge=0.77), ("rewards/format/mean", "", "")),
    "one source is left": (always(source="web"), ("share_of_rollouts", "data_source", "book")),
    "the engine's logprobs are others": (always(gap=0.01), ("logprob_gap_mean", "", "")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_fault_moves_is_among_the_first_three_from_its_first_step_on(tmp_path: Path, name: str) -> None:
    fault, wanted = FAULTS[name]
    run = write(tmp_path, fault)
    for step in (BEGINS, BEGINS + 3):
        first = step_differences(run, steps_of(run), step).rows[:3]
        (row,) = (one for one in first if (one.measure, one.column, one.label) == wanted)
        assert row.since == BEGINS and row.size > 4.5
    if wanted[0].startswith("rewards/format"):
        assert largest_fall(steps_of(run)) == (BEGINS, "rewards/format/mean")


@pytest.mark.parametrize("seed", range(3))
def test_nothing_moves_far_in_a_run_that_learns(tmp_path: Path, seed: int) -> None:
    run = write(tmp_path, seed=seed)
    lines = steps_of(run)
    assert largest_fall(lines) is None
    assert max(step_differences(run, lines, step).rows[0].size for step in range(8, STEPS + 1, 3)) < 6


def test_examples_are_rollouts_of_the_part_that_moved_and_lost_files_are_told(tmp_path: Path) -> None:
    run = write(tmp_path, FAULTS["a data source goes bad"][0])
    RunPaths(run).rollout_file(15).unlink()
    RunPaths(run).rollout_file(16).write_bytes(b"PAR1")
    found = step_differences(run, steps_of(run), BEGINS)
    row = next(one for one in found.rows if (one.measure, one.label) == ("rewards/correct/mean", "web"))
    assert {one.step for one in row.examples_before} == {BEGINS - 1} and {one.step for one in row.examples_now} == {
        BEGINS
    }
    assert [one.value for one in row.examples_now] == [0.0, 0.0] and len(
        {one.group_index for one in row.examples_now}
    ) == 2
    assert "x => it is " in row.examples_now[0].text
    assert (found.rollouts, found.rollouts_before) == (GROUPS * SIZE, 10 * GROUPS * SIZE)
    assert "step-000016.parquet was left out" in found.notes[0] and found.notes[1].endswith(": 15")


def test_without_rollouts_the_numbers_of_the_step_are_compared(tmp_path: Path) -> None:
    run = write(tmp_path, FAULTS["a data source goes bad"][0])
    for path in RunPaths(run).rollouts.iterdir():
        path.unlink()
    found = step_differences(run, steps_of(run), BEGINS)
    assert "rewards/correct/web/mean" in [one.measure for one in found.rows[:3]] and found.rollouts == 0


def test_where_few_steps_have_rollouts_the_numbers_of_the_step_are_compared_too(tmp_path: Path) -> None:
    run = write(tmp_path, FAULTS["a scorer changes"][0])
    for step in range(1, BEGINS - 2):
        RunPaths(run).rollout_file(step).unlink()
    first = step_differences(run, steps_of(run), BEGINS).rows[:3]
    assert "rewards/format/mean" in [one.measure for one in first]


def test_sources_that_a_fault_brings_do_not_hide_their_column(tmp_path: Path) -> None:
    serial = iter(range(10_000))

    def renamed(world: World) -> None:
        vars(world).update(source=f"new-{next(serial) % 30}", correct=0.0)

    run = write(tmp_path, renamed)
    rows = step_differences(run, steps_of(run), BEGINS).rows[:6]
    assert {"book", "web"} <= {one.label for one in rows if (one.measure, one.column) == (SHARE, "data_source")}


def test_a_component_that_comes_or_goes_is_a_note_and_a_tiny_one_hides_no_fall(tmp_path: Path) -> None:
    lines = {
        step: {
            "reward_mean": 0.8 if step < 40 else 0.2,
            "rewards/penalty/mean": -0.002 if step == 20 else 0.0,
            **({"rewards/old/mean": 0.5} if step < 30 else {"rewards/new/mean": 0.5}),
        }
        for step in range(1, 61)
    }
    assert largest_fall(lines) == (40, "reward_mean")
    new, gone = (note for note in step_differences(tmp_path, lines, 31).notes if "component" in note)
    assert "new is new: no step compared has it before step 30" in new and "old is gone: 11 steps" in gone


def test_a_step_that_is_not_done_or_too_early_is_refused(tmp_path: Path) -> None:
    lines = {step: {"loss": 0.1} for step in range(1, 7)}
    with pytest.raises(ConfigError, match="the run has no step 9: its steps are 1 to 6"):
        step_differences(tmp_path, lines, 9)
    with pytest.raises(ConfigError, match="step 4 has 3 steps before it: a comparison needs 4"):
        step_differences(tmp_path, lines, 4)
