"""A finished run, forged in every way that is known to us: what `headrace check` finds, and what only a receipt does.

Each forger also replaces the chain of receipts by one of the forged files: the run directory vouches for nothing.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from headrace.inspect.history import check_run
from headrace.inspect.history.weights import weights_sha256
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.receipts import last_receipt, take_receipt
from tests.e2e.undisturbed import Undisturbed
from tests.forger import BatchRecord, Event, Forger, StepDoneRecord, sha256

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Act = Callable[[Forger], object]


def other_weights(folder: Path) -> None:
    """A model of the same layout."""
    path = folder / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})


def swap_batches(f: Forger) -> None:
    one, other = f.batch(2), f.batch(3)
    f.change_batch(2, group_ids=other.group_ids, group_indices=other.group_indices)
    f.change_batch(3, group_ids=one.group_ids, group_indices=one.group_indices)


def swap_payloads(f: Forger) -> None:
    one, other = f.payload(f.last_step), f.payload(f.last_step - 1)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def double_end(f: Forger) -> None:
    f.change_records(lambda one: [one, one] if isinstance(one, StepDoneRecord) and one.step == 3 else [one])


def swap_export(f: Forger) -> None:
    other_weights(f.run / "export")
    f.seal_export(weights_sha256([f.run / "export" / "model.safetensors"]))


def only_the_export(f: Forger) -> None:
    for name in ("journal", "events", "rollouts"):
        shutil.rmtree(f.run / name)


def with_line(f: Forger, service: str, text: bytes) -> None:
    path = f.event_files(service)[0]
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + text + b"\n" + b"".join(rest))


def raise_staleness(f: Forger) -> None:
    path = f.run / "config" / "run.toml"
    path.write_text(path.read_text().replace("max_staleness = 0", "max_staleness = 9"))


def invent_group(f: Forger) -> None:
    batch = f.batch(3)
    names = (*batch.group_ids[:-1], "tiny/g00000999")
    f.change_batch(3, group_ids=names, group_indices=(*batch.group_indices[:-1], 999))


def train_twice(f: Forger) -> None:
    f.change_batch(3, group_ids=f.batch(2).group_ids, group_indices=f.batch(2).group_indices)


def double_batch(f: Forger) -> None:
    f.change_records(lambda one: [one, one] if isinstance(one, BatchRecord) and one.step == 3 else [one])


def remove_batch(f: Forger) -> None:
    f.change_records(lambda one: [] if isinstance(one, BatchRecord) and one.step == 3 else [one])


def flip_checkpoint(f: Forger) -> None:
    f.flip(f.checkpoints()[-1] / "optimizer.safetensors")


def truncate_checkpoints(f: Forger) -> None:
    for folder in f.checkpoints():
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])


def double_metrics(f: Forger) -> None:
    f.write_lines("metrics.jsonl", [*f.lines("metrics.jsonl"), *f.lines("metrics.jsonl")])


def cut_journal(f: Forger) -> None:
    f.write_records(f.records()[:-1])


def flip_journal(f: Forger) -> None:
    data = bytearray(f.segment.read_bytes())
    data[len(data) // 2] ^= 1
    f.segment.write_bytes(data)


def rollouts_again(f: Forger) -> Event:
    """Raises rewards of step 4; the event that records its file anew."""
    f.remove_payloads()
    f.raise_rollout_rewards(4)
    return f.last_event("step_recorded", 4) | {"rollouts": sha256(f.rollout_file(4).read_bytes())}


def checkpoint_again(f: Forger) -> Event:
    """Replaces the last checkpoint; the event that records it anew."""
    folder = f.checkpoints()[-1]
    other_weights(folder)
    before = (f.run / "events" / "trainer-1.jsonl").read_bytes()
    f.seal_checkpoint(folder)
    event = f.last_event("checkpoint_saved", int(folder.name.partition("-")[2]))
    (f.run / "events" / "trainer-1.jsonl").write_bytes(before)
    return event


def export_again(f: Forger) -> Event:
    """Replaces the export; the event that records it anew."""
    other_weights(f.run / "export")
    digest = weights_sha256([f.run / "export" / "model.safetensors"])
    files = {path.name: sha256(path.read_bytes()) for path in (f.run / "export").iterdir()}
    return f.last_event("exported", f.last_step) | {"weights_sha256": digest, "files": files}


def added_logs(f: Forger) -> None:
    raise_staleness(f)
    config = {"event": "config_written", "config": dict(config_digests(f.run))}
    f.add_log("trainer-2", rollouts_again(f), checkpoint_again(f), export_again(f))
    f.add_log("launch-1", config)


FOUND: dict[str, tuple[Act, str]] = {
    # Steps and batches in the journal.
    "a batch removed": (remove_batch, "step 3 has no batch in the journal"),
    "a batch doubled": (double_batch, "step 3 has 2 batches in the journal"),
    "two batches swapped": (swap_batches, "trained group"),
    "a group trained twice": (train_twice, "was trained in step 2 and again in step 3"),
    "a group invented": (invent_group, "tiny/g00000999 was trained but never issued"),
    "a drop of a trained group": (
        lambda f: f.write_records([*f.records(), f.drop(0, "tiny/g00000000", "stale")]),
        "was trained in step 1 and dropped (stale)",
    ),
    "the digest of a batch altered": (lambda f: f.change_batch(3, digest="0" * 64), "is not the one that trainer-1"),
    "the end of a step doubled": (double_end, "the end of step 3 is 2 times in the journal"),
    "the weights of a step altered": (
        lambda f: f.change_done(3, weights_digest="xxh3:" + "0" * 32),
        "committed weights 1.3 as",
    ),
    "the last record cut off": (cut_journal, "the run ended at version 8, but the last step"),
    "a byte of the journal flipped": (flip_journal, "the journal is damaged"),
    "the journal removed": (lambda f: shutil.rmtree(f.run / "journal"), "there is no journal, though"),
    "a segment renamed": (
        lambda f: f.segment.rename(f.segment.with_name("segment-000002.journal")),
        "its head is not that of incarnation 2",
    ),
    # Payloads and rollouts.
    "a byte of a payload flipped": (lambda f: f.flip(f.payload(8)), "the rollouts of step 8 cannot be read"),
    "two payloads swapped": (swap_payloads, "the rollouts of step 7 cannot be read"),
    "a payload outside of the journal": (
        lambda f: f.change_batch(8, payload="../../config/run.toml"),
        "the rollouts of step 8 cannot be read",
    ),
    "the rewards of a payload raised": (lambda f: f.raise_rewards(8), "has the reward 1.0 in the journal's batch, and"),
    "the rewards of rollouts raised": (
        lambda f: (f.remove_payloads(), f.raise_rollout_rewards(4)),
        "the rollouts of step 4 are not those that the trainer recorded",
    ),
    # Events.
    "what was issued removed": (lambda f: f.remove_events("orchestrator", "issued"), "was trained but never issued"),
    "what was committed removed": (
        lambda f: f.remove_events("rollout", "weights_committed"),
        "never committed",
    ),
    "what was generated removed": (
        lambda f: f.remove_events("rollout", "group_generated"),
        "but no service reported it as generated",
    ),
    "the reward service's events removed": (
        lambda f: [path.unlink() for path in f.event_files("reward")],
        "but no service reported it as scored",
    ),
    "the trainer's events removed": (
        lambda f: [path.unlink() for path in f.event_files("trainer")],
        "the events of trainer-1 are gone",
    ),
    "a digest that was committed altered": (
        lambda f: f.set_event("rollout", "weights_committed", digest="xxh3:" + "1" * 32),
        "never committed",
    ),
    "a later version committed": (
        lambda f: f.set_event("rollout", "weights_committed", version=99),
        "committed weights 1.99, which the journal does not have",
    ),
    "an event of a batch altered": (
        lambda f: f.set_event("trainer", "batch", 5, digest="0" * 64),
        "the batch of step 5 in the journal is not the one that trainer-1 records",
    ),
    "a byte that is no text in an event": (
        lambda f: with_line(f, "orchestrator", b'{"t":1,"event":"issued\xff"}'),
        "line 2 is not a JSON object",
    ),
    "an event without a field": (
        lambda f: with_line(f, "orchestrator", b'{"t":1,"event":"issued","group_index":3}'),
        "line 2 (issued) has no group_id, which is a string",
    ),
    "a garbled line among events": (
        lambda f: with_line(f, "rollout", b'{"t":1,"event":"group_gen'),
        "line 2 is not a JSON object",
    ),
    "logs of a life and of a start added": (
        added_logs,
        "events/trainer-2.jsonl is of a life of the trainer that has no journal segment",
    ),
    "the export recorded by a command": (
        lambda f: f.add_log("launch-1", export_again(f)),
        "events/launch-1.jsonl line 1 (exported) is no event of launch",
    ),
    # Models, metrics, config.
    "a byte of a checkpoint flipped": (flip_checkpoint, "optimizer.safetensors does not match manifest.json"),
    "all checkpoints truncated": (truncate_checkpoints, "the checkpoint of step 6 cannot be resumed from"),
    "a byte of the export flipped": (
        lambda f: f.flip(f.run / "export" / "model.safetensors"),
        "the exported weights are not those that the trainer exported",
    ),
    "the export and its event replaced": (swap_export, "the exported weights differ from those of the checkpoint of"),
    "all but the export removed": (only_the_export, "there is no journal, though"),
    "max_staleness raised": (raise_staleness, "config/run.toml is not as trainer-1 recorded it"),
    "metrics doubled": (double_metrics, "metrics.jsonl has 2 lines of step 1"),
}
"""Forgeries that leave two files in disagreement, and what the check says of them."""


def better_metrics(f: Forger) -> None:
    lines = (f.run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"reward_mean": -', b'"reward_mean": 9')
    (f.run / "metrics.jsonl").write_bytes(b"".join(lines))
    f.set_event("trainer", "step_recorded", 4, metrics=sha256(lines[3]))


def better_rollouts(f: Forger) -> None:
    f.remove_payloads()
    f.raise_rollout_rewards(4)
    f.set_event("trainer", "step_recorded", 4, rollouts=sha256(f.rollout_file(4).read_bytes()))


def better_evals(f: Forger) -> None:
    f.write_lines("evals.jsonl", [line | {"accuracy": 1.0} for line in f.lines("evals.jsonl")])


def other_config(f: Forger) -> None:
    raise_staleness(f)
    digest = sha256((f.run / "config" / "run.toml").read_bytes())
    f.change_events(
        "trainer", "incarnation_opened", lambda one: [one | {"config": one["config"] | {"config/run.toml": digest}}]
    )


def other_model(f: Forger) -> None:
    other_weights(f.run / "export")
    other_weights(f.checkpoints()[-1])
    f.seal_checkpoint(f.checkpoints()[-1])
    f.seal_export(weights_sha256([f.run / "export" / "model.safetensors"]))


def other_rewards(f: Forger) -> None:
    f.raise_rewards(8)
    f.raise_rollout_rewards(8)
    f.set_event("trainer", "step_recorded", 8, rollouts=sha256(f.rollout_file(8).read_bytes()))


UNPROVABLE: dict[str, Act] = {
    "the last step hidden everywhere": Forger.hide_last_step,
    "a metric altered, and its event": better_metrics,
    "rewards of rollouts raised, their payload removed, and their event": better_rollouts,
    "rewards raised in payload, rollouts, journal and events": other_rewards,
    "evaluations altered": better_evals,
    "max_staleness raised, and its event": other_config,
    "export and checkpoint replaced, manifest and events": other_model,
    "the moment of an event altered": lambda f: f.set_event("orchestrator", "run_ended", t=1.0e9 * 3),
}
"""Forgeries that change every file that could contradict them."""


def evaluate_again(f: Forger) -> None:
    f.begin_life(2)
    f.write_lines("evals.jsonl", [*f.lines("evals.jsonl"), f.lines("evals.jsonl")[-1] | {"accuracy": 1.0}])


def new_model(f: Forger) -> None:
    f.begin_life(2, checkpoint_again(f), export_again(f))


LATER: dict[str, tuple[Act, str]] = {
    "a later life records rollouts with other rewards": (
        lambda f: f.begin_life(2, rollouts_again(f)),
        "events/trainer-2.jsonl records the rollouts of step 4 again, otherwise than the receipt of step 8 covers",
    ),
    "a later life records another checkpoint and export": (new_model, "records the checkpoint of step 8 again"),
    "a later life evaluates a version again": (
        evaluate_again,
        "evals.jsonl has another line of version 8 than the receipt of step 8 covers",
    ),
}
"""Forgeries that leave every byte of the chain alone and add a life behind it, and what the receipt's check says."""


@pytest.fixture
def forger(undisturbed_run: Undisturbed, tmp_path: Path) -> Forger:
    shutil.copytree(undisturbed_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("*.sock", "socket"))
    return Forger(tmp_path / "run")


def receipt_of(undisturbed_run: Undisturbed) -> str:
    found = last_receipt(undisturbed_run.run_dir)
    assert found is not None
    return found.value


def chain_again(forger: Forger) -> None:
    """What a forger does last: the run directory's own chain is of the forged files."""
    forger.forget_receipts()
    take_receipt(forger.run, step=8, by="command")


def test_there_are_49_forgeries() -> None:
    assert (len(FOUND), len(UNPROVABLE), len(LATER)) == (38, 8, 3)


def test_an_honest_run_passes_without_and_with_its_receipts(forger: Forger, undisturbed_run: Undisturbed) -> None:
    assert check_run(forger.run).problems == ()
    value = receipt_of(undisturbed_run)
    verdict = check_run(forger.run, value)
    assert (verdict.problems, verdict.receipt, verdict.unchained_steps) == ((), value, 0)
    assert verdict.notes == ("the receipt of step 8 covers the whole run",)


@pytest.mark.parametrize("name", FOUND)
def test_a_forgery_that_files_contradict_is_found_without_a_receipt(
    forger: Forger, undisturbed_run: Undisturbed, name: str
) -> None:
    act, told = FOUND[name]
    act(forger)
    chain_again(forger)
    problems = check_run(forger.run).problems
    assert any(told in problem for problem in problems), problems
    assert not check_run(forger.run, receipt_of(undisturbed_run)).ok


@pytest.mark.parametrize("name", UNPROVABLE)
def test_a_forgery_that_no_file_contradicts_is_found_by_the_receipt_alone(
    forger: Forger, undisturbed_run: Undisturbed, name: str
) -> None:
    UNPROVABLE[name](forger)
    chain_again(forger)
    assert check_run(forger.run).problems == ()
    problem, *_ = check_run(forger.run, receipt_of(undisturbed_run)).problems
    assert "is none of this run: files that it covered were changed" in problem


@pytest.mark.parametrize("name", UNPROVABLE)
def test_whoever_leaves_the_chain_of_receipts_alone_is_found_by_it(forger: Forger, name: str) -> None:
    UNPROVABLE[name](forger)
    problems = check_run(forger.run).problems
    assert any("which the receipt of step" in problem or "than its receipt" in problem for problem in problems), (
        problems
    )


@pytest.mark.parametrize("name", LATER)
def test_a_forgery_behind_the_receipt_is_found_by_it_alone(
    forger: Forger, undisturbed_run: Undisturbed, name: str
) -> None:
    act, told = LATER[name]
    act(forger)
    take_receipt(forger.run, step=8, by="command")
    assert check_run(forger.run).problems == ()
    problems = check_run(forger.run, receipt_of(undisturbed_run)).problems
    assert any(told in problem for problem in problems), problems


def test_a_life_that_trains_nothing_after_the_end_leaves_the_receipt_in_order(
    forger: Forger, undisturbed_run: Undisturbed
) -> None:
    same = (forger.last_event("step_recorded", 4), forger.last_event("exported", 8))
    forger.begin_life(2, *same)
    verdict = check_run(forger.run, receipt_of(undisturbed_run))
    said = "the receipt is of step 8, and holds; a later life of the trainer has trained no further step"
    assert (verdict.problems, verdict.notes) == ((), (said,))


def test_a_config_that_a_start_behind_the_receipt_has_written_is_named(
    forger: Forger, undisturbed_run: Undisturbed
) -> None:
    raise_staleness(forger)
    forger.add_log("launch-1", {"event": "config_written", "config": dict(config_digests(forger.run))})
    verdict = check_run(forger.run, receipt_of(undisturbed_run))
    assert verdict.problems == ()
    assert "config/run.toml is not as at the receipt: a later start of the run has recorded it" in verdict.notes
