import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
from pyarrow import parquet

from headrace.services.trainer.durability.checkpoint import load_checkpoint
from headrace.services.trainer.reporter import FENCED_EXIT
from headrace.services.trainer.settings import FAIL_POINTS
from headrace.services.trainer.timing.phases import KEY
from headrace.wire.journal import BatchRecord, DroppedRecord, StepDoneRecord, highest_incarnation, read_journal
from headrace.wire.rundir.events import read_events
from headrace.wire.settings import ModelTable
from headrace.wire.weights import read_metadata, weights_sha256
from tests.integration.trainer.harness import DROPPED, exported_sha256, live, metrics_lines, settings_for, tells_nothing

STEPS = 6
ADVERSARY = {"every": 2, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("undisturbed"), steps=STEPS)
    assert live(settings) == 0
    return settings


def facts(settings):
    return [item.record for item in read_journal(settings.run_dir / "journal")]


def trained(settings):
    return [(record.step, record.group_indices) for record in facts(settings) if isinstance(record, BatchRecord)]


def phases_of(line):
    return {key.removeprefix(KEY): value for key, value in line.items() if key.startswith(KEY)}


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
    assert names.count("batch") == names.count("step_done") == STEPS and names.count("dropped") == len(DROPPED)


def test_a_batch_is_acked_by_the_time_its_version_is_published(undisturbed):
    assert json.loads((undisturbed.run_dir.parent / "pending.json").read_text()) == [0] * (STEPS + 1)


@pytest.mark.long
def test_the_same_run_again_ends_in_the_same_bits(undisturbed, tmp_path):
    again = settings_for(tmp_path, steps=STEPS)
    assert live(again) == 0
    assert exported_sha256(again) == exported_sha256(undisturbed)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [("old", "", ""), ("", "", ""), ("", "sgl64", "replay_not_compared"), ("old", "sgl64", "replay_not_compared")],
)
def test_a_former_lifes_weights_are_compared_where_both_digests_are_of_one_algorithm(tmp_path, then, now, told):
    settings = settings_for(tmp_path, steps=4, checkpoint_every=2)
    assert live(settings_for(tmp_path, steps=4, checkpoint_every=2, fail_at="before_publish:3"), digests=then) < 0
    known = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    assert len(known) == 3 and all((":" in digest) == (then != "old") for digest in known)
    assert live(settings, digests=now) == 0
    log = (tmp_path / "trainer.log").read_text()
    assert [word for word in ("replay_diverged", "replay_not_compared") if word in log] == ([told] if told else [])
    digests = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    assert digests[-1].startswith(f"{now or 'xxh3'}:")


@pytest.mark.long
@pytest.mark.parametrize("point", FAIL_POINTS)
def test_killed_at_any_point_and_resumed_it_ends_in_the_same_bits(point, undisturbed, tmp_path):
    step = 4 if point == "mid_checkpoint" else 3
    killed = settings_for(tmp_path, steps=STEPS, fail_at=f"{point}:{step}")
    assert live(killed) == -signal.SIGKILL
    resumed = settings_for(tmp_path, steps=STEPS)
    assert live(resumed) == 0
    assert exported_sha256(resumed) == exported_sha256(undisturbed)
    assert trained(resumed) == trained(undisturbed)
    assert [line["step"] for line in metrics_lines(resumed)] == [*range(1, STEPS + 1)]


def test_killed_at_every_point_in_one_run_it_ends_in_the_same_bits(undisturbed, tmp_path):
    for point in ("after_journal:1", "after_step:2", "mid_checkpoint:4", "after_ack:5", "before_publish:6"):
        assert live(settings_for(tmp_path, steps=STEPS, fail_at=point, checkpoint_every=4)) == -signal.SIGKILL
    assert live(settings_for(tmp_path, steps=STEPS)) == 0
    assert exported_sha256(settings_for(tmp_path)) == exported_sha256(undisturbed)


@pytest.mark.long
def test_with_dynamic_sampling_and_a_kill_at_every_point_the_same_groups_end_in_the_same_bits(tmp_path):
    dynamic = {"dynamic_sampling": True}
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    for folder in (quiet, killed):
        folder.mkdir()
    undisturbed = settings_for(quiet, steps=STEPS, algorithm=dynamic)
    assert live(undisturbed) == 0
    for point in ("after_journal:1", "before_journal:2", "after_step:3", "mid_checkpoint:4", "after_ack:5"):
        settings = settings_for(killed, steps=STEPS, algorithm=dynamic, fail_at=point)
        assert live(settings) == -signal.SIGKILL
    assert live(settings_for(killed, steps=STEPS, algorithm=dynamic)) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    informative = (index for index in itertools.count() if index not in DROPPED and not tells_nothing(index))
    expected = [(step, tuple(itertools.islice(informative, 3))) for step in range(1, STEPS + 1)]
    assert trained(undisturbed) == trained(settings) == expected
    discarded = [r.group_index for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "uninformative"]
    assert discarded and len(discarded) == len(set(discarded)) and all(map(tells_nothing, discarded))


@pytest.mark.parametrize("stale", ["wait", pytest.param("mask", marks=pytest.mark.long)])
def test_off_policy_a_replay_gives_the_weights_that_were_journaled_wherever_it_was_killed(tmp_path, stale):
    aged = {"aged": stale == "mask"}
    how = {"steps": STEPS, "staleness": 1, "stale": stale, "checkpoint_every": 4}
    for point in ("after_journal:1", "before_journal:2", "after_step:3", "mid_checkpoint:4", "after_ack:5"):
        assert live(settings_for(tmp_path, **how, fail_at=point), **aged) == -signal.SIGKILL
    settings = settings_for(tmp_path, **how, fail_at="before_publish:6")
    assert live(settings, **aged) == -signal.SIGKILL
    known = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    settings = settings_for(tmp_path, **how)
    assert live(settings, **aged) == 0
    # Each life says if what it replays differs from what the journal knows.
    log = (tmp_path / "trainer.log").read_text()
    assert log.count('"restored"') == 7 and "replay_diverged" not in log
    assert len(set(known)) >= 4 and [step for step, _ in trained(settings)] == [*range(1, STEPS + 1)]
    kept = [line["kept_share"] for line in metrics_lines(settings)]
    assert (min(kept) < 1) == (stale == "mask")
    assert not [r for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "stale"]
    assert max(line["staleness_max"] for line in metrics_lines(settings)) <= 1


@pytest.mark.long
def test_killed_before_a_step_with_abstentions_the_next_life_makes_the_same_one(tmp_path):
    undisturbed = settings_for(tmp_path / "undisturbed", steps=4)
    assert live(undisturbed, abstain=True) == 0
    assert live(settings_for(tmp_path / "killed", steps=4, fail_at="after_ack:3"), abstain=True) == -signal.SIGKILL
    settings = settings_for(tmp_path / "killed", steps=4)
    assert live(settings, abstain=True) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    lines = metrics_lines(settings)
    assert [(line["rollouts"], line["abstained"]) for line in lines] == [(9, 3)] * 4
    assert all(line["token_score_mean"] > 0 for line in lines)
    rows = parquet.read_table(settings.run_dir / "rollouts" / "step-000003.parquet").to_pylist()
    lost = [row for row in rows if row["reward"] is None]
    assert len(rows) == 12 and [row["reason"] for row in lost] == ["the judge hung"] * 3
    assert {row["advantage"] for row in lost} == {None} and {row["trained_tokens"] for row in lost} == {0}


@pytest.fixture(scope="module")
def adversarial(tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("adversarial"), steps=STEPS, discriminator=ADVERSARY)
    assert live(settings) == 0
    return settings


@pytest.mark.long
@pytest.mark.parametrize("fail_at", ["after_journal:3", "after_step:4", "mid_checkpoint:4", "before_publish:6"])
def test_killed_anywhere_the_discriminator_ends_with_the_same_weights(adversarial, tmp_path, fail_at):
    killed = settings_for(tmp_path, steps=STEPS, discriminator=ADVERSARY, fail_at=fail_at)
    assert live(killed) == -signal.SIGKILL
    settings = settings_for(tmp_path, steps=STEPS, discriminator=ADVERSARY)
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(adversarial)
    assert shelf(settings) == shelf(adversarial)
    name, digest = shelf(settings)["current"].split()
    assert name == "version-000006"
    for side in (settings, adversarial):
        checkpoint = load_checkpoint(side.run_dir / "checkpoints" / "step-000006")
        assert weights_sha256(checkpoint.others["discriminator"].items()) == digest
        assert checkpoint.others["discriminator-optimizer"]
    told = [("discriminator_loss" in line, line["step"]) for line in metrics_lines(settings)]
    assert told == [(step % 2 == 0, step) for step in range(1, STEPS + 1)]


def shelf(settings):
    """Versions on disk with their bytes, and the current one."""
    folder = settings.run_dir / "discriminator"
    weights = {path.parent.name: path.read_bytes() for path in folder.glob("version-*/model.safetensors")}
    return weights | {"current": (folder / "current").read_text()}


def test_when_no_group_tells_anything_the_run_ends_with_a_reason_and_is_not_started_again(tmp_path):
    settings = settings_for(tmp_path, steps=2, algorithm={"dynamic_sampling": True, "discard_limit": 1})
    starved = settings.model_copy(update={"batch": settings.batch.model_copy(update={"groups": 1})})
    assert live(starved, mute=True) == 1
    text = (tmp_path / "trainer.log").read_text()
    assert "DynamicSamplingError" in text and "2 groups were discarded, the limit is 1" in text
    reasons = {record.reason for record in facts(settings) if isinstance(record, DroppedRecord)}
    assert "uninformative" in reasons


def test_stopped_by_sigterm_it_leaves_a_checkpoint_and_goes_on_from_it(undisturbed, tmp_path):
    settings = settings_for(tmp_path, steps=STEPS, checkpoint_every=100)
    assert live(settings, stop_at=3) == 0
    assert [path.name for path in (settings.run_dir / "checkpoints").iterdir()] == ["step-000003"]
    assert not (settings.run_dir / "export").exists()
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)


@pytest.mark.long
def test_a_resume_at_the_last_step_does_no_step(undisturbed, tmp_path):
    settings = settings_for(tmp_path, steps=2)
    assert live(settings) == 0
    before, sha256 = trained(settings), exported_sha256(settings)
    assert live(settings) == 0
    assert trained(settings) == before and exported_sha256(settings) == sha256


def test_a_damaged_newest_checkpoint_is_passed_over(undisturbed, tmp_path):
    assert live(settings_for(tmp_path, steps=STEPS, fail_at="after_step:5")) == -signal.SIGKILL
    settings = settings_for(tmp_path, steps=STEPS)
    path = settings.run_dir / "checkpoints" / "step-000004" / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)


def test_payloads_reach_back_to_the_oldest_checkpoint_kept_and_no_further(undisturbed):
    kept = sorted(path.name for path in (undisturbed.run_dir / "checkpoints").iterdir())
    assert kept == ["step-000004", "step-000006"]
    payloads = sorted(path.name for path in (undisturbed.run_dir / "journal" / "payloads").iterdir())
    assert payloads == ["000001-00000005.batch", "000001-00000006.batch"]


def test_off_policy_no_group_over_the_bound_is_trained(tmp_path):
    settings = settings_for(tmp_path, steps=5, staleness=2)
    assert live(settings) == 0
    lines = metrics_lines(settings)
    assert max(line["staleness_max"] for line in lines) == 2
    indices = [index for _, batch in trained(settings) for index in batch]
    assert len(indices) == len(set(indices)) == 15


def test_fenced_it_ends_at_once_and_writes_no_more(tmp_path):
    settings = settings_for(tmp_path, steps=50, checkpoint_every=1000)
    assert live(settings, fence_at=2) == FENCED_EXIT
    steps = [step for step, _ in trained(settings)]
    assert 2 <= len(steps) < 50
    assert not (settings.run_dir / "checkpoints").exists() and not (settings.run_dir / "export").exists()


def test_an_orchestrator_that_forgot_everything_is_told_everything(undisturbed, tmp_path):
    settings = settings_for(tmp_path, steps=STEPS)
    assert live(settings, forget_at=3) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    assert [item.incarnation for item in read_journal(settings.run_dir / "journal")][-1] == 1


def test_without_a_batch_in_time_it_fails_with_a_diagnosis(tmp_path):
    # Time enough for the three to come, also on a busy machine.
    settings = settings_for(tmp_path, batch_timeout_s=5.0)
    starved = settings.model_copy(update={"batch": settings.batch.model_copy(update={"groups": 40})})
    assert live(starved) == 1
    text = (tmp_path / "trainer.log").read_text()
    assert "a batch for step 1: 3 groups are ready, the lowest that have not come are 3, 4" in text


def test_time_without_a_replica_does_not_count_against_the_batch(tmp_path):
    settings = settings_for(tmp_path, batch_timeout_s=0.5)
    starved = settings.model_copy(update={"batch": settings.batch.model_copy(update={"groups": 40})})
    began = time.monotonic()
    assert live(starved, reports_alone=4) == 1
    # Reports come at once and then every two seconds.
    assert time.monotonic() - began > 4.0
    assert "a batch for step 1: 3 groups are ready" in (tmp_path / "trainer.log").read_text()


def test_without_resume_a_used_run_directory_is_refused(undisturbed):
    table = undisturbed.trainer.model_copy(update={"resume": False})
    assert live(undisturbed.model_copy(update={"trainer": table})) == 1
    assert "holds a run already" in (undisturbed.run_dir.parent / "trainer.log").read_text()


def test_over_disk_each_version_is_a_folder_and_old_ones_go(tmp_path):
    settings = settings_for(tmp_path, steps=3, publish="disk")
    assert live(settings) == 0
    assert sorted(path.name for path in (settings.run_dir / "weights").iterdir()) == ["v000002", "v000003"]
    assert read_metadata(settings.run_dir / "weights" / "v000003")["version"] == "3"


def test_while_the_orchestrator_is_away_it_can_be_stopped_or_gives_up_with_a_reason(tmp_path):
    assert live(settings_for(tmp_path), stop_at=0, absent=True) == 0
    assert live(settings_for(tmp_path, orchestrator_timeout_s=0.5), absent=True) == 1
    assert "the orchestrator to register the trainer" in (tmp_path / "trainer.log").read_text()
    assert highest_incarnation(tmp_path / "run" / "journal") == 0


def test_the_process_itself_refuses_a_bad_model_folder(tmp_path):
    settings = settings_for(tmp_path)
    path = tmp_path / "trainer.json"
    path.write_text(settings.model_copy(update={"model": ModelTable(path=tmp_path / "none")}).model_dump_json())
    argv = [sys.executable, "-P", "-m", "headrace.services.trainer", "--config", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150)
    assert done.returncode == 2
    assert "no Hugging Face model folder" in done.stderr
