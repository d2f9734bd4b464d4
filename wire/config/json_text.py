"""Parses untrusted JSON: requests, and files that may be truncated or malformed. Pure.

Python's own parser accepts NaN, infinities and halves of surrogate pairs, which are not JSON, and raises
RecursionError for deeply nested input.
"""

import json
import math
import re

from pydantic import JsonValue

_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""In bytes that may hold halves of surrogate pairs: they may be whole pairs, too."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_strict(text: str | bytes) -> JsonValue:
    """Parses a request. Raises ValueError for invalid JSON and for too deep nesting."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    return _read(_STRICT, text)


def is_text(raw: bytes) -> bool:
    """Whether all text of valid JSON can be sent on: half a surrogate pair, which `read_strict` takes, cannot."""
    if json.detect_encoding(raw) == "utf-8" and not _HALF.search(raw):
        return True
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_lenient(text: str | bytes) -> JsonValue:
    """Parses a file. Raises ValueError for invalid JSON.

    NaN, infinities and overflowing numbers become None, and half a surrogate pair, which is not a character and can be
    neither stored nor sent, becomes a question mark.
    """
    text = text if isinstance(text, str) else text.decode()
    value = _read(_LENIENT, text)
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _read(decoder: json.JSONDecoder, text: str) -> JsonValue:
    try:
        value: JsonValue = decoder.decode(text)
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number in JSON")


def _nothing(_: str) -> None:
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


# `json.loads` would make a decoder for each text.
_STRICT = json.JSONDecoder(parse_constant=_refuse)
_LENIENT = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)
