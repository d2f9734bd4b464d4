"""JSON of the wanted shape scores 1; nothing is fetched, no pattern hangs, no broken schema becomes a zero."""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.scorer import Sample, Scorer, Verdict
from tests.reward_scorers import loaded_scorer

PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


def a_scorer(options: dict[str, Any] | None = None) -> AbstractAsyncContextManager[Scorer]:
    return loaded_scorer("json_schema", options or {"schema": PERSON})


async def verdicts(texts: Sequence[str], options: dict[str, Any] | None = None, **columns: Any) -> Sequence[Verdict]:
    async with a_scorer(options) as scorer:
        return await scorer.score([Sample(prompt="", completion=text, columns=columns) for text in texts])


async def verdict(text: str, options: dict[str, Any] | None = None, **columns: Any) -> Verdict:
    return (await verdicts([text], options, **columns))[0]


TEXTS: list[tuple[str, float, float]] = [
    ('{"name": "Ada"}', 1, 1),
    ('  {"name": "Ada"}\n', 1, 1),
    ('{"name": 3}', 1, 0),
    ("[]", 1, 0),
    ("Ada", 0, 0),
    ("", 0, 0),
    ('{"name": "Ada"', 0, 0),
    ('Here it is:\n```json\n{"name": "Ada"}\n```\nDone.', 1, 1),
    ('```json\n{"name": 3}\n```\nor\n```json\n{"name": "Ada"}\n```', 1, 1),
    ('```json\n{"name": "Ada"}\n```\nor\n```json\n{"name": 3}\n```', 1, 0),
    ('```\n{"name": "Ada"}\n```', 1, 1),
    ('```json\n{"name": "Ada"}', 0, 0),
    ('{"name": "Ada", "age": NaN}', 0, 0),
    ("[" * 100_000, 0, 0),
    ('{"a":' * 50_000 + "1" + "}" * 50_000, 0, 0),
    ("9" * 5000, 0, 0),
    ('{"name": "Ada", "age": 1e999}', 0, 0),
    ('{"name": "Ada", "age": -1e999}', 0, 0),
    ("```json\n" + " " * 500_000, 0, 0),
    ('"' + "x" * 2_000_000 + '"', 0, 0),
]
"""What is said, whether it parses, and whether it validates."""


async def test_the_completion_or_its_last_block_is_validated_against_the_schema() -> None:
    found = await verdicts([text for text, _, _ in TEXTS])
    for (text, parses, validates), verdict in zip(TEXTS, found, strict=True):
        assert verdict.value == validates, text[:40]
        assert verdict.parts == {"parses": parses, "validates": validates}, text[:40]


async def test_a_schema_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "person.json"
    file.write_text(json.dumps(PERSON))
    assert (await verdict('{"name": "Ada"}', {"file": str(file)})).value == 1.0


async def test_a_broken_schema_in_a_row_fails_only_that_row() -> None:
    async with a_scorer({"column": "shape"}) as scorer:

        async def score(text: str, shape: Any) -> Verdict:
            return (await scorer.score([Sample(prompt="", completion=text, columns={"shape": shape})]))[0]

        for of_row in (PERSON, json.dumps(PERSON)):
            assert [(await score(text, of_row)).value for text in ('{"name": "Ada"}', "{}")] == [1.0, 0.0]
        for broken in ({"type": "strin"}, "{", 3, None):
            assert (await score("{}", broken)).failed and scorer.problem({"shape": broken})
        assert "no column 'shape'" in str(scorer.problem({}))
        # A reference out of the schema is never followed.
        for target in ("http://127.0.0.1:9/schema.json", "file:///etc/passwd", "other.json"):
            found = await score("{}", {"$ref": target})
            assert found.failed and "nothing is fetched" in found.reason


async def test_references_into_the_schema_work_from_every_draft() -> None:
    tree = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
    }
    texts = ('{"next": {"next": {"value": 1}}}', '{"next": {"next": {"value": "1"}}}')
    assert [one.value for one in await verdicts(texts, {"schema": tree})] == [1.0, 0.0]


@pytest.mark.parametrize(
    "schema", [{"type": "string", "pattern": "^(a|aa)+$"}, {"type": "object", "patternProperties": {"^(a|aa)+$": True}}]
)
async def test_a_text_that_keeps_a_pattern_busy_does_not_validate(schema: dict[str, Any]) -> None:
    word = "a" * 45 + "!"
    found = await verdict(json.dumps(word if schema["type"] == "string" else {word: 1}), {"schema": schema})
    assert found.value == 0.0
    assert "a pattern did not end within 0.5 s on this text" in found.reason


async def test_a_completion_that_keeps_the_validator_busy_is_wrong_and_holds_up_no_other() -> None:
    nested = {"$ref": "#/$defs/n"}
    tree = {
        "anyOf": [nested],
        "$defs": {
            "n": {
                "anyOf": [{"type": "array", "items": nested, "minItems": n} for n in (1, 1, 1, 1)] + [{"type": "null"}]
            }
        },
    }
    deep = "[" * 40 + "0" + "]" * 40
    found = await verdicts(["[null]", deep, "[[null]]"], {"schema": tree, "timeout_s": 1.0})
    assert [one.value for one in found] == [1.0, 0.0, 1.0]
    unique = json.dumps([{"a": n} for n in range(60_000)])
    assert (await verdict(unique, {"schema": {"uniqueItems": True}, "timeout_s": 1.0})).value == 0.0
