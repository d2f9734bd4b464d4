"""The reward model as a scorer: whole groups, the scores of transformers, and folders that are none refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ForSequenceClassification

from services.reward.rubric import Rubric
from services.reward.scorers import load_group_scorer
from services.reward.scorers import reward_model as module
from services.reward.settings import ScorerTable
from tests.unit.services.trainer.builders import VOCAB, scored_group, tiny_folder, tiny_model
from wire.contracts import RolloutGroup
from wire.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    config = tiny_model().config
    config.num_labels = 1
    path = tmp_path_factory.mktemp("reward")
    Qwen3ForSequenceClassification(config).save_pretrained(path)
    return path


def group(**kwargs: object) -> RolloutGroup:
    return scored_group(2, size=5, **kwargs).group


def test_each_rollout_is_scored_as_transformers_scores_it_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_group_scorer("reward_model", {"path": str(folder)})(group())
    model = Qwen3ForSequenceClassification.from_pretrained(folder).eval()
    for rollout, score in zip(group().rollouts, found, strict=True):
        ids = np.concatenate([group().prompt.token_ids, rollout.token_ids])
        with torch.no_grad():
            alone = model(torch.from_numpy(ids).long()[None]).logits.item()
        assert score == pytest.approx(alone, abs=1e-6)
    assert len(set(found)) == 5
    monkeypatch.setattr(module, "_FORWARD_TOKENS", 20)
    assert load_group_scorer("reward_model", {"path": str(folder)})(group()) == pytest.approx(found, abs=1e-6)


def test_it_is_one_component_of_a_rubric_beside_others(folder: Path) -> None:
    tables = [
        ScorerTable(name="reward_model", weight=2.0, options={"path": str(folder)}),
        ScorerTable(name="length", options={"target": 100}),
    ]
    rubric = Rubric(tables)
    rubric.load()
    for score in rubric.score(group()):
        assert set(score.components) == {"reward_model", "length"}
        assert score.value == pytest.approx(2 * score.components["reward_model"] + score.components["length"])


def test_a_folder_that_is_no_reward_model_is_refused_before_anything_is_loaded(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no model .*run\.stage"):
        load_group_scorer("reward_model", {"path": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="Qwen3ForCausalLM with 2 labels"):
        load_group_scorer("reward_model", {"path": str(tiny_folder(tmp_path / "policy"))})
    with pytest.raises(ConfigError, match=r"reward_model: .*path"):
        load_group_scorer("reward_model", {})
    with pytest.raises(ConfigError, match="dtype 'int8'"):
        load_group_scorer("reward_model", {"path": str(folder), "dtype": "int8"})


def test_a_folder_without_weights_is_refused_when_it_is_loaded(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    rubric = Rubric([ScorerTable(name="reward_model", options={"path": str(tmp_path)})])
    with pytest.raises(ConfigError, match="cannot be loaded on cpu"):
        rubric.load()


def test_tokens_of_another_tokenizer_are_refused(folder: Path) -> None:
    strange = group()
    ids = strange.rollouts[0].token_ids.copy()
    ids[0] = VOCAB
    rollouts = (replace(strange.rollouts[0], token_ids=ids), *strange.rollouts[1:])
    with pytest.raises(DataError, match="must have the policy's tokenizer"):
        load_group_scorer("reward_model", {"path": str(folder)})(replace(strange, rollouts=rollouts))
