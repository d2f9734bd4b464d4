"""A replay's files, of a run that goes on meanwhile."""

import shutil

from headrace.services.trainer.config.replay import ReplayTable
from headrace.services.trainer.stages.replay.source import hold_source
from headrace.wire.journal import JournalWriter, prune_payloads, read_payload


def run_with(tmp_path, *, steps, checkpoints):
    run = tmp_path / "run"
    writer = JournalWriter.open(run / "journal", incarnation=1, version=0, weights_digest="", read_to={})
    for step in range(1, steps + 1):
        writer.batch(step, [(step, f"run/g{step:08d}")], [f"batch {step}".encode()])
        writer.step_done(step, f"digest {step}")
    writer.close()
    for step in checkpoints:
        checkpoint(run, step)
    return run


def checkpoint(run, step):
    folder = run / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text(f"weights {step}")


def test_held_replay_sources_survive_pruning_by_the_run(tmp_path):
    run = run_with(tmp_path, steps=6, checkpoints=[3])
    prune_payloads(run / "journal", 3)
    source = hold_source(ReplayTable(source=run), tmp_path / "held")
    shutil.rmtree(run / "checkpoints")
    prune_payloads(run / "journal", 6)
    assert (source.plan.after, source.plan.last) == (3, 6)
    assert (source.checkpoint / "model.safetensors").read_text() == "weights 3"
    assert [read_payload(source.journal, source.history.batches[step]) for step in (4, 5, 6)] == [
        [b"batch 4"], [b"batch 5"], [b"batch 6"],
    ]  # fmt: skip
    assert source.history.digests[6] == "digest 6"
