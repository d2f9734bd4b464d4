"""The event log as people want it, over all lives of the services; the evaluations."""

import json
from pathlib import Path
from typing import Any

from headrace.services.orchestrator.dashboard.ended import EndedRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.dashboard.readers.records import Evals, RunLog


def write(run_dir: Path, name: str, *records: dict[str, Any]) -> None:
    (run_dir / "events").mkdir(exist_ok=True)
    with (run_dir / "events" / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def event(t: object, name: str, **fields: Any) -> dict[str, Any]:
    return {"t": t, "event": name, **fields}


async def test_groups_and_steps_are_left_out_and_lives_are_merged(tmp_path: Path) -> None:
    write(tmp_path, "orchestrator-a", event(1.0, "issued", group_index=0), event(5.0, "operator_action", said="x"))
    write(tmp_path, "orchestrator-b", event(7.0, "run_ended"))
    write(tmp_path, "trainer-1", event(2.0, "incarnation_opened"), event(3.0, "batch", group_ids=["a"]))
    write(tmp_path, "reward-0-x", event(4.0, "group_scored"))
    (tmp_path / "events" / "environment").mkdir()
    write(tmp_path, "environment/environment-0-y", event(4.5, "abstentions_high"))
    log = RunLog(tmp_path)
    assert [one.event for one in await log.look()] == [
        "incarnation_opened", "abstentions_high", "operator_action", "run_ended"
    ]  # fmt: skip
    assert [one.service for one in log.newest(2)] == ["orchestrator", "orchestrator"]
    assert log.newest(1)[0].event == "run_ended" and log.newest(0) == []
    assert log.began == 1.0
    assert await log.look() == []
    write(tmp_path, "orchestrator-b", event(8.0, "run_stopped"))
    assert [one.event for one in await log.look()] == ["run_stopped"]
    assert [one.t for one in log.since(5.0)] == [7.0, 8.0]


async def test_the_newest_evaluation_of_a_version_counts(tmp_path: Path) -> None:
    evals = Evals(tmp_path / "evals.jsonl")
    assert await evals.look() == [] and evals.all == ()
    (tmp_path / "evals.jsonl").write_text(
        '{"version": 25, "accuracy": 0.5}\n{"version": 0, "accuracy": 0.1}\nx\n{"version": 25, "accuracy": 0.6}\n'
    )
    assert len(await evals.look()) == 3
    assert [(one.version, one.accuracy) for one in evals.all] == [(0, 0.1), (25, 0.6)]


async def test_an_environment_speaks_for_no_other_service(tmp_path: Path) -> None:
    (tmp_path / "events" / "environment").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text('[run]\nid = "r"\nmax_steps = 9\n')
    write(tmp_path, "orchestrator-a", event(5.0, "run_ended"))
    write(
        tmp_path,
        "environment/environment-0-y",
        event(1.0, "abstentions_high", service="orchestrator"),
        event(9.0, "run_stopped", service="orchestrator"),
        event(9.0, "operator_action", service="orchestrator", said="stop"),
        event("now", "abstentions_high"),
        event(1e300, "abstentions_high"),
    )
    files = Files.of(tmp_path, tmp_path)
    assert [(one.event, one.service) for one in await files.log.look()] == [
        ("abstentions_high", "environment-0"),
        ("run_ended", "orchestrator"),
    ]
    assert (EndedRun(files).status().state, files.log.began) == ("finished", 5.0)
