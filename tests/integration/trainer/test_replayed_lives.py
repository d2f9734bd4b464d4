"""What a life replays of a killed one: it is compared with what the journal knows, on policy and off."""

import signal

import pytest

from headrace.wire.journal import DroppedRecord, StepDoneRecord
from tests.integration.trainer.harness import live, metrics_lines, settings_for
from tests.integration.trainer.lives import STEPS, facts, trained


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        pytest.param("", "sgl64", "replay_not_compared", marks=pytest.mark.long),
        pytest.param("old", "", "", marks=pytest.mark.long),
        pytest.param("", "", "", marks=pytest.mark.long),
        pytest.param("old", "sgl64", "replay_not_compared", marks=pytest.mark.long),
    ],
)
def test_a_former_lifes_weights_are_compared_where_both_digests_are_of_one_algorithm(tmp_path, then, now, told):
    settings = settings_for(tmp_path, steps=4, checkpoint_every=2)
    assert live(settings, fail_at="before_publish:3", digests=then) < 0
    known = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    assert len(known) == 3 and all((":" in digest) == (then != "old") for digest in known)
    assert live(settings, digests=now) == 0
    log = (tmp_path / "trainer.log").read_text()
    assert [word for word in ("replay_diverged", "replay_not_compared") if word in log] == ([told] if told else [])
    digests = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    assert digests[-1].startswith(f"{now or 'xxh3'}:")


@pytest.mark.parametrize("stale", ["wait", pytest.param("mask", marks=pytest.mark.long)])
def test_off_policy_a_replay_gives_the_weights_that_were_journaled_wherever_it_was_killed(tmp_path, stale):
    aged = {"aged": stale == "mask"}
    how = {"steps": STEPS, "staleness": 1, "stale": stale, "checkpoint_every": 4}
    for point in ("after_journal:1", "before_journal:2", "after_step:3", "mid_checkpoint:4", "after_ack:5"):
        assert live(settings_for(tmp_path, **how), fail_at=point, **aged) == -signal.SIGKILL
    settings = settings_for(tmp_path, **how)
    assert live(settings, fail_at="before_publish:6", **aged) == -signal.SIGKILL
    known = [r.weights_digest for r in facts(settings) if isinstance(r, StepDoneRecord)]
    assert live(settings, **aged) == 0
    # Each life says if what it replays differs from what the journal knows.
    log = (tmp_path / "trainer.log").read_text()
    assert log.count('"restored"') == 7 and "replay_diverged" not in log
    assert len(set(known)) >= 4 and [step for step, _ in trained(settings)] == [*range(1, STEPS + 1)]
    kept = [line["kept_share"] for line in metrics_lines(settings)]
    assert (min(kept) < 1) == (stale == "mask")
    assert not [r for r in facts(settings) if isinstance(r, DroppedRecord) and r.reason == "stale"]
    assert max(line["staleness_max"] for line in metrics_lines(settings)) <= 1
