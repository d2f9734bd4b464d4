"""Receipts of runs that were killed, stopped and resumed, or begun by a version without them."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.inspect.history import check_run
from headrace.wire.rundir.receipts import read_receipts
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS, Undisturbed
from tests.forger import Forger
from tests.verbs import result, said

LONG = 20
"""Steps: a run that is killed or stopped after its fourth is not at its end."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "a", steps=LONG, replicas=1)
    yield made
    made.close()


def as_before_the_chain(forger: Forger) -> None:
    """What a version without digests of files would have left."""
    forger.forget_receipts()
    for name in ("step_recorded", "checkpoint_saved"):
        forger.remove_events("trainer", name)
    forger.change_events(
        "trainer", "incarnation_opened", lambda event: [{key: event[key] for key in event if key != "config"}]
    )
    old = ("t", "event", "path", "weights_sha256")
    forger.change_events("trainer", "exported", lambda event: [{key: event[key] for key in old}])


def test_the_end_of_a_run_its_status_and_its_check_name_one_receipt(undisturbed_run: Undisturbed) -> None:
    run_dir, value = undisturbed_run.run_dir, undisturbed_run.verdict["receipt"]
    assert re.fullmatch("[0-9a-f]{64}", value)
    assert f"receipt of step {STEPS}: {value}" in (undisturbed_run.folder / "stderr.log").read_text()
    assert f"receipt of step {STEPS}: {value}" in said("status", run_dir)
    assert result("status", run_dir)["receipt"] == {"value": value, "step": STEPS}
    assert f"the receipt of step {STEPS} covers the whole run" in said("check", run_dir, "--receipt", value.upper())
    complaint = said("check", run_dir, "--receipt", "abc", status=2)
    assert "--receipt abc: give the 64 hex digits" in complaint


def test_each_receipt_of_the_trainer_holds_and_says_what_came_later(undisturbed_run: Undisturbed) -> None:
    notes = []
    for receipt in read_receipts(undisturbed_run.run_dir)[:-1]:
        verdict = check_run(undisturbed_run.run_dir, receipt.value)
        assert verdict.problems == ()
        notes += verdict.notes
    assert notes[:2] == [f"the receipt is of step {step}, and holds; the run went on to step 8" for step in (3, 6)]
    assert re.fullmatch(
        r"the receipt of step 8 holds; \d+ bytes that services wrote after it are not covered by it", notes[-1]
    )


def test_a_killed_and_resumed_run_is_in_order_and_its_older_receipts_hold(tiny: TinyRun) -> None:
    tiny.start()
    tiny.wait_for_step(4)
    tiny.close()  # SIGKILL: no process takes a receipt.
    killed = tiny.check()
    step = killed["receipt_step"]
    assert 3 <= step < LONG
    tiny.start("--resume")
    last = tiny.finish()["receipt"]
    verdict = tiny.check()
    assert (verdict["receipt"], verdict["unchained_steps"], verdict["steps"]) == (last, 0, LONG)
    older = result("check", tiny.run_dir, "--receipt", killed["receipt"])
    assert older["ok"]
    assert older["notes"] == [f"the receipt is of step {step}, and holds; the run went on to step {LONG}"]
    assert check_run(tiny.run_dir, last).notes == (f"the receipt of step {LONG} covers the whole run",)


@pytest.mark.long
def test_a_stopped_run_that_is_resumed_for_more_steps_goes_on_behind_its_receipt(tiny: TinyRun) -> None:
    tiny.start()
    tiny.wait_for_step(2)
    tiny.stop()
    stopped = tiny.check()["receipt"]
    tiny.start("--resume", "--run.max-steps", str(LONG + 2))
    last = tiny.finish()["receipt"]
    assert result("check", tiny.run_dir, "--receipt", stopped)["ok"]
    assert result("check", tiny.run_dir, "--receipt", last)["notes"] == [
        f"the receipt of step {LONG + 2} covers the whole run"
    ]
    # Resumed at its end, it exports again.
    tiny.start("--resume", "--run.max-steps", str(LONG + 2))
    tiny.finish()
    again = result("check", tiny.run_dir, "--receipt", last)
    held = f"the receipt is of step {LONG + 2}, and holds; a later life of the trainer has trained no further step"
    assert (again["problems"], again["notes"]) == ([], [held])


def test_a_run_of_an_older_version_is_unchained_and_in_order(undisturbed_run: Undisturbed, tmp_path: Path) -> None:
    shutil.copytree(undisturbed_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("*.sock", "socket"))
    as_before_the_chain(Forger(tmp_path / "run"))
    verdict = check_run(tmp_path / "run")
    assert (verdict.problems, verdict.unchained_steps, verdict.receipt) == ((), STEPS, None)
    assert "unchained up to step 8, which an older version trained" in verdict.in_words()
    assert not check_run(tmp_path / "run", undisturbed_run.verdict["receipt"]).ok


def test_what_is_removed_is_named_and_contradicts_a_receipt(undisturbed_run: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed_run.run_dir, run, ignore=shutil.ignore_patterns("*.sock", "socket"))
    shutil.rmtree(run / "checkpoints" / "step-000006")
    shutil.rmtree(run / "export")
    (run / "rollouts" / "step-000002.parquet").unlink()
    verdict = check_run(run)
    gone = ("the checkpoint of step 6", "the rollouts of step 2", "the export")
    assert (verdict.problems, verdict.notes) == ((), tuple(f"{one} is gone" for one in gone))
    receipted = check_run(run, undisturbed_run.verdict["receipt"])
    assert receipted.problems == tuple(f"{one}, which the receipt stands for, is gone" for one in gone)


def test_a_chain_of_receipts_that_is_removed_is_missed(undisturbed_run: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed_run.run_dir, run, ignore=shutil.ignore_patterns("*.sock", "socket"))
    (run / "receipts.jsonl").unlink()
    (problem,) = check_run(run).problems
    assert re.fullmatch("receipts.jsonl has no line with the receipt [0-9a-f]{12}, which the trainer recorded", problem)


def test_a_line_that_is_added_after_the_end_contradicts_the_receipt(
    undisturbed_run: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed_run.run_dir, run, ignore=shutil.ignore_patterns("*.sock", "socket"))
    with (run / "evals.jsonl").open("a") as file:
        file.write(json.dumps({"version": 8, "accuracy": 1.0}) + "\n")
    assert check_run(run).ok
    gained, again = check_run(run, undisturbed_run.verdict["receipt"]).problems
    assert again == "evals.jsonl has another line of version 8 than the receipt of step 8 covers"
    assert re.fullmatch(r"evals\.jsonl has gained \d+ bytes since the run's last process ended", gained)
