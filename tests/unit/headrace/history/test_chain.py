"""The rules of the chain of digests, each on histories that hold and on one that does not."""

from pathlib import Path

import pytest

from headrace.inspect.history import chain
from headrace.inspect.history.found import FoundCheckpoint, FoundExport, FoundFiles
from headrace.inspect.history.lines import missing_field, numbered_records
from headrace.inspect.history.record import ExportRecord, RunHistory, SavedCheckpoint, read_history
from headrace.wire.rundir.events import EVENTS, EventLog


def history(**values: object) -> RunHistory:
    """A run of one life with three steps."""
    made = RunHistory(Path("run"), done=[1, 2, 3], incarnations=[1])
    made.versions = {(1, step): f"d{step}" for step in range(4)}
    for name, value in values.items():
        setattr(made, name, value)
    return made


def found_export(**values: object) -> FoundExport:
    export = {"exists": True, "files": {"a": "1"}, "weights_sha256": "w"}
    return FoundExport(**(export | values))  # type: ignore[arg-type]


def test_a_config_is_as_a_life_or_a_command_recorded_it() -> None:
    old, new = {"config/run.toml": "a"}, {"config/run.toml": "b"}
    for config in (old, new):
        assert list(chain.config_is_recorded(history(configs=[old, new]), config)) == []
    (problem,) = chain.config_is_recorded(history(configs=[old]), new)
    assert problem == "config/run.toml is not as the run recorded it: it was changed after the run had begun with it"
    assert list(chain.config_is_recorded(history(), old)) == []


def test_each_step_ends_once_in_the_journal_and_the_run_ends_after_the_last() -> None:
    assert list(chain.steps_end_once(history(has_ended=True, ended_version=3))) == []
    (doubled,) = chain.steps_end_once(history(done=[1, 2, 2]))
    assert doubled == "the end of step 2 is 2 times in the journal"
    (cut,) = chain.steps_end_once(history(has_ended=True, ended_version=4))
    assert cut == "the run ended at version 4, but the last step whose end the journal has is 3"


def test_committed_weights_must_match_the_journal() -> None:
    assert list(chain.weights_agree(history(committed={("r", 1, 3, "d3")}))) == []
    (altered,) = chain.weights_agree(history(committed={("r", 1, 3, "d2")}))
    assert altered == "r committed weights 1.3 as d2, the journal has d3 for them"
    (unknown,) = chain.weights_agree(history(committed={("r", 1, 4, "d4")}))
    assert unknown == "r committed weights 1.4, which the journal does not have"
    # Digests of two algorithms cannot be compared, and a superseded life may have published what is void.
    others = {("r", 1, 3, "sgl64:77"), ("r", 0, 9, "d9")}
    assert list(chain.weights_agree(history(committed=others))) == []


def test_a_checkpoint_is_of_the_recorded_manifest() -> None:
    one = FoundCheckpoint(step=3, manifest="m", problem="")
    assert list(chain.checkpoints_are_whole(history(checkpoints=[SavedCheckpoint(3, "m", (3,))]), [one])) == []
    (other,) = chain.checkpoints_are_whole(history(checkpoints=[SavedCheckpoint(3, "n", (3,))]), [one])
    assert other == "the checkpoint of step 3 is not the one that the trainer recorded"


def test_an_export_is_of_the_last_step_once_the_run_has_ended() -> None:
    ended = history(export=ExportRecord("w", 2, {"a": "1"}), has_ended=True)
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
        there = [FoundCheckpoint(step=step, manifest="", problem="") for step in steps]
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
    rows = [number for number, _ in numbered_records(path, "a.jsonl", problems)]
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


def test_unexpected_events_from_services_that_run_user_code_are_reported_and_ignored(
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
    assert not history.ended_open and history.export is None
