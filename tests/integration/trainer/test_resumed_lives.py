"""A trainer that was stopped, is resumed at its end or given a damaged checkpoint ends in an undisturbed one's bits."""

import json
import signal

import pytest

from headrace.services.trainer.durability.checkpoint import load_checkpoint
from headrace.wire.journal import StepDoneRecord, read_journal
from tests.integration.trainer.harness import exported_sha256, live, settings_for
from tests.integration.trainer.lives import STEPS, trained


@pytest.mark.long
def test_stopped_by_sigterm_it_leaves_a_checkpoint_and_goes_on_from_it(undisturbed, tmp_path):
    settings = settings_for(tmp_path, steps=STEPS, checkpoint_every=100)
    assert live(settings, stop_at=3) == 0
    assert [path.name for path in (settings.run_dir / "checkpoints").iterdir()] == ["step-000003"]
    assert not (settings.run_dir / "export").exists()
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)


def test_stopped_while_the_publication_before_lasts_the_step_has_ended_in_the_journal_too(undisturbed, tmp_path):
    settings = settings_for(tmp_path, steps=STEPS, checkpoint_every=100)
    assert live(settings, stop_in_publication=2) == 0
    done = [one.record for one in read_journal(settings.run_dir / "journal") if isinstance(one.record, StepDoneRecord)]
    assert [record.step for record in done] == [1, 2, 3]
    (folder,) = (settings.run_dir / "checkpoints").iterdir()
    assert load_checkpoint(folder).state.step == 3
    assert json.loads((folder / "manifest.json").read_text())["weights_digest"] == done[-1].weights_digest
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
    assert live(settings_for(tmp_path, steps=STEPS), fail_at="after_step:5") == -signal.SIGKILL
    settings = settings_for(tmp_path, steps=STEPS)
    path = settings.run_dir / "checkpoints" / "step-000004" / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
