"""The built-in scorers read a completion as a person would; a broken row is an error, never a zero."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.reward.rubric import Rubric
from services.reward.scorers import load_scorer
from services.reward.scorers.numbers import final_number
from services.reward.settings import ScorerTable
from tests import builders
from wire.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 + 4 = 7.", "7"),
        ("#### 1,234", "1234"),
        ("5 apples\n#### 18\n", "18"),
        (r"thus \boxed{42} and 7 more", "42"),
        (r"\boxed{\frac{1}{2}} = 0.5, \boxed{0.5}", "0.5"),
        ("$18.00", "18.00"),
        ("-3", "-3"),
        ("1/4", "0.25"),
        ("no number", None),
        ("", None),
        ("#### none", None),
        (r"\boxed{7", "7"),
    ],
)
def test_the_final_number_is_the_one_a_person_reads(text: str, number: str | None) -> None:
    assert final_number(text) == (None if number is None else Decimal(number))


@given(st.integers(-(10**12), 10**12), st.text(alphabet=" abc\n.,=", max_size=30))
def test_a_trailing_integer_is_read_whatever_stands_before_it(number: int, before: str) -> None:
    assert final_number(f"{before} {number}") == number


def test_numeric_compares_values_not_spellings() -> None:
    scorer = load_scorer("numeric", {})
    columns = {"answer": "Some steps <<2*9=18>>\n#### 18"}
    assert scorer(builders.rollout(text="It is $18.00"), columns) == 1.0
    assert scorer(builders.rollout(text="It is 19"), columns) == 0.0
    assert scorer(builders.rollout(text="no idea"), columns) == 0.0


def test_a_row_without_a_number_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="holds no number"):
        load_scorer("numeric", {})(builders.rollout(text="3"), {"answer": "three"})


def test_a_missing_column_is_named() -> None:
    with pytest.raises(KeyError, match="label"):
        load_scorer("exact_match", {"answer": "label"})(builders.rollout(), {"answer": "3"})


def test_exact_match_ignores_outer_white_space_only() -> None:
    scorer = load_scorer("exact_match", {})
    assert scorer(builders.rollout(text=" 3\n"), {"answer": "3"}) == 1.0
    assert scorer(builders.rollout(text="3 3"), {"answer": "33"}) == 0.0


def test_format_must_match_the_whole_completion() -> None:
    scorer = load_scorer("format", {"pattern": r"<think>.*</think>\s*\d+"})
    assert scorer(builders.rollout(text="<think>a\nb</think> 7"), {}) == 1.0
    assert scorer(builders.rollout(text="well <think>a</think> 7"), {}) == 0.0


def test_length_is_free_up_to_the_target_and_falls_behind_it() -> None:
    assert load_scorer("length", {"target": 2})(builders.rollout(), {}) == 0.0
    assert load_scorer("length", {"target": 1, "slope": 0.5})(builders.rollout(), {}) == -0.5


def test_the_score_is_the_weighted_sum_and_carries_its_parts() -> None:
    tables = [
        ScorerTable(name="exact_match", weight=2.0),
        ScorerTable(name="format", weight=0.5, options={"pattern": r"\d"}),
    ]
    scores = Rubric(tables).score(builders.group(size=2, answer="3"))
    assert [score.value for score in scores] == [2.5, 2.5]
    assert scores[0].components == {"exact_match": 1.0, "format": 1.0}


def test_the_version_follows_the_config() -> None:
    one, two = Rubric([ScorerTable(name="numeric")]), Rubric([ScorerTable(name="numeric", weight=2)])
    assert one.version == Rubric([ScorerTable(name="numeric")]).version != two.version


def test_a_users_function_gets_text_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_reward.py").write_text(
        "def near(completion, answer, scale, **_):\n    return len(completion) * scale\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scorer = load_scorer("my_reward:near", {"scale": 0.5})
    assert scorer(builders.rollout(text="abcd"), {"answer": "x"}) == 2.0


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("exact_mach", {}, "did you mean 'exact_match'"),
        ("format", {}, "pattern"),
        ("numeric", {"tolerence": 1}, "tolerence"),
        ("no_such_module_x:f", {}, "reward.path"),
        ("math:nothing", {}, "nothing"),
    ],
)
def test_a_wrong_scorer_is_refused_with_the_way_out(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_scorer(name, options)
