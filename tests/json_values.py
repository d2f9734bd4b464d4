"""JSON values: those that fit a schema, and odd ones. Strategies for hypothesis."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]

ODD_NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, 0.5)
ODD_TEXTS = ("", "0", "-1", "null", "nan", "inf", "\x00", "\ud800", "%00", "../../etc/passwd", "a" * 5000, "1" * 5000)
ODD_BODIES = (b"", b"null", b"NaN", b"\xff\xfe", b'{"a":', b"[" * 20_000, b'"\\ud800"', b"1" * 20_000, b"{}" * 3)
_TEXT = st.text(max_size=12) | st.sampled_from(ODD_TEXTS)
_NUMBERS = st.integers() | st.sampled_from(ODD_NUMBERS) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


def values(schema: Schema, defined: Mapping[str, Schema], depth: int = 4) -> st.SearchStrategy[Any]:
    """Values that fit the schema more often than not; `defined` has what it refers to."""
    if depth == 0:
        return ANYTHING
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return values(defined[name], defined, depth)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return st.one_of(*(values(one, defined, depth - 1) for one in schema[word])) | ANYTHING
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")])) | _TEXT
    return _of_type(schema, defined, depth) if depth == 4 else _of_type(schema, defined, depth) | ANYTHING


def _of_type(schema: Schema, defined: Mapping[str, Schema], depth: int) -> st.SearchStrategy[Any]:
    match schema.get("type"):
        case "object":
            known = {name: values(one, defined, depth - 1) for name, one in schema.get("properties", {}).items()}
            needed = {name: known.pop(name) for name in schema.get("required", ()) if name in known}
            whole = st.fixed_dictionaries(needed, optional=known)
            more = st.dictionaries(_TEXT, ANYTHING, max_size=2)
            return whole | st.tuples(whole, more).map(lambda both: {**both[0], **both[1]})
        case "array":
            return st.lists(values(schema.get("items", {}), defined, depth - 1), max_size=4)
        case "integer" | "number":
            return _NUMBERS
        case "boolean":
            return st.booleans()
        case "string":
            return st.from_regex(schema["pattern"]) | _TEXT if "pattern" in schema else _TEXT
        case _:
            return ANYTHING
