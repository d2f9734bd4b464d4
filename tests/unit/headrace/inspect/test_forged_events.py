"""What code of others wrote into the event log of its service counts for nothing in every verb, and is counted."""

import json
from pathlib import Path

import pytest

from headrace.inspect.explain.gather import gather
from headrace.inspect.history import check_run
from headrace.inspect.results import summarize, totals_of
from headrace.wire.contracts import group_id
from headrace.wire.rundir.events import EventLog
from tests.unit.headrace.history.test_check import RUN, Forge
from tests.verbs import said

FORGED = (
    {"t": 1, "event": "dropped", "source": "trainer-9"},
    {"t": 1, "event": "dropped", "source": "trainer-9", "group_id": "g", "reason": "stale"},
    {"t": 1, "event": "weights_committed", "replica_id": "r", "version": "x"},
    {"t": 1, "event": "weights_committed", "replica_id": "r", "version": 7},
    {"t": 1, "event": "run_ended", "version": 1, "open_groups": [group_id(RUN, 5)]},
    {"t": 1, "event": "batch", "group_ids": 7, "of": group_id(RUN, 5)},
    {"t": 1e300, "event": "group_scored", "group_id": group_id(RUN, 5)},
    {"t": "x", "event": "group_scored", "group_id": group_id(RUN, 5)},
    {"t": 1, "event": "group_scored", "group_id": group_id(RUN, 5), "attempt": []},
    {"t": 1, "event": ["group_scored"]},
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three steps; a scorer has written into the log of its service."""
    folder = tmp_path / "run"
    forge = Forge(folder).run(steps=3)
    forge.trainer.append("dropped", group_id="g9", group_index=9, reason="stale")
    (folder / "config" / "run.toml").write_text(f'[run]\nid = "{RUN}"\nmax_staleness = 0\n')
    own = folder / "events" / "reward"
    EventLog(folder, "reward-0", "life", folder=own).append("group_scored", group_id=group_id(RUN, 5), attempt=0)
    (own / "reward-0-forged.jsonl").write_text("".join(json.dumps(one) + "\n" for one in FORGED))
    return folder


def test_neither_drops_nor_commits_are_believed(run: Path) -> None:
    totals = totals_of(run)
    assert (totals.groups_dropped, totals.versions_committed) == ({"stale": 1}, {"replica-0": 3})
    assert totals.left_out == len(FORGED)
    summary = summarize(run, 1.0)
    assert (summary.groups_dropped, summary.events_left_out) == ({"stale": 1}, len(FORGED))


def test_a_story_has_only_what_the_services_wrote_and_notes_the_rest(run: Path) -> None:
    shown = said("explain", "g5", run)
    assert "events/ by reward-0-forged" in shown
    assert "journaled in the batch of step 3" in shown and "1970" not in shown
    found = gather(run, group_id(RUN, 5))
    assert [one["event"] for one in found.events if "reward" in one["source"]] == ["group_scored"]
    assert found.ends == []


def test_the_check_names_each_line(run: Path) -> None:
    problems = check_run(run).problems
    assert sum("events/reward/reward-0-forged.jsonl line" in one for one in problems) == len(FORGED)
