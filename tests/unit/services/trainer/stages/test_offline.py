"""The loop of all stages on given examples: order, normalizers, ranks, resume."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.config.stage import SftTable
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.stages.offline.sft import Supervised
from headrace.services.trainer.stages.offline.step import OfflineStep, Plan
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.builders import tiny_model
from tests.unit.services.trainer.stages.stage_builders import (
    StopAfter,
    examples,
    exported,
    metrics,
    run,
    stage_settings,
    write_examples,
    write_pairs,
)

MEASURED = ("t", "seconds", "trained_tokens_per_second", "peak_host_memory_bytes")
ROWS = [([5, 6 + n % 3], [9 + n % 3, 10, 1][: 2 + n % 2]) for n in range(20)]


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 4), st.integers(0, 5))
def test_each_epoch_sees_every_example_once(count, batch, epochs, seed):
    plan = Plan(SftTable(epochs=epochs, batch_size=batch), count, seed)
    rows = list(itertools.chain.from_iterable(plan.rows(step) for step in range(1, plan.steps + 1)))
    assert len(rows) == epochs * count
    for epoch in range(epochs):
        assert sorted(rows[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert plan.epoch(plan.steps) == epochs


def test_each_epoch_has_its_own_order_and_any_step_is_computed_directly():
    plan = Plan(SftTable(epochs=3, batch_size=10), 50, 1)
    first, second = ([row for step in steps for row in plan.rows(step)] for steps in (range(1, 6), range(6, 11)))
    assert first != second
    assert Plan(SftTable(epochs=3, batch_size=10), 50, 1).rows(9) == plan.rows(9)
    assert Plan(SftTable(epochs=3, batch_size=10), 50, 2).rows(1) != plan.rows(1)
    assert Plan(SftTable(steps=7, batch_size=10), 4, 1).steps == 7


def one_step(budget, given_examples):
    torch.manual_seed(0)
    policy = Policy(tiny_model(layers=2).double(), forward_dtype=torch.float64)
    backend = make_backend(policy, Ranks.alone(), torch.device("cpu"), BackendOptions())
    step = OfflineStep(backend, Supervised(pack_tokens=0, logprob_chunk=16), micro_batch_tokens=budget)
    found = step.train(given_examples, learning_rate=1e-2, grad_clip=0.0)
    return found, {name: weight.detach().clone() for name, weight in policy.named_weights()}


@pytest.mark.parametrize("budget", [1, 30, 100])
def test_the_size_of_micro_batches_changes_no_step(budget):
    given_examples = examples(16, seed=3)
    whole, weights = one_step(10_000, given_examples)
    found, others = one_step(budget, given_examples)
    assert found == pytest.approx(whole, rel=1e-9)
    for name, weight in weights.items():
        assert (others[name] - weight).abs().max() < 1e-9


def settings(folder, **changes):
    (folder / "run").mkdir(exist_ok=True)
    for name, rows in (("examples", ROWS), ("eval_examples", ROWS[:3])):
        write_examples(folder / "run" / f"{name}.parquet", rows)
    trainer = {"checkpoint_every": 3} | changes.pop("trainer", {})
    table = {"steps": 10, "batch_size": 4, "learning_rate": 1e-2, "eval_every": 5, **changes}
    return stage_settings(folder / "run", "sft", trainer=trainer, **table)


@pytest.mark.parametrize("stopped", [1, 3, 5])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, stopped):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    whole.mkdir()
    halves.mkdir()
    run(settings(whole))
    assert not run(settings(halves), StopAfter(stopped))
    assert len(metrics(settings(halves))) == stopped
    run(settings(halves))
    assert exported(settings(halves)) == exported(settings(whole))
    for name in ("metrics", "evals"):
        kept = [
            [{key: value for key, value in row.items() if key not in MEASURED} for row in metrics(one, name)]
            for one in (settings(halves), settings(whole))
        ]
        assert kept[0] == kept[1]
    assert [row["version"] for row in metrics(settings(halves), "evals")] == [0, 5, 10]


@pytest.mark.parametrize(("every", "kept"), [("1h", ["step-000010"]), (3, ["step-000009", "step-000010"])])
def test_checkpoints_come_by_time_or_by_steps_and_at_the_end(tmp_path, every, kept):
    run(settings(tmp_path, trainer={"checkpoint_every": every}))
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == kept


def test_a_run_that_may_not_resume_refuses_a_used_folder(tmp_path):
    run(settings(tmp_path))
    with pytest.raises(ConfigError, match="holds a run already"):
        run(settings(tmp_path, trainer={"resume": False}))


@pytest.mark.parametrize("stage", ["sft", "dpo", "reward_model"])
def test_a_step_tells_its_work_its_speed_and_its_memory(stage, tmp_path):
    torch.manual_seed(0)
    (tmp_path / "run").mkdir()
    write_examples(tmp_path / "run" / "examples.parquet", [([5, 6], [9, 10, 1]), ([5], [9, 1])])
    if stage != "sft":
        write_pairs(tmp_path / "run" / "examples.parquet", [([5, 6], [9, 10, 1], [9, 1], 0.0)])
    chosen = stage_settings(
        tmp_path / "run", stage, steps=1, batch_size=2, **({"pack_tokens": 8} if stage == "sft" else {})
    )
    run(chosen)
    (line,) = metrics(chosen)
    # A layer of 16: queries and output 2 * 16 * 16, keys and values 2 * 16 * 8, MLP 3 * 16 * 32; 2 heads of 8.
    body, vocabulary, reward = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32, 24 * 16, 16
    rows, head, tokens = {
        # All but the last token of each sequence goes through the model, and what is said is scored.
        "sft": ([4, 2], 5 * vocabulary, 5),
        "dpo": ([4, 3], 5 * vocabulary, 5),
        # The last token, too, and it alone is scored.
        "reward_model": ([5, 4], 2 * reward, 9),
    }[stage]
    attention = 12 * 2 * 8 * sum(row * (row + 1) // 2 for row in rows)
    assert line["model_flops"] == 6 * body * sum(rows) + 6 * head + attention
    assert line["trained_tokens"] == tokens
    assert line["trained_tokens_per_second"] == pytest.approx(tokens / line["seconds"])
    assert line["peak_host_memory_bytes"] > 50 << 20
    assert not {"mfu", "peak_device_memory_bytes", "generated_tokens_per_second"} & line.keys()
