"""What a life replays of a killed one: it is compared with what the journal knows, on policy and off."""

import signal

from headrace.wire.journal import DroppedRecord, StepDoneRecord
from tests.integration.trainer.harness import live, metrics_lines, settings_for
from tests.integration.trainer.lives import STEPS, facts, trained


def test_off_policy_a_replay_gives_the_weights_that_were_journaled_wherever_it_was_killed(tmp_path):
    how = {"steps": STEPS, "staleness": 1, "stale": "wait", "checkpoint_every": 4}
    for point in ("after_journal:1", "before_journal:2", "after_step:3", "after_ack:4", "before_publish:5"):
        assert live(settings_for(tmp_path, **how), fail_at=point) == -signal.SIGKILL
    settings = settings_for(tmp_path, **how)
    assert live(settings, fail_at="mid_checkpoint") == -signal.SIGKILL
    known = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    settings = settings_for(tmp_path, **how)
    assert live(settings) == 0
    # Each life says if what it replays differs from what the journal knows.
    log = (tmp_path / "trainer.log").read_text()
    assert log.count('"restored"') == 7 and "replay_diverged" not in log
    assert len(set(known)) >= 4 and [step for step, _ in trained(settings)] == [*range(1, STEPS + 1)]
    assert min(line["kept_share"] for line in metrics_lines(settings)) == 1
    assert not [r for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "stale"]
    assert max(line["staleness_max"] for line in metrics_lines(settings)) <= 1
