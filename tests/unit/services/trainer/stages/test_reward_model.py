"""The reward-model stage: it learns to rank, and what it exports is a standard folder with the same scores."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.loading import load_value_model
from headrace.services.trainer.stages.offline.reward_model import RankedScores
from headrace.services.trainer.stages.offline.rows import last_places
from tests.unit.services.trainer.stages.stage_builders import metrics, pairs, run, stage_settings, write_pairs


def ranked(count, seed=0):
    """The better answer holds the token 9."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        prompt = draw.integers(2, 9, 3).tolist()
        good = [*draw.integers(2, 9, draw.integers(0, 3)).tolist(), 9, 1]
        rows.append((prompt, good, [*draw.integers(2, 9, draw.integers(1, 4)).tolist(), 1], 0.0))
    return rows


def settings(folder, **changes):
    (folder / "run").mkdir(exist_ok=True)
    write_pairs(folder / "run" / "examples.parquet", ranked(64))
    write_pairs(folder / "run" / "eval_examples.parquet", ranked(32, seed=1))
    table = {"steps": 30, "batch_size": 16, "learning_rate": 1e-2, **changes}
    return stage_settings(folder / "run", "reward_model", **table)


def test_it_learns_to_rank_held_out_pairs(tmp_path):
    chosen = settings(tmp_path, centering=0.01)
    run(chosen)
    before, after = metrics(chosen, "evals")
    assert before["accuracy"] == 0.5 and before["loss"] == pytest.approx(np.log(2))  # A head of zeros.
    assert after["accuracy"] > 0.95 and after["margin"] > 1
    assert abs(after["chosen_score"] + after["rejected_score"]) < after["margin"]


def test_its_folder_loads_in_transformers_with_the_same_scores(tmp_path):
    chosen = settings(tmp_path)
    run(chosen)
    folder = chosen.run_dir / "export"
    model, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert model.config.num_labels == 1 and not info["missing_keys"] and not info["unexpected_keys"]
    ours = load_value_model(folder, device="cpu", forward_dtype=torch.float32)
    sides = [side for pair in pairs(9) for side in (pair.chosen, pair.rejected)]
    token_ids, rows, places = last_places(sides, torch.device("cpu"))
    with torch.no_grad():
        found = ours(token_ids, rows, places)[:, 0]
        for row, side in enumerate(sides):
            ids = torch.from_numpy(side.token_ids).long()[None]
            assert model(ids).logits.item() == pytest.approx(found[row].item(), abs=1e-6)
        # Padded with the config's own pad token, as pipelines do: 0 here.
        assert model(token_ids).logits[:, 0].tolist() == pytest.approx(found.tolist(), abs=1e-6)


def test_the_reward_model_folder_has_no_pad_token_if_answers_end_with_it(tmp_path):
    chosen = settings(tmp_path, steps=2)
    file = chosen.model.path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token_id": 1}))
    run(chosen)
    model = AutoModelForSequenceClassification.from_pretrained(chosen.run_dir / "export")
    ours = load_value_model(chosen.run_dir / "export", device="cpu", forward_dtype=torch.float32)
    ids = torch.tensor([[5, 6, 9, 1]])
    at = torch.tensor([0]), torch.tensor([3])
    assert model(ids).logits.item() == pytest.approx(ours(ids, *at).item(), abs=1e-6)
    with pytest.raises(ValueError, match="padding token"):
        model(ids.repeat(2, 1))


def test_the_loss_has_the_pairs_margins_and_the_mean_is_over_pairs(tmp_path):
    settings(tmp_path)
    model = load_value_model(tmp_path / "model", device="cpu", forward_dtype=torch.float32)
    torch.nn.init.normal_(model.model.score.weight)
    backend = make_backend(model, Ranks.alone(), torch.device("cpu"), BackendOptions())
    given = pairs(7)
    sums = RankedScores(centering=0.5).sums(backend, [(pair,) for pair in given])
    wanted = 0.0
    for pair in given:
        good, bad = (
            model.model(torch.from_numpy(side.token_ids).long()[None]).logits.item()
            for side in (pair.chosen, pair.rejected)
        )
        wanted += np.log1p(np.exp(bad - good + pair.margin)) + 0.5 * (good + bad) ** 2
    assert sums["loss"].item() == pytest.approx(wanted, rel=1e-5)
    assert RankedScores(centering=0.5).weight(given) == 7
