"""The rules of the chain of digests, each on histories that hold and on one that does not."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from headrace.inspect.history import chain
from headrace.inspect.history.found import FoundCheckpoint, FoundExport, FoundFiles
from headrace.inspect.history.lines import fault_of, missing_field, numbered_records
from headrace.inspect.history.record import ExportRecord, Life, RunHistory, SavedCheckpoint, Version, read_history
from headrace.wire.rundir.events import EVENTS, EventLog

BATCH, DROP, DONE = ("batch", "4 b"), ("dropped", "g9"), ("step_done", "4 d")


def history(**values: object) -> RunHistory:
    """A chained run of one life with three steps."""
    made = RunHistory(Path("run"), done=[1, 2, 3], incarnations=[1], lives=[life(1)])
    made.versions = [Version(1, step, f"d{step}") for step in range(4)]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def life(number: int, *, t: float = 1.0, version: int = 0, config: dict[str, str] | None = None) -> Life:
    return Life(t, f"trainer-{number}", version, {} if config is None else config)


def command(t: float, config: dict[str, str]) -> Life:
    return Life(t, "launch-5", 0, config, is_command=True)


def found_export(**values: object) -> FoundExport:
    export = {"exists": True, "files": {"a": "1"}, "weights_sha256": "w", "twin": None}
    return FoundExport(**(export | values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("journaled", "reported", "problem"),
    [
        ([BATCH, DONE], [BATCH, DONE], ""),
        ([BATCH, DONE], [BATCH], ""),  # Killed between journal and event.
        ([BATCH, DROP, DROP], [BATCH], ""),  # One write of several drops.
        ([BATCH, DONE], [], "the events of trainer-1 end before batch 4"),
        ([BATCH, DROP, DONE], [BATCH], "the events of trainer-1 end before group g9 dropped"),
        ([BATCH, DONE], [DONE, BATCH], "record step_done 4 (d) where the journal has batch 4 (b)"),
        ([BATCH], [BATCH, DONE], "record step_done 4 (d), which the journal does not have"),
    ],
)
def test_events_of_a_life_are_those_of_its_segment_but_for_its_last_write(
    journaled: list[tuple[str, str]], reported: list[tuple[str, str]], problem: str
) -> None:
    found = list(chain.trainer_events_are_whole(history(journaled={1: journaled}, reported={1: reported})))
    assert [problem in one for one in found] == ([True] if problem else []), found


def test_a_superseded_life_may_have_events_beyond_its_seal() -> None:
    one = history(journaled={1: [BATCH], 2: []}, reported={1: [BATCH, DONE]}, incarnations=[1, 2])
    assert list(chain.trainer_events_are_whole(one)) == []


def test_an_unchained_life_must_have_some_events() -> None:
    old = history(journaled={1: [BATCH, DONE]}, lives=[])
    assert list(chain.trainer_events_are_whole(old)) == [
        "the events of trainer-1 are gone, though the journal shows that it trained or dropped groups"
    ]
    old.event_lines["trainer-1"] = 1
    assert list(chain.trainer_events_are_whole(old)) == []


def test_a_config_is_that_of_the_newest_life_or_of_a_command_that_came_after_it() -> None:
    old, new = {"config/run.toml": "a"}, {"config/run.toml": "b"}
    lives = [life(1, config=old), command(2.0, new)]
    for config in (old, new):
        assert list(chain.config_is_that_of_the_last_life(history(lives=lives), config)) == []
    lives.append(life(2, t=3.0, config=new))
    (problem,) = chain.config_is_that_of_the_last_life(history(lives=lives), old)
    assert problem == "config/run.toml is not as trainer-2 recorded it: it was changed after the run had begun with it"
    assert list(chain.config_is_that_of_the_last_life(history(lives=[]), old)) == []


def test_committed_weights_are_those_of_the_journal() -> None:
    assert list(chain.weights_agree(history(committed={("r", 1, 3, "d3")}))) == []
    (altered,) = chain.weights_agree(history(committed={("r", 1, 3, "d2")}))
    assert altered == "r committed weights 1.3 as d2, the journal has d3 for them"
    (unknown,) = chain.weights_agree(history(committed={("r", 1, 4, "d4")}))
    assert unknown == "r committed weights 1.4, which the journal does not have"
    # Digests of two algorithms cannot be compared, and a superseded life may have published what is void.
    others = {("r", 1, 3, "sgl64:77"), ("r", 0, 9, "d9")}
    assert list(chain.weights_agree(history(committed=others))) == []


def test_a_checkpoint_is_of_the_journals_weights_and_of_the_recorded_manifest() -> None:
    one = FoundCheckpoint(step=3, manifest="m", weights_digest="d3", problem="")
    saved = history(checkpoints=[SavedCheckpoint(3, "m", (3,))])
    assert list(chain.checkpoints_are_whole(saved, [one], 3)) == []
    (later,) = chain.checkpoints_are_whole(saved, [one], 2)
    assert later == "the checkpoint of step 3 is of a step that the run never ended"
    saved.checkpoints = [SavedCheckpoint(3, "n", (3,))]
    (other,) = chain.checkpoints_are_whole(saved, [one], 3)
    assert other == "the checkpoint of step 3 is not the one that the trainer recorded"
    weights = FoundCheckpoint(step=3, manifest="n", weights_digest="d2", problem="")
    (wrong,) = chain.checkpoints_are_whole(saved, [weights], 3)
    assert wrong == "the checkpoint of step 3 has weights d2, the journal has d3 for that step"


def test_an_export_is_of_the_last_step_once_the_run_has_ended() -> None:
    ended = history(export=ExportRecord("w", 2, "d2", {"a": "1"}), has_ended=True)
    assert list(chain.export_is_the_trainers(ended, found_export(), 3)) == [
        "the export is of step 2, but the last step is 3"
    ]
    # A run that went on has the export of its earlier end, or was killed as it replaced it.
    ended.has_ended = False
    for files in ({"a": "1"}, {"a": "2"}):
        assert list(chain.export_is_the_trainers(ended, found_export(files=files), 3)) == []
    (extra,) = chain.export_is_the_trainers(ended, found_export(files={"a": "1", "b": "2"}), 2)
    assert extra == "export/b is not as the trainer wrote it"


def test_a_checkpoint_that_a_killed_life_has_made_room_for_is_not_missed() -> None:
    saved = history(checkpoints=[SavedCheckpoint(2, "m", (1, 2))])

    def lost(*steps: int) -> list[str]:
        there = [FoundCheckpoint(step=step, manifest="", weights_digest="", problem="") for step in steps]
        found = FoundFiles(
            config={}, checkpoints=there, export=found_export(exists=False), metrics={}, rollouts={}
        )  # fmt: skip
        return list(chain.gone(saved, found))

    assert lost(1, 2) == [] and lost(2, 3) == []
    assert lost(2) == ["the checkpoint of step 1"]


@pytest.mark.parametrize(
    ("event", "lacks"),
    [
        ({"event": "issued", "group_index": 1, "group_id": "g"}, ""),
        ({"event": "issued", "group_index": True, "group_id": "g"}, "(issued) has no group_index, which is an integer"),
        ({"event": "exported", "weights_sha256": "w"}, ""),
        ({"event": "exported", "weights_sha256": "w", "files": 3}, "(exported) has another files than digests"),
        ({"event": "run_ended", "version": 3}, "(run_ended) has no open_groups, which is a list of strings"),
        ({"event": "of a later version"}, ""),
        ({"t": 1.0}, "has no name of an event"),
    ],
)
def test_an_event_that_lacks_a_field_of_the_check_is_named(event: dict[str, object], lacks: str) -> None:
    assert missing_field(event) == lacks  # type: ignore[arg-type]


def test_the_fields_that_the_check_needs_are_declared() -> None:
    from headrace.inspect.history.lines import LATER, NEEDED

    for table in (NEEDED, LATER):
        for name, fields in table.items():
            assert set(fields) <= set(EVENTS[name].keys), name


def test_only_the_end_of_a_file_may_be_torn(tmp_path: Path) -> None:
    path, problems = tmp_path / "a.jsonl", list[str]()
    path.write_bytes(b'{"a":1}\n{"b"\n\xff\n\n[1]\n{"c":2}\n{"torn"')
    rows = [number for number, _, _ in numbered_records(path, "a.jsonl", problems)]
    assert rows == [1, 6]
    assert problems == [
        "a.jsonl line 2 is not a JSON object: '{\"b\"'",
        "a.jsonl line 3 is not a JSON object: '\\\\xff'",
        "a.jsonl line 4 is not a JSON object: ''",
        "a.jsonl line 5 is not a JSON object: '[1]'",
    ]


def test_no_content_of_an_event_log_is_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "folder.jsonl").mkdir()
    lines = [b'{"event":"batch","step":"x","digest":1}', b'{"event":["issued"]}', b"[" * 5000, b'{"event":"exported"}']
    (tmp_path / "events" / "trainer-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    damage = read_history(tmp_path).damage
    assert [one.partition(" is ")[0].partition(" cannot")[0].partition(" (")[0] for one in damage] == [
        "events/folder.jsonl",
        "events/trainer-1.jsonl line 1",
        "events/trainer-1.jsonl line 2 has no name of an event",
        "events/trainer-1.jsonl line 3",
        "events/trainer-1.jsonl line 4",
    ]


def test_what_a_service_that_runs_code_of_others_wrote_beyond_its_events_is_told_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    EventLog(tmp_path, "trainer", 1).append("step_done", step=1, weights_digest="d")
    log = EventLog(tmp_path, "reward-0", "a", folder=tmp_path / "events" / "reward")
    log.append("group_scored", group_id="g")
    log.append("run_ended", version=9, open_groups=["mine"])
    player = EventLog(tmp_path, "environment-0", "b", folder=tmp_path / "events" / "environment")
    player.append("group_generated", group_id="g", source="rollout-0-a")
    log.append("exported", weights_sha256="of another model")
    (tmp_path / "events" / "reward" / "reward-link.jsonl").symlink_to(tmp_path / "events" / "trainer-1.jsonl")
    history = read_history(tmp_path)
    assert history.damage == [
        "events/reward/reward-link.jsonl is no event log of its service, and was not read",
        "events/reward/reward-0-a.jsonl line 2 (run_ended) is no event of reward",
        "events/reward/reward-0-a.jsonl line 3 (exported) is no event of reward",
    ]
    assert history.generated == {"g": {"environment-0"}}
    assert history.scored == {"g"} and not history.ended_open and history.export is None


def test_a_log_of_the_trainer_is_of_a_life_with_a_segment_or_of_the_stage() -> None:
    one = history(segments={1}, event_lines={"trainer-1": 3, "trainer-2": 1, "trainer-01": 1, "rollout-7": 1})
    assert list(chain.lives_are_the_journals(one)) == [
        f"events/{name}.jsonl is of a life of the trainer that has no journal segment"
        for name in ("trainer-01", "trainer-2")
    ]
    of_stage = history(event_lines={"trainer-sft": 3, "trainer-1": 1})
    assert list(chain.log_is_the_stages(of_stage, "sft")) == ["events/trainer-1.jsonl is no log of the stage sft"]


@pytest.mark.parametrize(
    ("name", "event", "fault"),
    [
        ("launch-5", {"event": "exported", "weights_sha256": "w"}, "(exported) is no event of launch"),
        ("orchestrator-1", {"event": "config_written", "config": {}}, "(config_written) is no event of orchestrator"),
        ("trainer-1", {"event": "issued", "group_index": 1, "group_id": "g"}, "(issued) is no event of trainer"),
        ("trainer-1", {"event": "exported", "weights_sha256": "w"}, ""),
        ("launch-5", {"event": "config_written", "config": {}}, ""),
        ("rollout-0-x", {"event": "of a later version"}, ""),
    ],
)
def test_an_event_counts_in_the_log_of_its_writer_alone(name: str, event: dict[str, JsonValue], fault: str) -> None:
    assert fault_of(Path("events") / f"{name}.jsonl", event) == fault
