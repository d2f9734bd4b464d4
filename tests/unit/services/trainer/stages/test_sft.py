"""The supervised stage: the loss of what is trained only, packed or not, and a model that loads."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from headrace.services.trainer.stages.offline.examples import read_examples
from tests.unit.services.trainer.stages.stage_builders import metrics, run, stage_settings, write_examples

ROWS = [([5, 6 + n % 3], [9 + n % 3, 10, 1][: 2 + n % 2]) for n in range(12)]


def settings(folder, rows=ROWS, **changes):
    (folder / "run").mkdir(exist_ok=True)
    write_examples(folder / "run" / "examples.parquet", rows)
    table = {"steps": 25, "batch_size": 8, "learning_rate": 1e-2, **changes}
    return stage_settings(folder / "run", "sft", **table)


def losses(chosen):
    return [row["loss"] for row in metrics(chosen)]


def test_it_lowers_the_loss_and_writes_a_model_that_loads(tmp_path):
    chosen = settings(tmp_path)
    assert run(chosen)
    found = losses(chosen)
    assert len(found) == 25 and found[-1] < 0.5 * found[0]
    model = AutoModelForCausalLM.from_pretrained(chosen.run_dir / "export")
    ids = torch.tensor([[5, 6, 9, 10]])
    assert model(ids).logits[0, 1:3].argmax(-1).tolist() == [9, 10]


def test_it_stops_where_the_loss_is_low_enough(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = settings(tmp_path / "a")
    run(whole)
    target = sum(losses(whole)[8:16]) / 8
    short = settings(tmp_path / "b", target_loss=target)
    run(short)
    assert losses(short) == losses(whole)[:16]


def test_the_loss_is_the_mean_over_the_trained_tokens_of_the_step(tmp_path):
    rows = [
        (prompt, [*answer, 3, 4, *answer], [*([True] * len(answer)), False, False, *([True] * len(answer))])
        for prompt, answer in ROWS
    ]
    chosen = settings(tmp_path, rows, steps=1, batch_size=12)
    run(chosen)
    model = AutoModelForCausalLM.from_pretrained(chosen.model.path, dtype=torch.float32)
    terms = []
    for example in read_examples(chosen.run_dir / "examples.parquet"):
        ids = torch.from_numpy(example.token_ids).long()[None]
        logprobs = torch.log_softmax(model(ids).logits[0, :-1], -1)
        each = -logprobs.gather(1, ids[0, 1:, None]).squeeze(1)
        terms.append(each[torch.from_numpy(example.trained[1:])])
    assert losses(chosen)[0] == pytest.approx(torch.cat(terms).mean().item(), rel=1e-5)


def test_packed_rows_give_the_same_losses_step_by_step(tmp_path):
    found = []
    for name, changes in (("a", {}), ("b", {"pack_tokens": 16})):
        (tmp_path / name).mkdir()
        chosen = settings(tmp_path / name, steps=6, **changes)
        run(chosen)
        found.append(losses(chosen))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
