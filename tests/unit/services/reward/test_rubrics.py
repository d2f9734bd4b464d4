"""Rubrics by task, ensembles, and what becomes of a scorer's failures."""

import asyncio

import numpy as np
import pytest
from pydantic import ValidationError

from headrace.services.reward import metrics
from headrace.services.reward.rubric.circuit import TRIES, CircuitOpenError
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.settings import RewardTable
from headrace.wire.errors import ConfigError
from tests.reward_scorers import install, rubrics, scripted
from tests.virtual_time import run_in_own_time


def group(*completions: str, name: str = "g1", **columns: object) -> list[Sample]:
    return [
        Sample(prompt="p", completion=text, columns=columns, group=name, name=f"{name}/{number}")
        for number, text in enumerate(completions)
    ]


def lengths(samples: list[Sample]) -> list[float]:
    return [float(len(sample.completion)) for sample in samples]


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(samples: list[Sample]) -> list[float]:
        raise KeyError("no column 'answer'")

    install(
        monkeypatch,
        length=lengths,
        one=lambda samples: [1.0] * len(samples),
        half=lambda samples: [0.5] * len(samples),
        nan=lambda samples: [float("nan"), *lengths(samples)[1:]],
        short=lambda samples: [1.0],
        unsure=lambda samples: [Verdict.abstain("not my language")] * len(samples),
        bug=bug,
    )


async def test_the_score_is_the_weighted_sum_and_carries_its_parts() -> None:
    made = rubrics(scripted("length", weight=2.0), scripted("half", weight=-1.0))
    first, second = await made.score(group("ab", "abc"), patient=True)
    assert (first.value, second.value) == (3.5, 5.5)
    assert first.components == {"length": 2.0, "half": 0.5}
    assert set(first.seconds) == {"length", "half"}


async def test_each_sample_is_scored_by_the_rubric_of_its_task() -> None:
    made = rubrics(scripted("length"), tasks={"code": {"scorers": [scripted("half")]}}, task_column="kind")
    samples = [*group("abc", kind="code", name="a"), *group("abc", kind="prose", name="b"), *group("abc", name="c")]
    assert [result.value for result in await made.score(samples, patient=True)] == [0.5, 3.0, 3.0]
    versions = {made.version(sample.columns, made.versions(sample.columns)) for sample in samples}
    assert len(versions) == 2
    assert made.versions(samples[0].columns) == {"half": "half@1"}


async def test_an_ensemble_can_be_a_member_of_a_rubric() -> None:
    ensemble = {
        "name": "ensemble",
        "label": "models",
        "combination": "min",
        "members": [scripted("length"), scripted("half")],
    }
    made = rubrics(scripted("one"), ensemble)
    (result,) = await made.score(group("abc"), patient=True)
    assert result.value == 1.5
    assert result.components == {"one": 1.0, "models": 0.5, "models.length": 3.0, "models.half": 0.5}
    assert made.versions({}) == {"one": "one@1", "models.length": "length@1", "models.half": "half@1"}


@pytest.mark.parametrize("script", ["nan", "short"])
async def test_an_invalid_value_is_refused_counted_and_abstains(script: str) -> None:
    before = sum(sample.value for sample in next(iter(metrics.REFUSED.collect())).samples)
    made = rubrics(scripted(script))
    results = await made.score(group("a", "ab"), patient=False)
    assert results[0].value is None and results[0].reason
    assert sum(sample.value for sample in next(iter(metrics.REFUSED.collect())).samples) > before


async def test_an_abstention_by_judgement_is_not_a_failure() -> None:
    made = rubrics(scripted("unsure"))
    for _ in range(10):
        (result,) = await made.score(group("a"), patient=True)
        assert result.value is None and result.reason == "unsure: not my language"
    assert made.trouble() is None


async def test_the_range_of_the_config_narrows_the_scorers_own() -> None:
    made = rubrics(scripted("length", range=[0, 2]))
    assert [result.value for result in await made.score(group("ab", "abc"), patient=True)] == [2.0, None]


async def test_a_group_in_which_every_sample_fails_is_retried_and_then_abstains() -> None:
    made = rubrics(scripted("bug"))
    for _ in range(TRIES - 1):
        with pytest.raises(CircuitOpenError):
            await made.score(group("a", "b"), patient=True)
    results = await made.score(group("a", "b"), patient=True)
    assert [result.value for result in results] == [None, None]
    assert "no column 'answer'" in results[0].reason
    assert made.trouble() is None


def test_all_scorers_of_a_group_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def seconds() -> float:
        made = rubrics(*(scripted(name, options={"seconds": 0.2}) for name in ("one", "half", "length")))
        begin = asyncio.get_running_loop().time()
        await made.score(group("a"), patient=True)
        return asyncio.get_running_loop().time() - begin

    assert run_in_own_time(seconds, monkeypatch) < 0.3


@pytest.mark.parametrize(
    ("scorers", "words"),
    [
        ([scripted("one"), scripted("one")], "a label each"),
        ([scripted("one", label="turns")], "turns names a part of the reward"),
        ([{"name": "exact_mach"}], "did you mean 'exact_match'"),
        ([], "at least one scorer"),
        ([scripted("one", at_least=0.5)], "needs combination = 'gate'"),
    ],
)
def test_an_invalid_rubric_is_rejected_with_a_fix(scorers: list[dict[str, object]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rubrics(*scorers)


def test_the_version_follows_config_combination_and_the_scorers_own_version() -> None:
    def version(made: Rubrics) -> str:
        return made.version({}, made.versions({}))

    base = version(rubrics(scripted("one")))
    assert base == version(rubrics(scripted("one")))
    others = [
        rubrics(scripted("one", weight=2.0)),
        rubrics(scripted("one"), combination="mean"),
        rubrics(scripted("half")),
    ]
    assert len({base, *(version(other) for other in others)}) == 4
    changed = rubrics(scripted("one"))
    changed.slots[0].scorer.version = "one@2"
    assert version(changed) != base


async def test_token_scores_are_weighted_and_unscored_tokens_stay_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")

    def said(*values: float) -> list[Verdict]:
        return [Verdict(value=0.0, token_scores=np.array(values, np.float32))]

    install(monkeypatch, a=lambda samples: said(1.0, nan, nan), b=lambda samples: said(0.5, 2.0, nan))
    sample = Sample(prompt="p", completion="c", group="g", completion_ids=np.array([3, 4, 5], np.int32))
    (result,) = await rubrics(scripted("a", weight=2.0), scripted("b")).score([sample], patient=True)
    assert result.token_scores is not None and result.token_scores.dtype == np.float32
    assert result.token_scores[:2].tolist() == [2.5, 2.0] and np.isnan(result.token_scores[2])


async def test_a_verdict_may_name_the_version_that_scored_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, moving=lambda samples: [Verdict(value=0.0, version="moving@7")] * len(samples))
    ensemble = {"name": "ensemble", "label": "all", "combination": "mean", "members": [scripted("moving")]}
    (result,) = await rubrics(ensemble).score(group("a"), patient=True)
    assert result.versions == {"all.moving": "moving@7"}


async def test_a_verdict_given_without_asking_does_not_count_as_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_down(samples: list[Sample]) -> list[Verdict]:
        return [Verdict(value=0.0, unasked=True), *[Verdict.failure("status 500")] * (len(samples) - 1)]

    install(
        monkeypatch,
        half_down=half_down,
        nobody=lambda samples: [Verdict(value=0.5, unasked=True)] * len(samples),
    )
    made = rubrics(scripted("half_down"))
    for number in range(3):
        with pytest.raises(CircuitOpenError):
            await made.score(group("", "a", "b", name=f"g{number}"), patient=True)
    assert made.room() == 0 and "status 500" in (made.trouble() or "")
    equal = rubrics(scripted("nobody"))
    assert [result.value for result in await equal.score(group("a", "a"), patient=True)] == [0.5, 0.5]


async def test_a_scorer_reads_the_answer_the_whole_or_the_sampled_text() -> None:
    scorers = [
        {"name": "exact_match"},
        {"name": "format", "options": {"pattern": "<think>.*</think>.*"}},
        {"name": "format", "label": "answer", "text": "answer", "options": {"pattern": "42"}},
        {"name": "exact_match", "label": "all", "text": "all"},
    ]
    made = Rubrics(RewardTable(scorers=scorers), Context(component=""))
    samples = [
        Sample(prompt=prompt, completion=said, columns={"answer": "42"})
        for prompt, said in [
            ("?", "<think>4</think>42"),
            ("?<think>\n", "4</think>42"),
            ("?<think>", "42"),
            ("?", "42"),
        ]
    ]
    results = await made.score(samples, patient=False)
    seen = [tuple(one.components[name] for name in ("exact_match", "format", "answer", "all")) for one in results]
    assert seen == [(1, 1, 1, 0), (1, 1, 1, 0), (0, 0, 0, 0), (1, 0, 1, 1)]
    assert [one.answer_start for one in results] == [16, 9, None, 0]


@pytest.mark.parametrize("tags", [["<think>"], ["<a>", "<a>"], ["", "</a>"]])
def test_reasoning_tags_are_a_pair_or_absent(tags: list[str]) -> None:
    with pytest.raises(ValidationError, match="opening and the closing tag"):
        RewardTable(reasoning_tags=tags)
