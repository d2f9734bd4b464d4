"""How several values make one, and when the whole abstains."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.rubric.combine import MemberValue, combine, member_weights, problem
from headrace.services.reward.settings import Combination, CombinationTable


def parts(*values: float | None, **options: object) -> list[MemberValue]:
    return [MemberValue(name=f"p{number}", value=value, **options) for number, value in enumerate(values)]  # type: ignore[arg-type]


def table(kind: Combination, **options: float) -> CombinationTable:
    return CombinationTable(combination=kind, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "score"),
    [("weighted_sum", 3.5), ("mean", 3.5 / 3), ("median", 1.0), ("product", 0.0), ("min", 0.0)],
)
def test_each_combination_computes_its_named_function(kind: Combination, score: float) -> None:
    assert combine(table(kind), parts(1.0, 2.5, 0.0)) == pytest.approx(score)


def test_weights_count_in_sum_and_mean() -> None:
    weighted = [MemberValue(name="a", value=1.0, weight=3.0), MemberValue(name="b", value=-1.0, weight=1.0)]
    assert combine(table("weighted_sum"), weighted) == 2.0
    assert combine(table("mean"), weighted) == 0.5


def test_a_gate_passes_the_sum_of_the_others_or_gives_its_own_value() -> None:
    def gated(value: float | None) -> float | None:
        gate = MemberValue(name="format", value=value, at_least=0.5)
        rest = [MemberValue(name="math", value=1.0, weight=2.0), MemberValue(name="length", value=-0.5)]
        return combine(table("gate", gate_value=-1.0), [gate, *rest])

    assert gated(0.5) == 1.5
    assert gated(0.49) == -1.0
    assert gated(None) is None


def test_a_closed_gate_decides_even_if_other_members_abstain() -> None:
    shut = [
        MemberValue(name="g", value=0.0, at_least=0.5),
        MemberValue(name="h", value=None, at_least=0.5),
        *parts(None),
    ]
    assert combine(table("gate", gate_value=-1.0), shut) == -1.0


@pytest.mark.parametrize("kind", ["weighted_sum", "product", "min"])
def test_a_required_member_that_abstains_makes_the_whole_abstain(kind: Combination) -> None:
    assert combine(table(kind), parts(1.0, None)) is None
    other = [MemberValue(name="a", value=0.5), MemberValue(name="b", value=None, optional=True)]
    assert combine(table(kind), other) == 0.5
    assert combine(table(kind), parts(None, None, optional=True)) is None


@pytest.mark.parametrize("kind", ["mean", "median"])
def test_an_ensemble_scores_with_the_members_that_form_a_quorum(kind: Combination) -> None:
    assert combine(table(kind), parts(0.2, 0.4, None)) == pytest.approx(0.3)
    assert combine(table(kind), parts(0.2, None)) is None
    assert combine(table(kind, quorum=0.0), parts(0.2, None)) == pytest.approx(0.2)
    assert combine(table(kind, quorum=0.0), parts(None, None)) is None


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6))
def test_the_minimum_never_exceeds_the_median_and_scores_are_finite(values: list[float]) -> None:
    worst, middle = combine(table("min"), parts(*values)), combine(table("median"), parts(*values))
    assert worst is not None and middle is not None and worst <= middle
    assert all(math.isfinite(combine(table(kind), parts(*values)) or 0) for kind in ("weighted_sum", "product"))


@pytest.mark.parametrize(
    ("kind", "members", "words"),
    [
        ("gate", parts(1.0, 1.0), "at_least"),
        ("gate", parts(1.0, at_least=0.5), "at_least"),
        ("weighted_sum", parts(1.0, at_least=0.5), "gate"),
        ("median", parts(1.0, weight=2.0), "no weights"),
        ("mean", parts(1.0, weight=0.0), "0 or more"),
        ("median", parts(1.0, optional=True), "changes nothing"),
        ("gate", [MemberValue(name="g", value=1.0, at_least=0.5, weight=2.0), *parts(1.0)], "weight counts nowhere"),
    ],
)
def test_members_that_a_combination_cannot_combine_are_named(
    kind: Combination, members: list[MemberValue], words: str
) -> None:
    assert words in (problem(table(kind), members) or "")
    assert problem(table("weighted_sum"), parts(1.0, 1.0)) is None


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("weighted_sum", [1.0, 1.0, 0.0]),
        ("mean", [0.5, 0.5, 0.0]),
        ("min", [0.0, 1.0, 0.0]),
        ("median", [0.0, 0.0, 0.0]),
        ("product", [0.0, 0.0, 0.0]),
    ],
)
def test_scores_of_tokens_count_as_the_values_they_stand_beside(kind: Combination, weights: list[float]) -> None:
    assert member_weights(table(kind), parts(0.5, -1.0, None)) == weights


def test_no_scores_of_tokens_get_through_a_closed_gate() -> None:
    for value, weights in ((1.0, [0.0, 1.0]), (0.0, [0.0, 0.0])):
        assert member_weights(table("gate"), [MemberValue(name="g", value=value, at_least=0.5), *parts(2.0)]) == weights


def test_a_mean_of_members_without_weight_abstains() -> None:
    watched = [MemberValue(name="watched", value=1.0, weight=0.0), MemberValue(name="judge", value=None)]
    assert combine(table("mean", quorum=0.0), watched) is None
    assert member_weights(table("mean"), watched) == [0.0, 0.0]
