"""What no scorer may say."""

import numpy as np
import pytest

from headrace.services.reward.rubric.refusal import KINDS, refusal
from headrace.services.reward.scorer import Sample, Verdict

TEXT = Sample(prompt="p", completion="c")
IDS = Sample(
    prompt="p",
    completion="c",
    completion_ids=np.array([5, 6, 7], np.int32),
    loss_mask=np.array([True, True, False]),
)


def tokens(*values: float, dtype: type = np.float32) -> Verdict:
    return Verdict(value=0.0, token_scores=np.array(values, dtype))


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Verdict(value=float("nan")), "not_finite"),
        (Verdict(value=float("inf")), "not_finite"),
        (Verdict(value=-float("inf")), "not_finite"),
        (Verdict(value=10**400), "not_finite"),
        (Verdict(value=1e9), "out_of_range"),
        (Verdict(value=-0.001), "out_of_range"),
        (Verdict(value="0.5"), "not_a_number"),  # type: ignore[arg-type]
        (Verdict(value=True), "not_a_number"),
        (Verdict(value=[1.0]), "not_a_number"),  # type: ignore[arg-type]
        (None, "missing"),
        (0.5, "missing"),
        (tokens(0.1, 0.2), "bad_token_scores"),
        (tokens(0.1, float("inf"), 0), "bad_token_scores"),
        (tokens(0.1, 1e9, 0), "bad_token_scores"),
        (tokens(0.1, 0.2, 0.3), "bad_token_scores"),
        (tokens(0.1, 0.2, 0, dtype=np.float64), "bad_token_scores"),
    ],
)
def test_each_invalid_verdict_is_rejected_under_its_kind(verdict: object, kind: str) -> None:
    found = refusal(verdict, IDS, low=0.0, high=1.0)
    assert found is not None and found[0] == kind and kind in KINDS and found[1]


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(value=0.0),
        Verdict(value=1),
        Verdict(value=np.float32(0.5)),
        Verdict.abstain("odd"),
        tokens(0.5, float("nan"), 0),
        tokens(0.5, -0.5, 0),
    ],
)
def test_a_number_in_range_and_an_abstention_are_accepted(verdict: Verdict) -> None:
    assert refusal(verdict, IDS, low=0.0, high=1.0) is None


def test_tokens_of_a_sample_that_came_as_text_cannot_be_scored() -> None:
    assert refusal(tokens(0.1), TEXT, low=0.0, high=1.0) is not None
