"""What a receipt proves of a run that was left alone, changed, or gone on with."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.inspect.history import check_run
from headrace.inspect.history.later import SinceReceipt, config_since, read_since, recorded_again
from headrace.inspect.history.receipts import (
    FoundChain,
    ReceiptVerdict,
    chain_holds,
    checked_receipt,
    judge_receipt,
)
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.receipts import CoveredRange, Receipt, ReceiptLine, take_receipt


def receipts(*, by: str = "trainer") -> FoundChain:
    """Two lines: ten bytes of a file, and ten more."""
    first = ReceiptLine(t=1, step=1, by="trainer", previous="", files={"e": CoveredRange(begin=0, end=10, sha256="x")})
    files = {"e": CoveredRange(begin=10, end=20, sha256="y")}
    second = ReceiptLine(t=2, step=2, by=by, previous="r1", files=files)  # type: ignore[arg-type]
    chained = (Receipt(value="r1", line=first), Receipt(value="r2", line=second))
    return FoundChain(receipts=chained, ranges={(0, "e"): "x", (1, "e"): "y"}, sizes={"e": 20})


def test_a_chain_of_receipts_holds_while_its_files_have_what_it_covers() -> None:
    whole = receipts()
    assert list(chain_holds(whole)) == []
    changed = FoundChain(receipts=whole.receipts, ranges={(0, "e"): "z", (1, "e"): "y"}, sizes=whole.sizes)
    assert list(chain_holds(changed)) == ["e was changed between byte 0 and 10, which the receipt of step 1 covers"]
    cut = FoundChain(receipts=whole.receipts, ranges={(0, "e"): "x", (1, "e"): None}, sizes={"e": 15})
    assert list(chain_holds(cut)) == ["e is shorter than its receipt of step 2 covers, or gone"]
    loose = FoundChain(receipts=whole.receipts[1:], ranges={(0, "e"): "y"}, sizes=whole.sizes)
    assert [one.partition(" e ")[0] for one in chain_holds(loose)] == [
        "receipts.jsonl line 1 does not follow the line before it",
        "receipts.jsonl line 1 covers",
    ]


def test_a_receipt_holds_as_long_as_only_a_later_life_adds_to_the_run() -> None:
    ended = receipts(by="command")
    assert judge_receipt(ended, "r2", 2).note == "the receipt of step 2 covers the whole run"
    older = judge_receipt(ended, "r1", 2)
    assert (older.problems, older.is_head) == ((), False)
    assert older.note == "the receipt is of step 1, and holds; the run went on to step 2"
    grown = FoundChain(receipts=ended.receipts, ranges=ended.ranges, sizes={"e": 25})
    assert judge_receipt(grown, "r2", 2).problems == ("e has gained 5 bytes since the run's last process ended",)
    begun = grown_by({"journal/segment-000001.journal": 9})
    assert (begun.problems, begun.is_head) == ((), False)
    assert begun.note == "the receipt is of step 2, and holds; a later life of the trainer has trained no further step"
    (foreign,) = judge_receipt(ended, "r3", 2).problems
    assert "is none of this run" in foreign


def grown_by(sizes: dict[str, int]) -> ReceiptVerdict:
    ended = receipts(by="command")
    return judge_receipt(replace(ended, sizes={"e": 20, **sizes}), "r2", 2)


def test_a_start_that_trained_nothing_adds_only_logs_of_its_own_and_lines_of_replayed_steps() -> None:
    start = {"events/launch-7.jsonl": 9, "events/orchestrator-2.jsonl": 5, "metrics.jsonl": 7}
    verdict = grown_by(start)
    assert (verdict.problems, verdict.is_head) == ((), True)
    said = "the receipt of step 2 holds; a later start of the run has trained nothing, and 21 bytes that it wrote"
    assert verdict.note == f"{said} are not covered"
    for name, size in {"e": 25, "evals.jsonl": 5}.items():
        gained = f"{name} has gained 5 bytes since the run's last process ended"
        assert grown_by({**start, name: size}).problems == (gained,)
    # Without the record of a start.
    assert len(grown_by({"events/orchestrator-2.jsonl": 5, "metrics.jsonl": 7}).problems) == 2


def test_a_segment_older_than_those_of_the_receipt_is_no_later_life() -> None:
    first = ReceiptLine(t=1, step=2, by="command", previous="", files={
        "journal/segment-000002.journal": CoveredRange(begin=0, end=10, sha256="x")
    })  # fmt: skip
    chained = FoundChain(receipts=(Receipt(value="r", line=first),), ranges={}, sizes={})
    for number, is_head in ((1, True), (3, False)):
        sizes = {"journal/segment-000002.journal": 10, f"journal/segment-{number:06d}.journal": 9}
        verdict = judge_receipt(replace(chained, sizes=sizes), "r", 2)
        assert (bool(verdict.problems), verdict.is_head) == (is_head, is_head)


def ended_twice(folder: Path, *, covered: int) -> SinceReceipt:
    """The logs of a run, of which a receipt of step 4 covers the first `covered` lines of the first life."""
    log = EventLog(folder, "trainer", 1)
    log.append("incarnation_opened", incarnation=1, config={"config/run.toml": "a"})
    log.append("step_recorded", step=4, metrics="m", rollouts="r4", rollouts_from=0)
    log.append("checkpoint_saved", step=4, manifest="m4", kept=[4])
    log.append("exported", path="p", weights_sha256="w", step=4, weights_digest="d4", files={"a": "1", "b": "2"})
    lines = log.path.read_bytes().splitlines(keepends=True)
    end = CoveredRange(begin=0, end=sum(map(len, lines[:covered])), sha256="x")
    line = ReceiptLine(t=1, step=4, by="command", previous="", files={"events/trainer-1.jsonl": end})
    found = read_since(folder, FoundChain(receipts=(Receipt(value="r", line=line),), ranges={}, sizes={}), "r")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("event", "values", "problem"),
    [
        ("step_recorded", {"step": 4, "metrics": "", "rollouts": "r4", "rollouts_from": 0}, ""),
        ("step_recorded", {"step": 4, "metrics": "", "rollouts": "", "rollouts_from": 0}, ""),
        ("step_recorded", {"step": 5, "metrics": "", "rollouts": "x", "rollouts_from": 0}, ""),
        (
            "step_recorded",
            {"step": 4, "metrics": "", "rollouts": "x", "rollouts_from": 0},
            "the rollouts of step 4 again",
        ),
        ("checkpoint_saved", {"step": 4, "manifest": "x", "kept": [4]}, "the checkpoint of step 4 again"),
        ("checkpoint_saved", {"step": 3, "manifest": "x", "kept": [4]}, ""),  # The receipt knows none.
        ("exported", {"weights_sha256": "w", "step": 4, "files": {"a": "1", "b": "2"}}, ""),
        ("exported", {"weights_sha256": "v", "step": 4, "files": {"a": "1", "b": "2"}}, "step 4 again (its weights)"),
        ("exported", {"weights_sha256": "w", "step": 4, "files": {"a": "1", "c": "2"}}, "step 4 again (b, c)"),
        ("exported", {"weights_sha256": "v", "step": 5, "files": {"a": "9"}}, ""),
    ],
)
def test_a_later_life_records_what_the_receipt_covers_as_it_was(
    tmp_path: Path, event: str, values: dict[str, object], problem: str
) -> None:
    EventLog(tmp_path, "trainer", 2).append(event, **values)
    told = list(recorded_again(ended_twice(tmp_path, covered=4)))
    assert [problem in one for one in told] == ([True] if problem else []), told
    if problem:
        assert told[0].startswith("events/trainer-2.jsonl records ") and "than the receipt of step 4 covers" in told[0]
        # What the receipt does not cover may be recorded otherwise.
        assert not any("export" in one for one in recorded_again(ended_twice(tmp_path / "b", covered=3)))


def test_an_evaluation_that_the_receipt_covers_has_no_other_line_behind_it(tmp_path: Path) -> None:
    lines = [b'{"version":3,"accuracy":0.1}\n', b'{"version":4,"accuracy":0.1}\n', b'{"version":3,"accuracy":1}\n']
    (tmp_path / "evals.jsonl").write_bytes(b"".join(lines))
    end = CoveredRange(begin=0, end=len(lines[0]), sha256="x")
    line = ReceiptLine(t=1, step=4, by="command", previous="", files={"evals.jsonl": end})
    since = read_since(tmp_path, FoundChain(receipts=(Receipt(value="r", line=line),), ranges={}, sizes={}), "r")
    assert since is not None
    assert list(recorded_again(since)) == [
        "evals.jsonl has another line of version 3 than the receipt of step 4 covers"
    ]


def test_a_config_that_a_later_start_has_written_is_named(tmp_path: Path) -> None:
    since = ended_twice(tmp_path, covered=4)
    assert list(config_since(since, {"config/run.toml": "a"})) == []
    (said,) = config_since(since, {"config/run.toml": "b"})
    assert said == "config/run.toml is not as at the receipt: a later start of the run has recorded it"


@pytest.mark.parametrize("text", ["", "0" * 64, "A" * 64])
def test_a_receipt_is_64_hex_digits(text: str) -> None:
    assert checked_receipt(text) == text.lower()
    with pytest.raises(ConfigError, match="give the 64 hex digits"):
        checked_receipt(text + "g")


def test_a_stage_that_is_resumed_at_its_end_leaves_its_receipt_in_order(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text('[run]\nstage = "sft"\nmax_staleness = 0\n')
    life = {"step": 0, "config": dict(config_digests(tmp_path))}
    log = EventLog(tmp_path, "trainer", "sft")
    log.append("stage_began", **life)
    log.append("checkpoint_saved", step=4, manifest="m4", kept=[])
    log.append("exported", path="export", weights_sha256="w", step=4, files={"a": "1"})
    (tmp_path / "export").mkdir()
    taken = take_receipt(tmp_path, step=0, by="command")
    assert taken is not None
    log.append("exported", path="export", weights_sha256="w", step=4, files={"a": "1"})
    (gained,) = [one for one in check_run(tmp_path, taken.value).problems if "export" not in one]
    assert "events/trainer-sft.jsonl has gained" in gained
    log.append("stage_began", **life)
    verdict = check_run(tmp_path, taken.value)
    assert [one for one in verdict.problems if "export" not in one] == []
    assert verdict.notes[0].endswith("and holds; a later life of the trainer has trained no further step")
    log.append("exported", path="export", weights_sha256="v", step=4, files={"a": "1"})
    assert any("the export of step 4 again (its weights)" in one for one in check_run(tmp_path, taken.value).problems)
