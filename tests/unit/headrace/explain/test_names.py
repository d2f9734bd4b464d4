"""A group or rollout may be named in several ways."""

import pytest

from headrace.inspect.explain.names import parse_name
from headrace.wire.errors import ConfigError


@pytest.mark.parametrize("text", ["demo/g00000059", "g00000059", "g59", "59", "00000059"])
def test_a_training_group(text: str) -> None:
    wanted = parse_name(text, "demo")
    assert (wanted.group_id, wanted.rollout, wanted.index) == ("demo/g00000059", None, 59)


@pytest.mark.parametrize("text", ["demo/g00000059/3", "demo/g00000059/r3", "g59/3", "59/3"])
def test_a_rollout(text: str) -> None:
    wanted = parse_name(text, "demo")
    assert (wanted.group_id, wanted.rollout) == ("demo/g00000059", 3)


@pytest.mark.parametrize(("text", "rollout"), [("demo/e000025-000003", None), ("e25-3", None), ("e25-3/1", 1)])
def test_a_held_out_prompt(text: str, rollout: int | None) -> None:
    wanted = parse_name(text, "demo")
    assert (wanted.group_id, wanted.rollout) == ("demo/e000025-000003", rollout)
    assert (wanted.eval_version, wanted.index) == (25, 3)


@pytest.mark.parametrize("text", ["", "foo", "g", "demo/", "demo/x3", "demo/g5/x", "demo/g1/2/3", "e25"])
def test_other_names_are_rejected_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="names no group or rollout"):
        parse_name(text, "demo")
