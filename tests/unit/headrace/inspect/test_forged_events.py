"""What code of others wrote into the event log of its service counts for nothing in every verb, and is counted."""

import json
from pathlib import Path

import pytest

from headrace.inspect.explain.gather import gather
from headrace.inspect.history import check_run
from headrace.inspect.results import left_out_in_words, summarize, totals_of
from headrace.run.execute import Output, report
from headrace.supervisor.supervisor import RunOutcome
from headrace.wire.contracts import group_id
from headrace.wire.rundir.events import EventLog
from tests.unit.headrace.history.test_check import RUN, Forge
from tests.verbs import result, said

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


def test_the_end_of_a_run_counts_what_it_left_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run, RunOutcome("finished", ""), Output.choose(json=False), seconds=1.0) == 0
    assert left_out_in_words(len(FORGED)) in capsys.readouterr().out.splitlines()
    assert left_out_in_words(0) == "" and left_out_in_words(1).startswith("1 line of an event log counts for nothing")


def test_a_comparison_counts_what_it_left_out(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"step": 3}\n')
    shown = said("runs", "compare", run, run)
    assert f"run: {left_out_in_words(len(FORGED))}" in shown
    rows = result("runs", "compare", run, run)["runs"]
    assert [(row["groups_dropped"], row["events_left_out"]) for row in rows] == [({"stale": 1}, len(FORGED))] * 2


def test_a_story_has_only_what_the_services_wrote_and_notes_the_rest(run: Path) -> None:
    shown = said("explain", "g5", run)
    assert "events/ by reward-0-forged" in shown
    assert "journaled in the batch of step 3" in shown and "1970" not in shown
    found = gather(run, group_id(RUN, 5))
    assert [one["event"] for one in found.events if "reward" in one["source"]] == ["group_scored"]
    assert found.ends == []


@pytest.mark.parametrize(
    "line",
    [
        {"event": "weights_committed", "version": "x"},
        {"event": "dropped"},
        {"event": "step_done", "step": "x", "weights_digest": "d"},
        {"event": "batch", "step": 9, "digest": "d", "group_ids": 3, "of": group_id(RUN, 5)},
        {"event": "run_ended", "version": 3, "open_groups": 3},
        {"event": "publication_committed", "version": 3},
    ],
)
def test_an_incomplete_event_of_any_service_is_left_out_and_counted(tmp_path: Path, line: dict[str, object]) -> None:
    Forge(tmp_path).run(steps=3)
    before = gather(tmp_path, group_id(RUN, 5)).notes
    (tmp_path / "events" / "trainer-2.jsonl").write_text(json.dumps({"t": 1} | line) + "\n")
    notes = gather(tmp_path, group_id(RUN, 5)).notes
    is_counted = line["event"] in ("weights_committed", "dropped")
    assert totals_of(tmp_path).left_out == is_counted
    assert is_counted or len(notes) == len(before) + 1


def test_the_check_names_each_line(run: Path) -> None:
    problems = check_run(run).problems
    assert sum("events/reward/reward-0-forged.jsonl line" in one for one in problems) == len(FORGED)
