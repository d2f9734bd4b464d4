"""The line of a step: what the bound on staleness took, and when that is a warning."""

import json
import math

import numpy as np
import pytest
from structlog.testing import capture_logs

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UNBOUNDED, UntrainedGroups
from headrace.services.trainer.records.step_record import StepRecord, TrainedStep
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import Header, Message, Purpose, encode, group_id
from tests.unit.services.trainer.builders import scored_group

TIMES = {"seconds": 1.0, "train_seconds": 0.5, "wait_batch_seconds": 0.1, "wait_batch_share": 0.1}


@pytest.fixture
def batch():
    scored = scored_group(0, size=2, rewards=[1, 0])
    name = group_id("run", 0)
    header = Header(run_id="run", purpose=Purpose.TRAIN, group_index=0, group_id=name)
    data = encode(Message(header=header, body=scored))
    return [ReadyGroup(group_index=0, group_id=name, min_version=0, sources=frozenset(), scored=scored, data=data)]


@pytest.fixture
def outcome(batch):
    numbers = {"loss": 0.1, "grad_norm": 1.0, "logprob_gap_max": 0.0}
    lengths = [len(rollout.token_ids) for rollout in batch[0].scored.group.rollouts]
    tokens = tuple(np.full(length, 0.5, np.float32) for length in lengths)
    peaks = {"peak_host_memory_bytes": 5e9}
    return StepOutcome(metrics=numbers, advantages=(0.5, -0.5), token_advantages=tokens, peaks=peaks)


def steps(run_dir, batch, outcome, stale):
    """Steps 1, 2, ... of which each has given up the groups of these lengths; the warnings."""
    record = StepRecord(run_dir, keep_rollouts_mib=0, most_lag=UNBOUNDED)
    with capture_logs() as logs:
        for step, lengths in enumerate(stale, start=1):
            on_the_way = UntrainedGroups(uninformative=3, stale=lengths)
            trained = TrainedStep(step, batch, outcome, TIMES | {"replayed": False, "incarnation": 1}, on_the_way)
            record.write(trained, record.line(trained))
    return [entry for entry in logs if entry["event"] == "stale_tokens"]


def test_the_step_line_has_stale_and_discarded_groups_and_both_lengths(tmp_path, batch, outcome):
    steps(tmp_path, batch, outcome, [((500, 400),)])
    (line,) = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    own = sum(len(rollout.token_ids) for rollout in batch[0].scored.group.rollouts)
    assert (line["groups_stale"], line["groups_discarded"]) == (1, 3)
    assert line["stale_tokens_share"] == pytest.approx(900 / (900 + own))
    assert line["arrived_length_max"] == 500 and line["trained_length_max"] < 10
    assert metrics.OF_STEP["stale_tokens_share"]._value.get() == line["stale_tokens_share"]


def test_generated_are_the_tokens_of_all_groups_that_were_consumed_for_the_step(tmp_path, batch, outcome):
    record = StepRecord(tmp_path, keep_rollouts_mib=0, most_lag=UNBOUNDED)
    line = record.line(TrainedStep(1, batch, outcome, TIMES, UntrainedGroups(stale=((500, 400),), spent=1000)))
    own = sum(len(rollout.token_ids) for rollout in batch[0].scored.group.rollouts)
    assert line["generated_tokens"] == 1000 + own
    assert line["peak_host_memory_bytes"] == 5e9


def test_a_gauge_without_a_value_is_nan(tmp_path, batch, outcome):
    steps(tmp_path, batch, outcome, [()])
    assert metrics.OF_STEP["logprob_gap_max"]._value.get() == 0.0
    del outcome.metrics["logprob_gap_max"]
    steps(tmp_path, batch, outcome, [()])
    assert math.isnan(metrics.OF_STEP["logprob_gap_max"]._value.get())


def test_below_five_percent_it_does_not_warn(tmp_path, batch, outcome):
    assert steps(tmp_path, batch, outcome, [()] * 3) == []


def test_above_five_percent_it_warns_and_not_at_every_step(tmp_path, batch, outcome):
    told = steps(tmp_path, batch, outcome, [((500,),)] * 25)
    assert [entry["step"] for entry in told] == [1, 21]
    assert told[0]["log_level"] == "warning" and 'run.stale = "wait"' in told[0]["way_out"]


def test_a_replayed_step_has_no_numbers_for_dropped_groups(tmp_path, batch, outcome):
    record = StepRecord(tmp_path, keep_rollouts_mib=0, most_lag=UNBOUNDED)
    line = record.line(TrainedStep(1, batch, outcome, TIMES))
    assert not {"groups_stale", "stale_tokens_share", "arrived_length_mean", "generated_tokens"} & line.keys()
