"""Judge and reward endpoint against the real server: constrained verdicts of a random model, scores of a tiny head."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders
from transformers import Qwen3ForSequenceClassification

from headrace.services.reward.scorer import Context, Sample, Scorer, ScorerDownError
from headrace.services.reward.scorers.registry import build_scorer
from tests.rollout_models import VOCAB, make_model, save_folder
from tests.sglang import Server, serve, sglang_venv

pytestmark = pytest.mark.sglang


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sglang_venv()
    folder = tmp_path_factory.mktemp("chat")
    path = save_folder(make_model(max_position_embeddings=4096), folder / "model")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    # Characters are joined as they are: JSON with a space between any two is none.
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path / "tokenizer.json"))
    yield from serve(folder, path, "--chat-template", "chatml")


@pytest.fixture(scope="module")
def head() -> Any:
    torch.manual_seed(1)
    config = make_model(max_position_embeddings=4096).config
    config.num_labels = 1
    config.pad_token_id = 94
    return Qwen3ForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, head: Any) -> Iterator[Server]:
    sglang_venv()
    folder = tmp_path_factory.mktemp("classifier")
    path = save_folder(head, folder / "model")
    # SGLang's head has a bias; where the file has none, it stays what chance made it at the start of the server.
    weights = load_file(path / "model.safetensors")
    save_file(weights | {"score.bias": torch.zeros(1)}, path / "model.safetensors", metadata={"format": "pt"})
    yield from serve(folder, path, "--is-embedding")


def scorer(name: str, server: Server, url: str, **options: Any) -> Scorer:
    context = Context(component=name, timeout_s=60.0, allow_hosts=("127.0.0.1",))
    return build_scorer(name, {"url": url, "api_key_file": server.api_key_file} | options, context)


def samples() -> list[Sample]:
    rng = np.random.default_rng(0)
    found = []
    for size in (3, 9, 5, 1):
        ids = rng.integers(0, VOCAB - 3, size=size).astype(np.int32)
        text = "".join(chr(33 + token) for token in ids)
        prompt_ids = np.array([16, 10, 17, 28], np.int32)
        found.append(Sample(prompt="1+2=", completion=text, group="g", prompt_ids=prompt_ids, completion_ids=ids))
    return found


async def test_a_random_model_gives_valid_verdicts_through_the_whole_path(chat: Server) -> None:
    judge = scorer("judge", chat, f"{chat.url}/v1", model="m", reasoning=False, canaries_every=0, max_tokens=64)
    found = await judge.score(samples())
    assert all(verdict.value is not None for verdict in found), found
    assert all(verdict.value * 9 == pytest.approx(round(verdict.value * 9)) for verdict in found if verdict.value)
    cost = judge.cost  # type: ignore[attr-defined]
    assert cost.answers == 4 and cost.unmetered == 0 and cost.tokens_in > 4 * 1000 and cost.tokens_out >= 4 * 11
    await judge.close()


async def test_without_a_constraint_a_random_model_s_words_are_errors(chat: Server) -> None:
    options = {"model": "m", "response_format": "off", "max_tokens": 32, "canaries_every": 0}
    judge = scorer("judge", chat, f"{chat.url}/v1", **options)
    found = await judge.score(samples()[:2])
    assert all(verdict.value is None and "malformed" in verdict.reason for verdict in found)
    await judge.close()


async def test_pairs_are_compared_in_both_orders(chat: Server) -> None:
    judge = scorer(
        "pairwise_judge", chat, f"{chat.url}/v1", model="m", reasoning=False, canaries_every=0, max_tokens=64
    )
    found = await judge.score(samples()[:3])
    assert sum(verdict.value or 0 for verdict in found) == pytest.approx(1.5)
    await judge.close()


async def test_a_wrong_key_is_down(chat: Server, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("wrong")
    judge = scorer("judge", chat, f"{chat.url}/v1", model="m", api_key_file=tmp_path / "key")
    with pytest.raises(ScorerDownError, match="401"):
        await judge.score(samples()[:1])
    await judge.close()


async def test_scores_of_a_served_reward_model_are_those_of_transformers(classifier: Server, head: Any) -> None:
    model = scorer("reward_endpoint", classifier, classifier.url, token_budget=24)
    found = await model.score(samples())
    for sample, verdict in zip(samples(), found, strict=True):
        assert sample.prompt_ids is not None and sample.completion_ids is not None
        ids = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.completion_ids])).long()[None]
        with torch.no_grad():
            assert verdict.value == pytest.approx(head(ids).logits.item(), abs=1e-4), verdict
    await model.close()
    by_text = scorer("reward_endpoint", classifier, classifier.url, send="text")
    again = await by_text.score(samples())
    assert [verdict.value for verdict in again] == pytest.approx([verdict.value for verdict in found], abs=1e-4)
    await by_text.close()
