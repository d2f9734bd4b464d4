"""The event logs: frequent events are told by their first bytes, whoever wrote the line and in which order."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from headrace.services.orchestrator.dashboard.readers.records import RunLog
from headrace.wire.rundir.events import (
    EventLog,
    began_at,
    last_word,
    life_number,
    name_of,
    new_life,
    read_events,
    state_of,
)
from headrace.wire.rundir.layout import RunPaths


async def test_the_page_leaves_frequent_events_out_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    lines = [{"t": 1.0, "event": "dropped"}, {"event": "issued", "t": 2.0}, {"event": "run_ended", "t": 3.0}]
    lines.append({"note": '"event":"issued"', "t": 4.0, "event": "run_stopped"})
    path = tmp_path / "events" / "orchestrator-1.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert [record.event for record in await RunLog(tmp_path).look()] == ["run_ended", "run_stopped"]


def test_a_torn_line_of_an_earlier_life_is_removed(tmp_path: Path) -> None:
    EventLog(tmp_path, "trainer", "sft").append("stage_began", step=0)
    path = tmp_path / "events" / "trainer-sft.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"t":1,"ev')
    EventLog(tmp_path, "trainer", "sft").append("stage_began", step=3)
    assert path.read_bytes().startswith(whole + b'{"t":') and len(path.read_bytes().splitlines()) == 2
    assert [event["step"] for event in read_events(tmp_path)] == [0, 3]


def test_readers_get_whole_lines_with_their_source(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "trainer", 1)
    log.append("step_done", step=1)
    log.append("dropped", group_id="g")
    with log.path.open("ab") as file:
        file.write(b'7\n{"t":1,"event":"step_do')
    found = list(read_events(tmp_path, wanted=lambda line: name_of(line) == "step_done"))
    assert [(one["source"], one["event"], one["step"]) for one in found] == [("trainer-1", "step_done", 1)]
    assert [one["event"] for one in read_events(tmp_path)] == ["step_done", "dropped"]


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["run_ended"], "run_ended"),
        (["run_stopped", "issued"], ""),
        ([], ""),
        (["run_stopped", "x"], "run_stopped"),
    ],
)
def test_the_last_word_of_a_run(names: list[str], word: str, tmp_path: Path) -> None:
    log = EventLog(tmp_path, "orchestrator", "a")
    for name in names:
        log.append(name)
    assert last_word(tmp_path) == word


def test_the_last_word_comes_from_the_newest_life_regardless_of_clocks(tmp_path: Path) -> None:
    EventLog(tmp_path, "orchestrator", "ffffffff").append("run_ended")
    for name in ("run_ended", "run_stopped"):
        EventLog(tmp_path, "orchestrator", new_life(tmp_path, "orchestrator")).append(name)
    newest = max((tmp_path / "events").iterdir(), key=life_number)
    assert newest.name.startswith("orchestrator-000003.")
    os.utime(newest, (1.0, 1.0))
    assert last_word(tmp_path) == "run_stopped"


def test_event_logs_in_service_folders_and_in_the_old_place_are_both_read(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    EventLog(tmp_path, "orchestrator", "a").append("issued")
    EventLog(tmp_path, "reward-0", "before").append("group_scored", group_id="old")
    EventLog(tmp_path, "reward-0", "now", folder=run.own_events("reward")).append("group_scored", group_id="new")
    EventLog(tmp_path, "environment-0", "now", folder=run.own_events("environment")).append("abstentions_high")
    assert [path.relative_to(run.events).as_posix() for path in run.event_files()] == [
        "environment/environment-0-now.jsonl",
        "orchestrator-a.jsonl",
        "reward-0-before.jsonl",
        "reward/reward-0-now.jsonl",
    ]
    assert [path.stem for path in run.event_files("reward")] == ["reward-0-before", "reward-0-now"]
    sources = {event["source"] for event in read_events(tmp_path)}
    assert sources == {"environment-0-now", "orchestrator-a", "reward-0-before", "reward-0-now"}


def test_readers_open_no_link_or_pipe_that_a_confined_service_planted(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text('{"t":1.0,"event":"run_ended"}\n')
    folder = run.own_events("environment")
    folder.mkdir(parents=True)
    (folder / "environment-link.jsonl").symlink_to(secret)
    os.mkfifo(folder / "environment-pipe.jsonl")
    (folder / "orchestrator-mine.jsonl").write_text(secret.read_text())
    (run.events / "reward").symlink_to(tmp_path)
    assert run.event_files() == [] and list(read_events(tmp_path)) == []
    assert [path.name for path in run.odd_event_files()] == [
        "reward", "environment-link.jsonl", "environment-pipe.jsonl", "orchestrator-mine.jsonl"
    ]  # fmt: skip


def test_the_log_file_and_not_the_line_decides_the_source_of_an_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "reward-0", "a", folder=RunPaths(tmp_path).own_events("reward"))
    log.append("group_scored", group_id="g", attempt=0, source="trainer-9")
    log.append("dropped", group_id="g", source="trainer-9", reason="stale")
    log.append("group_scored", group_id=3)
    log.append("\x1b[31m")
    EventLog(tmp_path, "trainer", 1).append("dropped", group_id="h", source="reward-0")
    left_out: Counter[str] = Counter()
    found = [(one["event"], one["source"]) for one in read_events(tmp_path, left_out=left_out)]
    assert found == [("group_scored", "reward-0-a"), ("dropped", "trainer-1")]
    assert left_out == {"reward-0-a": 3}


def test_a_run_tells_when_it_began_and_how_it_stands_from_its_first_second(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").touch()
    os.utime(tmp_path / "config" / "run.toml", (7, 7))
    assert (state_of(tmp_path), state_of(tmp_path, alive=True), began_at(tmp_path)) == ("prepared", "running", 7)
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"t":20.0}\n')
    assert (state_of(tmp_path), began_at(tmp_path)) == ("stopped", 20.0)
    (tmp_path / "export").mkdir()
    assert (state_of(tmp_path), state_of(tmp_path, alive=True)) == ("finished", "running")
    EventLog(tmp_path, "orchestrator", "a").append("issued")
    (tmp_path / "events" / "trainer-a.jsonl").write_text('{"t":12.0,"event":"incarnation_opened"}\n')
    assert (state_of(tmp_path), state_of(tmp_path, alive=True), began_at(tmp_path)) == ("stopped", "running", 12.0)
