"""The history checker passes true histories and names what is wrong with forged ones."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from headrace.inspect.history.check import check_run
from headrace.inspect.history.verdict import HistoryVerdict
from headrace.wire.contracts import (
    FinishReason,
    Message,
    PolicyVersion,
    Rollout,
    RolloutGroup,
    Score,
    ScoredGroup,
    VersionSpan,
    encode,
    group_id,
    rollout_id,
)
from headrace.wire.errors import ConfigError
from headrace.wire.journal import DroppedRecord, JournalWriter
from headrace.wire.rundir.events import EventLog, new_life
from tests.builders import header, prompt

RUN = "test"


@dataclass
class Forge:
    """Writes the journal and the events of a run, one group a batch entry; `replica-0` made everything."""

    run_dir: Path
    max_staleness: int = 0
    stale: str = ""
    """Empty: the run directory is from before that key."""
    journal: JournalWriter = field(init=False)
    orchestrator: EventLog = field(init=False)
    rollout: EventLog = field(init=False)
    trainer: EventLog = field(init=False)

    def __post_init__(self) -> None:
        (self.run_dir / "config").mkdir(parents=True)
        policy = f'stale = "{self.stale}"\n' if self.stale else ""
        text = f"[run]\nmax_staleness = {self.max_staleness}\n{policy}[batch]\ngroups = 2\n"
        (self.run_dir / "config" / "run.toml").write_text(text)
        self.orchestrator = EventLog(self.run_dir, "orchestrator", "boot")
        self.rollout = EventLog(self.run_dir, "replica-0", "boot")
        self.trainer = EventLog(self.run_dir, "trainer", 1)
        self.journal = JournalWriter.open(
            self.run_dir / "journal", incarnation=1, version=0, weights_digest="d0", read_to={}
        )

    def issue(self, *indices: int, version: int = 0) -> None:
        for index in indices:
            name = group_id(RUN, index)
            self.orchestrator.append("issued", group_index=index, group_id=name, attempt=0, min_version=version)

    def commit(self, *versions: int) -> None:
        for version in versions:
            self.rollout.append("weights_committed", incarnation=1, version=version, digest=f"d{version}")

    def generate(self, *indices: int, by: EventLog | None = None) -> None:
        for index in indices:
            (by or self.rollout).append("group_generated", group_id=group_id(RUN, index), attempt=0)

    def step(self, step: int, *indices: int, version: int | None = None, digest: str = "", done: bool = True) -> None:
        version = step - 1 if version is None else version
        messages = [encode(scored(index, version, digest or f"d{version}")) for index in indices]
        record = self.journal.batch(step, [(index, group_id(RUN, index)) for index in indices], messages)
        self.trainer.append("batch", step=step, group_ids=list(record.group_ids), digest=record.digest)
        if done:
            self.journal.step_done(step, f"d{step}")
            with (self.run_dir / "metrics.jsonl").open("a") as file:
                file.write(f'{{"step": {step}}}\n')

    def drop(self, index: int, reason: str = "stale") -> None:
        self.journal.dropped([DroppedRecord(group_index=index, group_id=group_id(RUN, index), reason=reason)])

    def end(self, *open_groups: int, version: int = 3) -> None:
        self.orchestrator.append(
            "run_ended", version=version, open_groups=[group_id(RUN, index) for index in open_groups]
        )

    def run(self, steps: int = 3) -> "Forge":
        """A good run: two groups a step."""
        self.issue(*range(2 * steps))
        self.commit(*range(steps))
        for step in range(1, steps + 1):
            self.step(step, 2 * step - 2, 2 * step - 1)
        return self

    def check(self) -> HistoryVerdict:
        return check_run(self.run_dir)


def scored(index: int, version: int, digest: str) -> Message:
    name = rollout_id(group_id(RUN, index), 0)
    one = Rollout(
        rollout_id=name,
        token_ids=np.array([3, 1], np.int32),
        logprobs=np.array([-0.5, -0.25], np.float32),
        finish_reason=FinishReason.STOP,
        spans=(
            VersionSpan(start=0, end=2, version=PolicyVersion(incarnation=1, version=version), weights_digest=digest),
        ),
    )
    group = RolloutGroup(prompt=prompt(size=1), rollouts=(one,), replica_id="replica-0")
    return Message(header=header(index), body=ScoredGroup(group=group, scores=(Score(rollout_id=name, value=1.0),)))


def test_a_true_history_is_in_order(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    forge.issue(6, 7)
    forge.drop(6, "poison")
    forge.end(7)
    verdict = forge.check()
    assert verdict.problems == () and verdict.ok
    assert (verdict.steps, verdict.groups.issued, verdict.groups.trained, verdict.groups.open) == (3, 8, 6, 0)
    assert verdict.groups.dropped == {"poison": 1, "run_ended": 1}
    assert set(json.loads(verdict.as_json())) >= {"ok", "steps", "groups", "weights_sha256", "problems"}


def test_discarded_groups_break_no_order_and_are_counted_by_reason(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.issue(*range(8))
    forge.commit(0, 1)
    forge.drop(0, "uninformative")
    forge.drop(2, "uninformative")
    forge.step(1, 1, 3)
    forge.drop(4, "uninformative")
    forge.drop(6, "stale")
    forge.step(2, 5, 7)
    forge.end(version=2)
    verdict = forge.check()
    assert verdict.ok, verdict.problems
    words = "8 groups issued, 4 trained, 4 dropped (3 uninformative, 1 stale), 0 open"
    assert verdict.groups.in_words() == words


def test_a_trained_group_was_generated_by_the_worker_that_its_rollouts_name(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    assert forge.check().ok, "a run of workers that report no groups"
    forge.generate(0, 1, 2, 3, 4)
    next_life, other = (EventLog(tmp_path, name, "later") for name in ("replica-0", "replica-1"))
    forge.generate(0, by=next_life)  # The first life died before its ack.
    forge.generate(5, by=other)
    group = group_id(RUN, 5)
    assert forge.check().problems == (
        f"group {group} of step 3 was trained as generated by replica-0, which never reported it",
    )
    forge.generate(5, by=next_life)
    assert forge.check().ok


def test_a_discarded_group_that_was_trained_after_all_is_a_problem(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    forge.drop(3, "uninformative")
    assert any("was trained in step 2 and dropped (uninformative)" in problem for problem in forge.check().problems)


def test_a_stopped_run_has_open_groups_and_may_have_a_batch_that_is_not_done(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    forge.issue(6, 7, 8, 9)
    forge.commit(3)
    forge.step(4, 6, 7, done=False)
    verdict = forge.check()
    assert verdict.problems == ()
    assert (verdict.steps, verdict.groups.open) == (3, 2)


def test_check_accepts_a_second_life_of_the_trainer(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    zombie, its_events = forge.journal, forge.trainer
    forge.issue(6, 7, 8, 9)
    forge.commit(3)
    size = (tmp_path / "journal" / "segment-000001.journal").stat().st_size
    forge.journal = JournalWriter.open(
        tmp_path / "journal",
        incarnation=2,
        version=3,
        weights_digest="d3",
        read_to={"segment-000001.journal": size},
    )
    forge.trainer = EventLog(tmp_path, "trainer", 2)
    forge.step(4, 6, 7)
    forge.journal, forge.trainer = zombie, its_events
    zombie.fence = lambda: None  # type: ignore[method-assign]  # it looked just before its successor came
    forge.step(4, 8, 9, done=False)
    assert forge.check().problems == ()


@pytest.mark.parametrize(
    ("forgery", "told"),
    [
        (lambda f: (f.issue(6, 7, 8), f.commit(3), f.step(4, 7, 8)), "trained group 7, though group 6 had come"),
        (lambda f: (f.issue(6, 7), f.commit(3), f.step(3, 6, 7)), "step 3 has 2 batches"),
        (lambda f: (f.issue(6), f.commit(3), f.step(4, 5, 6)), "was trained in step 3 and again in step 4"),
        (lambda f: (f.issue(6, 7), f.commit(3), f.step(5, 6, 7)), "step 4 has no batch"),
        (lambda f: (f.issue(6), f.commit(3), f.step(4, 6, 6)), "is 2 times in the batch"),
        (lambda f: (f.commit(3), f.step(4, 6, 7)), "test/g00000006 was trained but never issued"),
        (lambda f: f.drop(3), "was trained in step 2 and dropped (stale)"),
        (lambda f: (f.issue(6), f.end()), "was issued and then forgotten"),
        (lambda f: (f.issue(6, 8), f.drop(6), f.drop(8), f.end()), "group 7 was skipped"),
        (lambda f: (f.issue(6, 7), f.step(4, 6, 7)), "that replica replica-0 never committed"),
        (lambda f: (f.issue(6, 7), f.commit(3), f.step(4, 6, 7, digest="other")), "never committed"),
        (lambda f: (f.issue(6, 7), f.step(4, 6, 7, version=2)), "was 1 versions old in step 4, 0 are allowed"),
        (lambda f: (f.issue(6, 7), f.commit(4), f.step(4, 6, 7, version=4)), "under version 1.4, which is later"),
        (lambda f: (f.issue(6, 7), f.commit(3), f.step(4, 7, 6)), "is not in order of its groups"),
        (lambda f: f.trainer.append("batch", step=2, group_ids=[], digest="x"), "records two batches of step 2"),
        (lambda f: f.trainer.append("batch", step=4, group_ids=[], digest="x"), "which the journal does not have"),
    ],
)
def test_a_forged_history_is_found_out(tmp_path: Path, forgery: Callable[[Forge], object], told: str) -> None:
    forge = Forge(tmp_path).run()
    forgery(forge)
    verdict = forge.check()
    assert not verdict.ok
    assert any(told in problem for problem in verdict.problems), verdict.problems


def test_the_end_of_a_run_is_its_last_line_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge(tmp_path).run()
    forge.issue(6)
    before = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: before)
    forge.end()
    assert any("was issued and then forgotten" in problem for problem in forge.check().problems)


def test_a_resumed_run_counts_as_unfinished_despite_a_clock_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge(tmp_path)
    forge.orchestrator = EventLog(tmp_path, "orchestrator", new_life(tmp_path, "orchestrator"))
    forge.run().end()
    before = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: before)
    forge.orchestrator = EventLog(tmp_path, "orchestrator", new_life(tmp_path, "orchestrator"))
    forge.issue(6)
    assert forge.check().problems == ()


def test_staleness_up_to_the_bound_is_allowed_and_order_is_free(tmp_path: Path) -> None:
    forge = Forge(tmp_path, max_staleness=1).run()
    forge.issue(6, 7, 8, 9)
    forge.step(4, 8, 9, version=2)
    assert forge.check().problems == ()
    forge.step(5, 6, 7, version=2)
    assert any("2 versions old" in problem for problem in forge.check().problems)


@pytest.mark.parametrize(("stale", "problems"), [("wait", 2), ("mask", 0), ("drop", 0), ("", 0)])
def test_with_wait_the_order_is_strict_at_every_bound(tmp_path: Path, stale: str, problems: int) -> None:
    forge = Forge(tmp_path, max_staleness=1, stale=stale)
    forge.issue(*range(6))
    forge.commit(0, 1, 2)
    forge.drop(1, "uninformative")
    forge.step(1, 0, 3)
    forge.step(2, 2, 4)
    found = forge.check().problems
    assert len(found) == problems, found
    if problems:
        assert found[0] == "step 1 trained group 3, though group 2 had come before it and has no end"


@pytest.mark.parametrize(("then", "problem"), [((7,), ""), ((7, 8), "group 9 was issued at version 2 as the 5th open")])
def test_with_late_credit_is_proved_in_place_of_the_age(tmp_path: Path, then: tuple[int, ...], problem: str) -> None:
    forge = Forge(tmp_path, max_staleness=1, stale="late")
    forge.issue(*range(4))
    forge.commit(0, 1, 2)
    forge.step(1, 1, 2)
    forge.issue(4, 5, version=1)
    forge.step(2, 3, 4)
    forge.drop(5, "poison")
    forge.issue(6, *then, 9, version=2)
    forge.step(3, 0, 6, version=0)
    found = forge.check().problems
    assert (not found) if not problem else (len(found) == 1 and found[0].startswith(problem)), found


def test_with_mask_a_batch_may_exceed_the_bound_but_its_stale_tokens_are_not_trained(tmp_path: Path) -> None:
    forge = Forge(tmp_path, max_staleness=1, stale="mask")
    forge.issue(0, 1)
    forge.commit(0, 1, 2)
    for step in (1, 2):
        forge.step(step, step - 1)
    forge.issue(2)
    forge.step(3, 2, version=0)
    assert forge.check().ok and forge.check().unproven_steps == 3  # What was masked is in no file.
    row = {"group_id": group_id(RUN, 2), "rollout_index": 0, "spans": '[[0, 2, "1.0", "d0"]]', "tokens": 2}
    (tmp_path / "rollouts").mkdir()

    def problems_of(**columns: object) -> tuple[str, ...]:
        parquet.write_table(pa.Table.from_pylist([row | columns]), tmp_path / "rollouts" / "step-000003.parquet")
        return forge.check().problems

    assert problems_of(trained_tokens=0, token_advantages=[None, None]) == ()
    (problem,) = problems_of(trained_tokens=1, token_advantages=None)
    assert "was trained on 1 tokens in step 3, 0 are within run.max_staleness = 1" in problem
    (problem,) = problems_of(trained_tokens=0, token_advantages=[0.5, None])
    assert "has advantages on tokens over run.max_staleness = 1 in step 3" in problem


def test_a_changed_payload_and_a_damaged_journal_are_problems(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    payload = tmp_path / "journal" / "payloads" / "000001-00000002.batch"
    payload.write_bytes(payload.read_bytes()[:-1] + b"x")
    assert any("rollouts of step 2 cannot be read" in problem for problem in forge.check().problems)
    payload.unlink()
    verdict = forge.check()
    assert verdict.ok and verdict.unproven_steps == 1
    assert "the rollouts of 1 steps are gone: their staleness can no longer be checked" in verdict.in_words()
    segment = tmp_path / "journal" / "segment-000001.journal"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert any("the journal is damaged" in problem for problem in forge.check().problems)


def test_the_hash_is_of_the_export_and_must_be_the_trainers(tmp_path: Path) -> None:
    forge = Forge(tmp_path).run()
    assert forge.check().weights_sha256 is None
    (tmp_path / "export").mkdir()
    save_file({"a": np.ones((2, 3), np.float32)}, tmp_path / "export" / "model.safetensors")
    digest = forge.check().weights_sha256
    assert digest and forge.check().ok
    forge.trainer.append("exported", path="export", weights_sha256=digest)
    assert forge.check().ok
    forge.trainer.append("exported", path="export", weights_sha256="0" * 64)
    assert any("exported weights are not those" in problem for problem in forge.check().problems)


def test_check_rejects_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        check_run(tmp_path)
