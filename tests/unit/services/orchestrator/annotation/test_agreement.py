"""Agreement against the examples that its author published."""

import pytest

from headrace.services.orchestrator.annotation.agreement import krippendorff_alpha, percent_agreement


def units(rows: list[str]) -> list[list[str]]:
    return [[value for value in column if value != "."] for column in zip(*rows, strict=True)]


# K. Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011): two observers with binary data; four observers
# with nominal data, some missing.
BINARY = ["0100000010", "1110010000"]
NOMINAL = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def test_alpha_of_two_observers_is_the_published_one() -> None:
    assert krippendorff_alpha(units(BINARY)) == pytest.approx(0.095, abs=5e-4)
    assert percent_agreement(units(BINARY)) == 0.6


def test_alpha_with_missing_values_is_the_published_one() -> None:
    assert krippendorff_alpha(units(NOMINAL)) == pytest.approx(0.743, abs=5e-4)


def test_perfect_agreement_is_one_and_the_opposite_below_zero() -> None:
    assert krippendorff_alpha([["a", "a"], ["b", "b"], ["b"]]) == 1.0
    assert (krippendorff_alpha([["a", "b"], ["b", "a"]]) or 0) < 0


def test_where_nobody_could_disagree_there_is_no_alpha() -> None:
    assert krippendorff_alpha([]) is None and percent_agreement([]) is None
    assert krippendorff_alpha([["a"], ["b"]]) is None and percent_agreement([["a"], ["b"]]) is None
    assert krippendorff_alpha([["a", "a"]]) is None and percent_agreement([["a", "a"]]) == 1.0


def test_percent_agreement_is_over_pairs_of_annotators() -> None:
    assert percent_agreement([["a", "a", "b"], ["a", "a"]]) == 0.5
