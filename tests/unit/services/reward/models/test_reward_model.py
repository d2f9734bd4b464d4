"""The reward model as a scorer: the scores of transformers, whatever shares the pass; and folders that are none."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel, Qwen3ForSequenceClassification

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer
from headrace.data.examples import RankedPair
from headrace.model.tiny_models import character_tokenizer
from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.scorers.registry import build_scorer
from headrace.wire.errors import ConfigError
from tests.reward_scorers import loaded_scorer
from tests.unit.services.trainer.builders import VOCAB, scored_group, tiny_config, tiny_folder

CHARACTERS = "abcdefghijklmnopqrstuv"
CONTEXT = Context(component="rm", timeout_s=20.0)
TEMPLATE = (
    "{% for m in messages %}{{ 'u' if m.role == 'user' else 'v' }}{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}v{% endif %}"
)


def write_folder(path: Path, *, seed: int = 3, template: str = "") -> Path:
    torch.manual_seed(seed)
    Qwen3ForSequenceClassification(tiny_config(num_labels=1)).save_pretrained(path)
    character_tokenizer(CHARACTERS).save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<pad>"}
    config |= {"chat_template": template} if template else {}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("reward"))


def alone(folder: Path, ids: Any) -> float:
    """What transformers says of one sequence."""
    model = Qwen3ForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        found: float = model(torch.as_tensor(np.asarray(ids)).long()[None]).logits.item()
    return found


def samples(index: int = 2, size: int = 5) -> list[Sample]:
    return samples_of(scored_group(index, size=size).group, f"g{index}")


def ids_of(sample: Sample) -> Any:
    assert sample.prompt_ids is not None and sample.completion_ids is not None
    return np.concatenate([sample.prompt_ids, sample.completion_ids])


async def scored(folder: Path, given: list[Sample], **options: Any) -> list[Verdict]:
    async with loaded_scorer(
        "reward_model", {"path": str(folder), **options}, component="rm", timeout_s=20.0
    ) as scorer:
        return list(await scorer.score(given))


def numbers(verdicts: list[Verdict]) -> list[float]:
    assert all(verdict.value is not None for verdict in verdicts), [verdict.reason for verdict in verdicts]
    return [verdict.value for verdict in verdicts if verdict.value is not None]


async def test_each_sample_is_scored_as_transformers_scores_it_alone(folder: Path) -> None:
    given = [*samples(2), *samples(7)]
    expected = [alone(folder, ids_of(sample)) for sample in given]
    assert numbers(await scored(folder, given)) == pytest.approx(expected, abs=1e-6)
    assert numbers(await scored(folder, given, max_tokens=20)) == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) == 10


async def test_without_join_scores_are_bit_equal_regardless_of_concurrent_groups(folder: Path) -> None:
    async with loaded_scorer("reward_model", {"path": str(folder), "join": False}) as scorer:
        by_itself = await scorer.score(samples(0))
        among = (await asyncio.gather(*(scorer.score(samples(index)) for index in range(5))))[0]
        assert by_itself == among


async def test_loading_models_concurrently_leaves_library_state_unchanged(folder: Path) -> None:
    """transformers replaces functions and the default dtype for all threads while it loads."""
    state = PreTrainedModel.tie_weights, torch.linspace, torch.nn.init.normal_, torch.get_default_dtype()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(5):
            scorers = [
                build_scorer("reward_model", {"path": str(folder), "dtype": "bfloat16"}, CONTEXT) for _ in range(4)
            ]
            await asyncio.gather(*(scorer.load() for scorer in scorers))
            await asyncio.gather(*(scorer.close() for scorer in scorers))
            found = PreTrainedModel.tie_weights, torch.linspace, torch.nn.init.normal_, torch.get_default_dtype()
            assert found == state
    finally:
        sys.setswitchinterval(interval)
        PreTrainedModel.tie_weights, torch.linspace, torch.nn.init.normal_, _ = state  # type: ignore[method-assign]
        torch.set_default_dtype(state[-1])


async def test_samples_of_text_are_tokenized_as_the_stage_prepares_its_pairs(folder: Path, tmp_path: Path) -> None:
    for name, template in (("plain", ""), ("chat", TEMPLATE)):
        path = write_folder(tmp_path / name, template=template)
        tokenizer = AutoTokenizer.from_pretrained(path)
        pair = ExampleRenderer(tokenizer, DataTable(path="x"), [1]).pair(
            RankedPair(place="", prompt="abc", chosen="de", rejected="f", margin=0.0)
        )
        expected = [alone(path, [*pair.prompt_ids, *ids]) for ids in (pair.chosen_ids, pair.rejected_ids)]
        given = [Sample(prompt="abc", completion=text) for text in ("de", "f")]
        assert numbers(await scored(path, given)) == pytest.approx(expected, abs=1e-6)
        # Beside samples that bring their ids.
        mixed = await scored(path, [*samples(), *given])
        assert numbers(mixed)[-2:] == pytest.approx(expected, abs=1e-6)
    never = numbers(await scored(tmp_path / "chat", given, chat_template="never"))
    assert never == pytest.approx(numbers(await scored(tmp_path / "plain", given)), abs=1e-6)


async def test_unknown_tokens_fail_their_sample_only(folder: Path) -> None:
    given = samples()
    strange = Sample(
        prompt="", completion="", prompt_ids=given[0].prompt_ids, completion_ids=np.array([VOCAB], np.int32)
    )
    long = Sample(prompt="", completion="", prompt_ids=given[0].prompt_ids, completion_ids=np.full(128, 2, np.int32))
    found = await scored(folder, [given[0], strange, long, given[1]])
    assert [verdict.failed for verdict in found] == [False, True, True, False]
    assert found[1].value is None and f"token {VOCAB} is not among its {VOCAB}" in found[1].reason
    assert "more than its context of 128" in found[2].reason
    assert [found[0].value, found[3].value] == pytest.approx(
        [alone(folder, ids_of(one)) for one in given[:2]], abs=1e-6
    )


async def test_its_version_follows_the_weights(folder: Path, tmp_path: Path) -> None:
    versions = []
    for path in (folder, write_folder(tmp_path / "same"), write_folder(tmp_path / "other", seed=4)):
        scorer = build_scorer("reward_model", {"path": str(path)}, CONTEXT)
        await scorer.load()
        await scorer.close()
        versions.append(scorer.version)
    assert versions[0] == versions[1] != versions[2]


async def test_a_folder_without_a_reward_model_is_refused_before_anything_is_loaded(
    tmp_path: Path, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=r"holds no model .*run\.stage"):
        build_scorer("reward_model", {"path": str(tmp_path / "none")}, CONTEXT)
    with pytest.raises(ConfigError, match="Qwen3ForCausalLM with 2 labels"):
        build_scorer("reward_model", {"path": str(tiny_folder(tmp_path / "policy"))}, CONTEXT)
    with pytest.raises(ConfigError, match=r"rm: options\.path"):
        build_scorer("reward_model", {}, CONTEXT)
    with pytest.raises(ConfigError, match=r"rm: options\.dtype"):
        build_scorer("reward_model", {"path": str(folder), "dtype": "int8"}, CONTEXT)
    with pytest.raises(ConfigError, match=r"rm: options\.normalize\.std"):
        build_scorer("reward_model", {"path": str(folder), "normalize": {"std": 0}}, CONTEXT)
