"""A trainer that is killed anywhere ends in the bits of an undisturbed one."""

import itertools
import signal

import pytest
from pyarrow import parquet

from headrace.services.trainer.durability.checkpoint import load_checkpoint
from headrace.wire.journal import DroppedRecord
from headrace.wire.weights import weights_sha256
from tests.integration.trainer.harness import DROPPED, exported_sha256, is_flat, live, metrics_lines, settings_for
from tests.integration.trainer.lives import STEPS, facts, trained

ADVERSARY = {"every": 2, "learning_rate": 1e-3}


@pytest.mark.long
def test_the_same_run_again_ends_in_the_same_bits(undisturbed, tmp_path):
    again = settings_for(tmp_path, steps=STEPS)
    assert live(again) == 0
    assert exported_sha256(again) == exported_sha256(undisturbed)


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["before_journal", "after_journal", "after_ack", "after_step", "mid_checkpoint", "before_publish"]
)
def test_killed_at_any_point_and_resumed_it_ends_in_the_same_bits(point, undisturbed, tmp_path):
    step = 4 if point == "mid_checkpoint" else 3
    assert live(settings_for(tmp_path, steps=STEPS), fail_at=f"{point}:{step}") == -signal.SIGKILL
    resumed = settings_for(tmp_path, steps=STEPS)
    assert live(resumed) == 0
    assert exported_sha256(resumed) == exported_sha256(undisturbed)
    assert trained(resumed) == trained(undisturbed)
    assert [line["step"] for line in metrics_lines(resumed)] == [*range(1, STEPS + 1)]


def test_killed_at_every_point_in_one_run_it_ends_in_the_same_bits(undisturbed, tmp_path):
    for point in ("after_journal:1", "after_step:2", "mid_checkpoint:4", "after_ack:5", "before_publish:6"):
        assert live(settings_for(tmp_path, steps=STEPS, checkpoint_every=4), fail_at=point) == -signal.SIGKILL
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
        settings = settings_for(killed, steps=STEPS, algorithm=dynamic)
        assert live(settings, fail_at=point) == -signal.SIGKILL
    assert live(settings_for(killed, steps=STEPS, algorithm=dynamic)) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    informative = (index for index in itertools.count() if index not in DROPPED and not is_flat(index))
    expected = [(step, tuple(itertools.islice(informative, 3))) for step in range(1, STEPS + 1)]
    assert trained(undisturbed) == trained(settings) == expected
    discarded = [r.group_index for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "uninformative"]
    assert discarded and len(discarded) == len(set(discarded)) and all(map(is_flat, discarded))


@pytest.mark.long
def test_killed_before_a_step_with_abstentions_the_next_life_makes_the_same_one(tmp_path):
    undisturbed = settings_for(tmp_path / "undisturbed", steps=4)
    assert live(undisturbed, abstain=True) == 0
    assert live(settings_for(tmp_path / "killed", steps=4), fail_at="after_ack:3", abstain=True) == -signal.SIGKILL
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
    killed = settings_for(tmp_path, steps=STEPS, discriminator=ADVERSARY)
    assert live(killed, fail_at=fail_at) == -signal.SIGKILL
    settings = settings_for(tmp_path, steps=STEPS, discriminator=ADVERSARY)
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(adversarial)
    assert version_files(settings) == version_files(adversarial)
    name, digest = version_files(settings)["current"].split()
    assert name == "version-000006"
    for side in (settings, adversarial):
        checkpoint = load_checkpoint(side.run_dir / "checkpoints" / "step-000006")
        assert weights_sha256(checkpoint.others["discriminator"].items()) == digest
        assert checkpoint.others["discriminator-optimizer"]
    told = [("discriminator_loss" in line, line["step"]) for line in metrics_lines(settings)]
    assert told == [(step % 2 == 0, step) for step in range(1, STEPS + 1)]


def version_files(settings):
    """Versions on disk with their bytes, and the current one."""
    folder = settings.run_dir / "discriminator"
    weights = {path.parent.name: path.read_bytes() for path in folder.glob("version-*/model.safetensors")}
    return weights | {"current": (folder / "current").read_text()}
