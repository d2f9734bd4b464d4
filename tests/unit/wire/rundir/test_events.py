"""The event logs: frequent events are told by their first bytes, whoever wrote the line and in which order."""

import ast
import errno
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from headrace.services.orchestrator.dashboard.readers.records import RunLog
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.events import (
    EVENTS,
    FREQUENT,
    EventLog,
    confined_fault,
    last_word,
    life_number,
    name_of,
    new_life,
    read_events,
)
from headrace.wire.rundir.layout import RunPaths
from tests.unit.wire.rundir.test_rules import calls, sources


def test_the_writer_puts_time_and_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1234567.8901)
    log = EventLog(tmp_path, "trainer", 1)
    log.append("dropped", group_id="g", reason="stale")
    assert log.path.read_bytes() == b'{"t":1234567.89,"event":"dropped","group_id":"g","reason":"stale"}\n'


def test_a_line_of_the_writer_is_named_without_parsing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path, "trainer", 1)
    for name in EVENTS:
        log.append(name, event_of_another='"event":"issued"', t=5)
    monkeypatch.setattr(jsonl, "parse", None)
    assert [name_of(line) for line in log.path.read_bytes().splitlines()] == list(EVENTS)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"dropped","t":1.0}',
        b'{"t": 1.0, "event": "dropped"}',
        b'{"note":"' + b"x" * 200 + b'","t":1.0,"event":"dropped"}',
        b'{"t":1e3,"event":"dropped"}',
    ],
)
def test_a_line_in_another_order_has_the_same_name(line: bytes, tmp_path: Path) -> None:
    assert name_of(line) == "dropped"


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"{}", b'{"event":3}', b'{"t":1.0,"ev', b"\xff"])
def test_what_is_no_event_has_no_name(line: bytes) -> None:
    assert name_of(line) == ""


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


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path, "trainer", 1)
    log.append("step_done", step=1)
    write, calls_left = os.write, [1]

    def short(file: int, data: bytes) -> int:
        if not calls_left:
            raise OSError(errno.ENOSPC, "No space left on device")
        calls_left.pop()
        return write(file, bytes(data)[:7])

    with monkeypatch.context() as full:
        full.setattr("os.write", short)
        with pytest.raises(OSError, match="the disk is full"):
            log.append("step_done", step=2)
    log.append("step_done", step=3)
    assert [json.loads(line)["step"] for line in log.path.read_text().splitlines()] == [1, 3]


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


def test_the_last_word_is_that_of_the_newest_life_whatever_the_clock_said(tmp_path: Path) -> None:
    EventLog(tmp_path, "orchestrator", "ffffffff").append("run_ended")
    for name in ("run_ended", "run_stopped"):
        EventLog(tmp_path, "orchestrator", new_life(tmp_path, "orchestrator")).append(name)
    newest = max((tmp_path / "events").iterdir(), key=life_number)
    assert newest.name.startswith("orchestrator-000003.")
    os.utime(newest, (1.0, 1.0))
    assert last_word(tmp_path) == "run_stopped"


def recorded(module: ast.Module) -> list[tuple[str, set[str]]]:
    """(name, keys) of every event that a module records under a literal name."""
    found = []
    for call in calls(module):
        on = ast.unparse(call.func)
        if on.endswith("events.append") and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.append((name.value, {word.arg for word in call.keywords if word.arg}))
    return found


def test_every_event_that_is_recorded_is_declared_with_its_keys():
    found = [one for module in sources().values() for one in recorded(module)]
    assert {name for name, _ in found} >= {"issued", "batch", "weights_committed", "group_scored"}
    assert sorted({name for name, _ in found}.difference(EVENTS)) == []
    undeclared = {name: keys - set(EVENTS[name].keys) for name, keys in found if EVENTS[name].keys}
    assert {name: keys for name, keys in undeclared.items() if keys} == {}
    dynamic = {"engine_asleep", "engine_awake", "join_abandoned"}
    assert set(EVENTS) - {name for name, _ in found} == dynamic, "no longer recorded"


def test_the_frequent_events_are_those_of_groups_steps_and_replicas():
    assert {"issued", "dropped", "group_generated", "group_scored", "batch", "step_done"} < FREQUENT
    assert not FREQUENT & {"publication", "run_ended", "run_stopped", "operator_action", "exported"}


def test_logs_in_folders_of_services_are_read_beside_those_of_before(tmp_path: Path) -> None:
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


def test_what_a_confined_service_put_in_place_of_a_log_is_opened_by_no_reader(tmp_path: Path) -> None:
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


def test_a_line_does_not_say_whose_it_is_and_a_confined_service_has_only_its_own_events(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({"t": 1, "event": "group_generated", "group_id": "g", "attempt": 1}, ""),
        ({"t": 1.5, "event": "abstentions_high", "share": 1}, ""),
        ({"t": 1, "event": "run_ended"}, "(run_ended) is no event of environment"),
        ({"t": 1, "event": "\x1b[31m"}, "(of no known name) is no event of environment"),
        ({"event": "abstentions_high"}, "(abstentions_high) has no time"),
        ({"t": 1e300, "event": "abstentions_high"}, "(abstentions_high) has no time"),
        ({"t": 1, "event": "group_generated"}, "(group_generated) has no group_id, which is a string"),
        (
            {"t": 1, "event": "group_generated", "group_id": "g", "attempt": "1"},
            "(group_generated) has another attempt than an integer",
        ),
    ],
)
def test_the_fault_of_a_confined_line_is_named(line: jsonl.Record, fault: str) -> None:
    assert confined_fault(Path("events/environment/environment-0-a.jsonl"), line) == fault
    assert confined_fault(Path("events/environment-0-a.jsonl"), line) == ""
