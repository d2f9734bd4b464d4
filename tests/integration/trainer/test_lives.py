"""Lives of a trainer as a process, each to its end: what it leaves on disk, and why it stops."""

import json
import re
import time
from pathlib import Path

import pytest
from pyarrow import parquet

from headrace.services.trainer.metrics import LABELLED_OF_STEP, OF_STEP
from headrace.services.trainer.reporter import FENCED_EXIT
from headrace.services.trainer.timing.phases import KEY
from headrace.wire.journal import DroppedRecord, StepDoneRecord, highest_incarnation
from headrace.wire.rundir.events import read_events
from headrace.wire.weights import read_metadata
from tests.integration.trainer.harness import DROPPED, live, metrics_lines, settings_for
from tests.integration.trainer.lives import STEPS, facts, trained

CATALOG = Path(__file__).parents[3] / "ui" / "src" / "charts" / "catalog.ts"
OF_SOME_RUNS = {
    *("value_loss", "explained_variance", "critic_grad_norm"),  # with a critic
    *("mfu", "mfu_train", "peak_device_memory_bytes", "peak_device_memory_reserved_bytes"),  # on GPUs
    *("trained_tokens_per_second_per_gpu", "generated_tokens_per_second_per_gpu"),
}
"""Keys of gauges and charts that a GRPO step on a CPU does not have."""


def phases_of(line):
    return {key.removeprefix(KEY): value for key, value in line.items() if key.startswith(KEY)}


def test_gauges_and_charts_read_keys_that_steps_write(undisturbed):
    """A gauge of a misspelled key would stay 0 for ever, a chart of one would stay away."""
    written = set().union(*metrics_lines(undisturbed))
    text = CATALOG.read_text()
    labelled = re.findall(r"labelled\(\{(.*?)\}\)", text, re.DOTALL)
    charted = {*re.findall(r'one\("(\w+)"', text), *re.findall(r"(\w+): ", " ".join(labelled))} - {
        "accuracy"
    }  # of evals
    gauged = {*OF_STEP, *LABELLED_OF_STEP}
    assert len(charted) > 15
    assert sorted((charted | gauged) - written) == sorted(OF_SOME_RUNS)


def test_an_undisturbed_run_trains_the_lowest_indices_and_tells_everything(undisturbed):
    indices = [index for index in range(STEPS * 3 + len(DROPPED)) if index not in DROPPED]
    expected = [(step + 1, tuple(indices[3 * step : 3 * step + 3])) for step in range(STEPS)]
    assert trained(undisturbed) == expected
    assert {r.group_index for r in facts(undisturbed) if isinstance(r, DroppedRecord)} == set(DROPPED)
    assert [r.step for r in facts(undisturbed) if isinstance(r, StepDoneRecord)] == [*range(1, STEPS + 1)]
    lines = metrics_lines(undisturbed)
    assert [line["step"] for line in lines] == [*range(1, STEPS + 1)]
    wanted = {
        *("step", "t", "seconds", "loss", "reward_mean", "reward_std", "grad_norm", "learning_rate", "kl"),
        *("clip_fraction", "logprob_gap_max", "logprob_gap_mean", "staleness_mean", "staleness_max", "prompt_tokens"),
        *("completion_tokens", "completion_length_mean", "truncated_share", "groups", "rollouts"),
        *("wait_batch_seconds", "wait_batch_share", "incarnation", "replayed", "interval_seconds"),
        *("trained_tokens", "generated_tokens", "model_flops", "peak_host_memory_bytes"),
        *("trained_tokens_per_second", "generated_tokens_per_second"),
    }
    assert all(wanted <= line.keys() for line in lines)
    of_gpus = ("mfu", "mfu_train", "peak_device_memory_bytes", "trained_tokens_per_second_per_gpu")
    assert not any(key in line for line in lines for key in of_gpus)
    for line in lines:
        assert line["interval_seconds"] >= line["seconds"] + line["wait_batch_seconds"] - 1e-6
        speed = line["trained_tokens"] / line["interval_seconds"]
        assert line["trained_tokens_per_second"] == pytest.approx(speed)
        assert line["trained_tokens"] == line["completion_tokens"] <= line["generated_tokens"]
    always = {"wait", "journal", "advantages", "policy_update", "optimizer", "publication_wait", "snapshot", "other"}
    assert phases_of(lines[0]).keys() == always
    # What follows a step is in the times of the next one; every second step has a checkpoint.
    after = [phases_of(line).keys() - always for line in lines[1:]]
    assert after == [{"record", "checkpoint"} if line["step"] % 2 == 0 else {"record"} for line in lines[:-1]]
    for line in lines:
        seconds = phases_of(line)
        assert min(seconds.values()) >= 0 and seconds["policy_update"] > 0
        between = sum(seconds.get(name, 0.0) for name in ("wait", "checkpoint", "record"))
        assert sum(seconds.values()) == pytest.approx(line["seconds"] + between, abs=1e-3)
    table = parquet.read_table(undisturbed.run_dir / "rollouts" / "step-000002.parquet").to_pylist()
    assert len(table) == 12 and {row["group_index"] for row in table} == set(expected[1][1])
    names = [event["event"] for event in read_events(undisturbed.run_dir)]
    assert names[0] == "incarnation_opened" and names[-1] == "exported"
    assert names.count("step_recorded") == STEPS and names.count("checkpoint_saved") == STEPS // 2
    assert names.count("batch") == names.count("step_done") == STEPS and names.count("dropped") == len(DROPPED)


def test_a_batch_is_acked_by_the_time_its_version_is_published(undisturbed):
    assert json.loads((undisturbed.run_dir.parent / "pending.json").read_text()) == [0] * (STEPS + 1)


def test_payloads_reach_back_to_the_oldest_checkpoint_kept_and_no_further(undisturbed):
    kept = sorted(path.name for path in (undisturbed.run_dir / "checkpoints").iterdir())
    assert kept == ["step-000004", "step-000006"]
    payloads = sorted(path.name for path in (undisturbed.run_dir / "journal" / "payloads").iterdir())
    assert payloads == ["000001-00000005.batch", "000001-00000006.batch"]


def test_a_fenced_trainer_ends_at_once_and_writes_nothing_more(tmp_path):
    settings = settings_for(tmp_path, steps=50, checkpoint_every=1000)
    assert live(settings, fence_at=2) == FENCED_EXIT
    steps = [step for step, _ in trained(settings)]
    assert 2 <= len(steps) < 50
    assert not (settings.run_dir / "checkpoints").exists() and not (settings.run_dir / "export").exists()


def test_without_a_batch_it_fails_with_a_diagnosis_and_time_without_a_replica_does_not_count(tmp_path):
    settings = settings_for(tmp_path, batch_timeout_s=0.5)
    starved = settings.model_copy(update={"batch": settings.batch.model_copy(update={"groups": 40})})
    began = time.monotonic()
    assert live(starved, reports_alone=4) == 1
    # Reports come at once and then every two seconds.
    assert time.monotonic() - began > 4.0
    text = (tmp_path / "trainer.log").read_text()
    assert "a batch for step 1: 3 groups are ready, the lowest that have not come are 3, 4" in text


def test_over_disk_each_version_is_a_folder_and_old_ones_are_removed(tmp_path):
    settings = settings_for(tmp_path, steps=3, publish="disk")
    assert live(settings) == 0
    assert sorted(path.name for path in (settings.run_dir / "weights").iterdir()) == ["v000002", "v000003"]
    assert read_metadata(settings.run_dir / "weights" / "v000003")["version"] == "3"


def test_a_trainer_without_an_orchestrator_can_be_stopped_or_gives_up_with_a_reason(tmp_path):
    assert live(settings_for(tmp_path), stop_at=0, absent=True) == 0
    assert live(settings_for(tmp_path, orchestrator_timeout_s=0.5), absent=True) == 1
    assert "the orchestrator to register the trainer" in (tmp_path / "trainer.log").read_text()
    assert highest_incarnation(tmp_path / "run" / "journal") == 0
