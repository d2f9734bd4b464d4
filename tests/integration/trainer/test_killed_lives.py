"""A trainer that is killed anywhere ends in the bits of an undisturbed one."""

import itertools
import signal

from headrace.wire.journal import DroppedRecord
from tests.integration.trainer.harness import DROPPED, exported_sha256, is_flat, live, metrics_lines, settings_for
from tests.integration.trainer.lives import STEPS, facts, trained


def test_killed_at_every_point_it_trains_the_same_groups_and_ends_in_the_same_bits(tmp_path):
    dynamic = {"dynamic_sampling": True}
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    for folder in (quiet, killed):
        folder.mkdir()
    undisturbed = settings_for(quiet, steps=STEPS, algorithm=dynamic)
    assert live(undisturbed) == 0
    points = (
        "after_journal:1",
        "before_journal:2",
        "after_step:3",
        "after_ack:5",
        "before_publish:6",
    )
    for point in points:
        settings = settings_for(killed, steps=STEPS, algorithm=dynamic)
        assert live(settings, fail_at=point) == -signal.SIGKILL
    assert live(settings_for(killed, steps=STEPS, algorithm=dynamic)) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    informative = (index for index in itertools.count() if index not in DROPPED and not is_flat(index))
    expected = [(step, tuple(itertools.islice(informative, 3))) for step in range(1, STEPS + 1)]
    assert trained(undisturbed) == trained(settings) == expected
    discarded = [r.group_index for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "uninformative"]
    assert discarded and len(discarded) == len(set(discarded)) and all(map(is_flat, discarded))


def test_killed_at_each_phase_of_a_checkpoint_it_ends_in_the_same_bits(undisturbed, tmp_path):
    points = (
        *("rollouts_written:2", "snapshot_taken", "half_written", "before_manifest", "mid_checkpoint"),
        "before_trim",
    )
    for point in points:
        settings = settings_for(tmp_path, steps=STEPS)
        assert live(settings, fail_at=point) == -signal.SIGKILL
        shown = {path.name for path in (settings.run_dir / "checkpoints").glob("step-*")}
        # Nothing shows before the rename; the batches that it covers are trimmed only after.
        assert bool(shown) == (point == "before_trim")
        payloads = {int(path.stem[-8:]) for path in (settings.run_dir / "journal" / "payloads").iterdir()}
        assert payloads >= {step for step, _ in trained(settings)}
    assert live(settings_for(tmp_path, steps=STEPS)) == 0
    assert exported_sha256(settings) == exported_sha256(undisturbed)
    assert trained(settings) == trained(undisturbed)
    # Records are written beside the steps: none is lost, none is doubled.
    assert [line["step"] for line in metrics_lines(settings)] == [*range(1, STEPS + 1)]
