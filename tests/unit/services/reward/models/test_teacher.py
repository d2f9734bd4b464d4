"""A teacher in this service: each token's logprob is that of transformers, less the policy's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.models import teacher_model
from headrace.services.reward.scorers.registry import build_scorer
from headrace.wire.errors import ConfigError
from tests.reward_scorers import loaded_scorer, rubrics
from tests.teachers import SEQUENCES, Reference, samples
from tests.unit.services.trainer.builders import tiny_classifier
from tests.unit.services.trainer.families import family


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("teacher"))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_each_token_scores_the_teachers_logprob_less_the_policys(
    reference: Reference, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_model, "_ELEMENTS", 3 * 24)  # Logits of three tokens at a time.
    given = samples(temperature)
    async with loaded_scorer("teacher", {"path": str(reference.folder)}) as scorer:
        found = await scorer.score(given)
    for number, (verdict, sample) in enumerate(zip(found, given, strict=True)):
        wanted = reference.gaps(number, sample)
        assert verdict.value == 0 and verdict.token_scores is not None and verdict.token_scores.dtype == np.float32
        np.testing.assert_allclose(verdict.token_scores, wanted, rtol=0, atol=1e-5)
        assert verdict.parts["kl"] == pytest.approx(-np.nanmean(wanted), abs=1e-5)
    whole = reference.logprobs([5, 6, 7, 4, 23, 7, 1], temperature)[2:]
    assert found[0].parts["agreement"] == np.mean(whole.argmax(axis=1) == [4, 23, 7, 1])
    assert found[0].parts["entropy"] == pytest.approx(-(np.exp(whole) * whole).sum(axis=1).mean(), abs=1e-5)


async def test_teachers_count_by_their_weights_and_text_alone_abstains(reference: Reference) -> None:
    options = {"path": str(reference.folder)}
    both = rubrics(
        {"name": "teacher", "weight": 0.75, "options": options},
        {"name": "teacher", "label": "other", "weight": 0.5, "options": options},
        {"name": "length", "options": {"target": 1}},
    )
    await both.load()
    text = Sample(prompt="a", completion="b")
    found = await both.score([samples()[0], text], patient=False)
    await both.close()
    np.testing.assert_allclose(found[0].token_scores, 1.25 * reference.gaps(0, samples()[0]), rtol=0, atol=2e-5)
    assert found[0].value == found[0].components["length"] and "other.kl" in found[0].components
    assert found[1].value is None and "only text came" in found[1].reason


ALPHABET = "abcdefghijklmnopqrstuv"
"""Of the tokens 2 to 23."""
CHAT = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"
MESSAGES = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "def"}]


@pytest.mark.parametrize(
    ("chat", "more", "read"),
    [(CHAT, {"prompt_messages": MESSAGES}, "ubacuhiihdefa"), ("", {}, "hiihdef")],
    ids=["messages", "text"],
)
async def test_a_teacher_reads_columns_that_the_policy_does_not_see(
    tmp_path: Path, chat: str, more: dict[str, Any], read: str
) -> None:
    write_model(tmp_path, character_tokenizer(ALPHABET), Shape(), seed=0, chat_template=chat)
    reference = Reference(tmp_path)
    columns = more | {"solution": "hi", "last": "ih"}
    sample = replace(samples(0.7)[0], prompt="def", columns=columns)
    options = {"path": str(tmp_path), "template": "$solution$last$prompt"}
    async with loaded_scorer("teacher", options) as scorer:
        (found,) = await scorer.score([sample])
        assert scorer.problem(columns) is None
        assert "'last', which is missing or empty" in str(scorer.problem(columns | {"last": None}))
        other = {} if chat else {"prompt_messages": MESSAGES}
        assert "needs messages as prompts" in str(scorer.problem({"solution": "hi", "last": "ih"} | other))
    context, (_, said) = [ALPHABET.index(one) + 2 for one in read], SEQUENCES[0][0]
    whole = reference.logprobs([*context, *said], 0.7)[len(context) - 1 :]
    wanted = whole[np.arange(len(said)), said] - sample.logprobs
    np.testing.assert_allclose(found.token_scores, wanted, rtol=0, atol=1e-5)
    assert np.abs(wanted - reference.gaps(0, sample)).max() > 1e-2


async def test_what_is_no_teacher_is_refused(reference: Reference, tmp_path: Path) -> None:
    context = Context(component="mine")
    tiny_classifier().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"mine: .* is a Qwen3ForSequenceClassification, not a \*ForCausalLM"):
        build_scorer("teacher", {"path": str(tmp_path)}, context)
    for options in ({}, {"path": "x", "url": "http://127.0.0.1:1"}):
        with pytest.raises(ConfigError, match=r"options\.path .* or options\.url"):
            build_scorer("teacher", options, context)
    with pytest.raises(ConfigError, match=r"mine: options\.template: give \$prompt a place"):
        build_scorer("teacher", {"path": str(reference.folder), "template": "$solution"}, context)
    family("gemma2").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"mine: .*: it caps its logits: .*; serve it"):
        await build_scorer("teacher", {"path": str(tmp_path)}, context).load()
