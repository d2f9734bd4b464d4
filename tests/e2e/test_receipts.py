"""What `headrace check` finds in a changed run directory, and what a receipt that was kept elsewhere finds."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.inspect.history.check import check_run
from headrace.wire.rundir.receipts import read_receipts, take_receipt
from tests.e2e.harness import TinyRun
from tests.e2e.undisturbed import STEPS, Undisturbed
from tests.verbs import result, said

LONG = 20
"""Steps: a run that is killed after its fourth is not at its end."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Act = Callable[[Path], object]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[TinyRun]:
    made = TinyRun(tmp_path / "a", steps=LONG, replicas=1)
    yield made
    made.close()


@pytest.fixture
def copy(undisturbed_run: Undisturbed, tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("*.sock", "socket")
    return shutil.copytree(undisturbed_run.run_dir, tmp_path / "run", ignore=ignore)


def test_the_end_of_a_run_its_status_and_its_check_name_one_receipt(undisturbed_run: Undisturbed) -> None:
    run_dir, value = undisturbed_run.run_dir, undisturbed_run.verdict["receipt"]
    assert re.fullmatch("[0-9a-f]{64}", value)
    assert f"receipt of step {STEPS}: {value}" in (undisturbed_run.folder / "stderr.log").read_text()
    assert f"receipt of step {STEPS}: {value}" in said("status", run_dir)
    assert result("status", run_dir)["receipt"] == {"value": value, "step": STEPS}
    assert f"the receipt of step {STEPS} covers the whole run" in said("check", run_dir, "--receipt", value.upper())
    complaint = said("check", run_dir, "--receipt", "abc", status=2)
    assert "--receipt abc: give the 64 hex digits" in complaint


def test_each_trainer_receipt_holds_and_reports_what_it_does_not_cover(undisturbed_run: Undisturbed) -> None:
    notes = []
    for receipt in read_receipts(undisturbed_run.run_dir)[:-1]:
        verdict = check_run(undisturbed_run.run_dir, receipt.value)
        assert verdict.problems == ()
        notes += verdict.notes
    assert notes[:2] == [f"the receipt is of step {step}, and holds; the run went on to step 8" for step in (3, 6)]
    assert re.fullmatch(
        r"the receipt of step 8 holds; \d+ bytes that were written after it are not covered by it", notes[-1]
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
    assert (verdict["receipt"], verdict["steps"]) == (last, LONG)
    older = result("check", tiny.run_dir, "--receipt", killed["receipt"])
    assert older["ok"]
    assert older["notes"] == [f"the receipt is of step {step}, and holds; the run went on to step {LONG}"]
    assert check_run(tiny.run_dir, last).notes == (f"the receipt of step {LONG} covers the whole run",)


def test_check_notes_removed_files_without_reporting_a_problem(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints" / "step-000006")
    shutil.rmtree(copy / "export")
    (copy / "rollouts" / "step-000002.parquet").unlink()
    verdict = check_run(copy)
    gone = ("the checkpoint of step 6", "the rollouts of step 2", "the export")
    assert (verdict.problems, verdict.notes) == ((), tuple(f"{one} is gone" for one in gone))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data, path
    path.write_bytes(data.replace(old, new, 1))


def double_metrics(run: Path) -> None:
    (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes() * 2)


def orchestrators_log(run: Path) -> Path:
    (log,) = (run / "events").glob("orchestrator-*.jsonl")
    return log


DAMAGE: dict[str, tuple[Act, str]] = {
    "the journal": (lambda run: flip(run / "journal" / "segment-000001.journal"), "the journal is damaged"),
    "the journal removed": (lambda run: shutil.rmtree(run / "journal"), "there is no journal, though"),
    "a checkpoint": (
        lambda run: flip(run / "checkpoints" / "step-000008" / "optimizer.safetensors"),
        "optimizer.safetensors does not match manifest.json",
    ),
    "the export": (
        lambda run: flip(run / "export" / "model.safetensors"),
        "the exported weights are not those that the trainer exported",
    ),
    "rollouts": (
        lambda run: flip(run / "rollouts" / "step-000004.parquet"),
        "the rollouts of step 4 are not those that the trainer recorded",
    ),
    "the config": (
        lambda run: replace(run / "config" / "run.toml", b"max_staleness = 0", b"max_staleness = 9"),
        "config/run.toml is not as the run recorded it",
    ),
    "metrics doubled": (double_metrics, "metrics.jsonl has 2 lines of step 1"),
    "an event": (lambda run: replace(orchestrators_log(run), b'"issued"', b'"issu\xff"'), "is not a JSON object"),
    "what was issued": (
        lambda run: replace(orchestrators_log(run), b'"issued"', b'"hidden"'),
        "was trained but never issued",
    ),
}
"""What is changed -> how, and what the check says of it without any receipt."""


@pytest.mark.parametrize("name", DAMAGE)
def test_check_finds_contradictory_damage_without_a_receipt(copy: Path, name: str) -> None:
    act, told = DAMAGE[name]
    act(copy)
    (copy / "receipts.jsonl").unlink()
    problems = check_run(copy).problems
    assert any(told in problem for problem in problems), problems


REWRITTEN: dict[str, Act] = {
    "a metric": lambda run: replace(run / "metrics.jsonl", b'"reward_mean": -', b'"reward_mean": 9'),
    "an evaluation": lambda run: replace(run / "evals.jsonl", b'"accuracy": ', b'"accuracy": 9'),
    "the time of an event": lambda run: replace(orchestrators_log(run), b'{"t":1', b'{"t":2'),
}
"""What no other file contradicts -> how it is changed."""


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewritten_run_is_found_by_its_chain_or_where_that_is_rewritten_by_a_receipt(
    copy: Path, undisturbed_run: Undisturbed, name: str
) -> None:
    REWRITTEN[name](copy)
    problems = check_run(copy).problems
    assert problems and all("which the receipt of step" in problem for problem in problems), problems
    (copy / "receipts.jsonl").unlink()
    take_receipt(copy, step=STEPS)
    assert check_run(copy).problems == ()
    (problem,) = check_run(copy, undisturbed_run.verdict["receipt"]).problems
    assert "is none of this run: files that it covered were changed" in problem
