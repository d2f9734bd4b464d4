"""The DPO stage: losses on the reference that is computed once, kept, and refused when it is of other data."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.stages.offline import reference
from headrace.services.trainer.stages.offline.dpo import Preference, ReferencedPair
from headrace.services.trainer.stages.offline.examples import read_pairs
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from tests.unit.services.trainer.stages.stage_builders import (
    StopAfter,
    exported,
    metrics,
    pairs,
    run,
    stage_settings,
    write_pairs,
)


def ranked(count, seed=0):
    draw = np.random.default_rng(seed)
    return [
        (draw.integers(2, 9, 3).tolist(), [10, 1], draw.integers(11, 20, draw.integers(1, 4)).tolist(), 0.0)
        for _ in range(count)
    ]


def settings(folder, rows=None, **changes):
    (folder / "run").mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "run" / "examples.parquet", rows or ranked(24))
    write_pairs(folder / "run" / "eval_examples.parquet", ranked(12, seed=1))
    table = {"steps": 8, "batch_size": 8, "learning_rate": 5e-3, **changes}
    return stage_settings(folder / "run", "dpo", trainer={"checkpoint_every": 3}, **table)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "dpo"},
        {"loss": "cdpo", "label_smoothing": 0.1},
        {"loss": "robust", "label_smoothing": 0.1},
        {"loss": "ipo"},
        {"loss": "hinge"},
    ],
)
def test_each_loss_learns_the_ranking(tmp_path, changes):
    chosen = settings(tmp_path, **changes)
    run(chosen)
    before, after = metrics(chosen, "evals")
    assert before["reward_margin"] == pytest.approx(0, abs=1e-5)
    assert after["accuracy"] == 1.0 and after["reward_margin"] > 0.02 and after["loss"] < before["loss"]


def logprob(model, side):
    ids = torch.from_numpy(side.token_ids).long()
    each = torch.log_softmax(model(ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0]
    return each[torch.from_numpy(side.trained[1:])].sum().item()


def test_the_reference_is_the_model_before_the_first_step(tmp_path):
    chosen = settings(tmp_path)
    run(chosen)
    model = AutoModelForCausalLM.from_pretrained(chosen.model.path, dtype=torch.float32)
    kept = load_file(RunPaths(chosen.run_dir).reference_logprobs)
    for name, file in (("train", "examples"), ("held_out", "eval_examples")):
        for pair, values in zip(read_pairs(chosen.run_dir / f"{file}.parquet"), kept[name], strict=True):
            wanted = [logprob(model, side) for side in (pair.chosen, pair.rejected)]
            assert values.tolist() == pytest.approx(wanted, abs=1e-5)


def test_a_resumed_run_computes_no_reference_again_and_ends_in_the_same_bits(tmp_path, monkeypatch):
    whole, halves = settings(tmp_path / "whole"), settings(tmp_path / "halves")
    run(whole)
    run(halves, StopAfter(4))

    def never(*args, **kwargs):
        raise AssertionError("computed again")

    monkeypatch.setattr(reference, "_compute", never)
    run(halves)
    assert exported(halves) == exported(whole)


def test_the_reference_of_other_pairs_or_another_model_is_refused(tmp_path):
    chosen = settings(tmp_path)
    run(chosen)
    with pytest.raises(ConfigError, match="another model or other pairs"):
        run(settings(tmp_path, rows=ranked(24, seed=5)))
    kept = RunPaths(chosen.run_dir).reference_logprobs
    kept.write_bytes(b"torn")
    run(settings(tmp_path))
    assert load_file(kept)["train"].shape == (24, 2)


def test_ipo_takes_the_means_over_each_answers_tokens(tmp_path):
    chosen = settings(tmp_path)
    policy = load_policy(chosen.model.path, device="cpu", forward_dtype=torch.float32)
    backend = make_backend(policy, Ranks.alone(), torch.device("cpu"), BackendOptions())
    given = [ReferencedPair(pair, -3.0 - number, -4.0) for number, pair in enumerate(pairs(5))]
    sums = Preference(kind="ipo", beta=0.2, label_smoothing=0.0, logprob_chunk=8).sums(backend, [(p,) for p in given])
    wanted = 0.0
    for one in given:
        good, bad = (
            (logprob(policy.model, side) - known) / side.trained_tokens
            for side, known in ((one.pair.chosen, one.chosen), (one.pair.rejected, one.rejected))
        )
        wanted += (good - bad - 1 / 0.4) ** 2
    assert sums["loss"].item() == pytest.approx(wanted, rel=1e-5)
