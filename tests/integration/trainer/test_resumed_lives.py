"""A trainer that was stopped, is resumed at its end or given a damaged checkpoint ends in an undisturbed one's bits."""

import json
import signal

from headrace.services.trainer.durability.checkpoint import load_checkpoint
from headrace.wire.journal import StepDoneRecord, read_journal
from tests.integration.trainer.harness import exported_sha256, live, settings_for
from tests.integration.trainer.lives import STEPS


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


def test_a_damaged_newest_checkpoint_is_passed_over(undisturbed, tmp_path):
    # At the third checkpoint, which waits until the second one, of step 4, is written.
    assert live(settings_for(tmp_path, steps=STEPS), fail_at="snapshot_taken:3") == -signal.SIGKILL
    settings = settings_for(tmp_path, steps=STEPS)
    path = settings.run_dir / "checkpoints" / "step-000004" / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert live(settings) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
