"""JSON from elsewhere: what no JSON is, or is nested too deeply, is an error that all who read it catch."""

import pytest

from headrace.wire.config.json_text import is_text, read_lenient, read_strict

DEEP = "[" * 100_000


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", DEEP, '{"a":' * 100_000, "", "{", b"\xff"])
def test_a_request_is_json_or_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        read_strict(text)


def test_non_finite_numbers_in_a_file_read_as_none() -> None:
    assert read_lenient("[NaN, 1e999, -1e999, -Infinity, 1.5, 2]") == [None, None, None, None, 1.5, 2]
    with pytest.raises(ValueError, match="deeply"):
        read_lenient(DEEP)


@pytest.mark.parametrize(
    ("raw", "whole"),
    [
        (b'{"a": "b"}', True),
        (b'"\\ud83d\\ude00"', True),
        ('"\N{GRINNING FACE}"'.encode("utf-16"), True),
        (b'"\\ud83d"', False),
        (b'{"a": ["\\uDC00"]}', False),
        (b'{"\\ud83d": 1}', False),
        (b'"\xed\xa0\x80"', False),
        ('"\\ud800"'.encode("utf-16-le"), False),
    ],
)
def test_a_lone_surrogate_is_not_text(raw: bytes, whole: bool) -> None:
    assert is_text(raw) is whole
