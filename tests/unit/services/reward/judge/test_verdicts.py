"""A verdict is exactly one object of the form asked for; everything else is an error, never a number."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.judge.verdicts import MalformedVerdictError, read_verdict, schema
from tests.unit.services.reward.judge.corpus import CORPUS

FORM = {"reasoning": None, "score": [1, 2, 3]}
GOOD = {"reasoning": "fine", "score": 2}


def test_the_documented_verdict_form_is_parsed() -> None:
    assert read_verdict(' {"reasoning": "fine", "score": 2}\n', FORM) == GOOD
    assert read_verdict('{"score": 2, "reasoning": "fine"}', FORM) == GOOD
    assert read_verdict('{"winner": "tie"}', {"winner": ["A", "tie", "B"]}) == {"winner": "tie"}


MALFORMED = [
    "",
    "2",
    "null",
    "[]",
    "The score is 2",
    '{"reasoning": "fine", "score": 2',
    '{"reasoning": "fine", "score": 2} and more',
    '```json\n{"reasoning": "fine", "score": 2}\n```',
    '{"reasoning": "fine", "score": 2}{"reasoning": "fine", "score": 3}',
    '[{"reasoning": "fine", "score": 2}]',
    '{"reasoning": "fine", "score": 2, "score": 3}',
    '{"reasoning": "fine", "score": 2, "more": 1}',
    '{"score": 2}',
    '{"reasoning": "fine", "Score": 2}',
    '{"reasoning": "fine", "score": 2.0}',
    '{"reasoning": "fine", "score": "2"}',
    '{"reasoning": "fine", "score": true}',
    '{"reasoning": "fine", "score": null}',
    '{"reasoning": "fine", "score": [2]}',
    '{"reasoning": "fine", "score": 4}',
    '{"reasoning": "fine", "score": 0}',
    '{"reasoning": "fine", "score": -1}',
    '{"reasoning": "fine", "score": 1e400}',
    '{"reasoning": "fine", "score": NaN}',
    '{"reasoning": "fine", "score": Infinity}',
    '{"reasoning": 1, "score": 2}',
    '{"reasoning": "fine", "score": ' + "9" * 5000 + "}",
    "[" * 100_000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_any_other_verdict_form_is_an_error(text: str) -> None:
    with pytest.raises(MalformedVerdictError):
        read_verdict(text, FORM)


def test_injection_texts_are_malformed_verdicts() -> None:
    for text in CORPUS:
        with pytest.raises(MalformedVerdictError):
            read_verdict(text, {"reasoning": None, "score": list(range(1, 10))})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_only_allowed_values_come_through(value: object) -> None:
    text = json.dumps({"reasoning": "", "score": value})
    if type(value) is int and value in (1, 2, 3):
        assert read_verdict(text, FORM)["score"] == value
    else:
        with pytest.raises(MalformedVerdictError):
            read_verdict(text, FORM)


def test_the_schema_accepts_exactly_the_verdicts_that_are_parsed() -> None:
    validator = jsonschema.Draft202012Validator(schema(FORM))
    assert validator.is_valid(GOOD)
    assert not validator.is_valid(GOOD | {"score": 4})
    assert not validator.is_valid(GOOD | {"more": 1})
    assert not validator.is_valid({"score": 2})
