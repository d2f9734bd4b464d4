"""Components of a reward: their weighted sum is the reward that is trained on, whatever made it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.rubric.combine import MemberValue, combine, member_weights
from headrace.services.reward.settings import CombinationTable
from headrace.wire.contracts.scores import Score
from headrace.wire.telemetry.reward_components import (
    MOST_NAMES,
    MOST_PAIRS,
    RewardRow,
    batch_numbers,
    component_key,
    components_of,
    total,
)

VALUES = st.floats(-1e3, 1e3)
MEMBERS = st.lists(st.tuples(VALUES | st.none(), st.floats(0.1, 10), st.booleans()), min_size=1, max_size=4)


def scored(kind: str, members, token_scores=None) -> Score:
    table = CombinationTable(combination=kind)
    plain = kind in ("product", "min", "median")
    parts = [
        MemberValue(
            name=f"s{number}",
            value=value,
            weight=1.0 if plain else weight,
            optional=optional and kind == "weighted_sum",
            at_least=0.0 if kind == "gate" and number == 0 else None,
        )
        for number, (value, weight, optional) in enumerate(members)
    ]
    value = combine(table, parts)
    return Score(
        rollout_id="r",
        value=value,
        components={part.name: part.value for part in parts if part.value is not None},
        weights=dict(zip([part.name for part in parts], member_weights(table, parts), strict=True)),
        token_scores=None if value is None else token_scores,
    )


@given(
    st.sampled_from(["weighted_sum", "mean", "median", "product", "min", "gate"]),
    MEMBERS,
    st.lists(st.floats(-5, 5, width=32), max_size=3),
    st.dictionaries(st.sampled_from(["overlong_buffer", "kl"]), st.floats(-3, 0)),
)
def test_the_weighted_sum_is_the_reward_trained_on(kind, members, of_tokens, shaping):
    tokens = np.array([*of_tokens, math.nan], dtype=np.float32) if of_tokens else None
    score = scored(kind, members, tokens)
    if score.value is None:
        assert not set(components_of(score, shaping)) & {"turns", "combination", "overlong_buffer", "kl"}
        return
    trained = (
        score.value + (0.0 if tokens is None else float(np.nansum(tokens, dtype=np.float64))) + sum(shaping.values())
    )
    assert total(components_of(score, shaping)) == pytest.approx(trained, rel=1e-9, abs=1e-9)


def test_the_numbers_of_a_batch_by_hand():
    rows = [
        row({"a": 1.0, "b": 0.5}, {"a": 1.0, "b": 2.0}, source="x"),
        row({"a": 0.0}, {"a": 1.0, "b": 0.0}, source="x"),
        row({"a": 1.0, "a.part": 7.0, "b": -1.0}, {"a": 1.0, "b": 2.0}, source="y", overlong_buffer=-0.5),
        RewardRow(components_of(Score(rollout_id="r", value=None, weights={"a": 0.0, "b": 0.0})), is_scored=False),
    ]
    found = batch_numbers(rows)
    assert [found[f"reward_{what}"] for what in ("mean", "min", "max")] == pytest.approx([0.5 / 3, -1.5, 2.0])
    of_a = [found[f"rewards/a/{what}"] for what in ("mean", "abstained", "weighted")]
    assert of_a == pytest.approx([2 / 3, 0.25, 2 / 3])
    assert found["rewards/b/mean"] == -0.25
    assert found["rewards/b/std"] == 0.75
    assert found["rewards/b/abstained"] == 0.5
    assert found["rewards/a/x/mean"] == 0.5
    assert found["rewards/b/y/mean"] == -1.0
    assert found["rewards/a.part/mean"] == 7.0
    assert found["rewards/overlong_buffer/weighted"] == pytest.approx(-0.5 / 3)
    weighted = [value for key, value in found.items() if key.endswith("/weighted")]
    assert math.fsum(weighted) == pytest.approx(found["reward_mean"], abs=1e-12)


def test_component_names_from_user_code_are_bounded_and_keep_keys_distinct():
    many = {f"a.{number}": 1.0 for number in range(5_000)}
    rows = [row({"a": 1.0, "z": 1.0, **many}, {"a": 1.0, "z": 1.0}, source=f"s{number}") for number in range(70)]
    found = batch_numbers(rows)
    names = {key.split("/")[1] for key in found if key.startswith("rewards/")}
    assert len(names) == MOST_NAMES
    assert {"a", "z"} <= names
    assert len({key.rsplit("/", 1)[0] for key in found if key.count("/") == 3}) == MOST_PAIRS
    assert found["rewards_left_out"] == 5_002 - MOST_NAMES + MOST_NAMES * 70 - MOST_PAIRS
    odd = ["a/b", "a,b", "a\nb", "x" * 300, "x" * 301, ""]
    keys = [component_key(name) for name in odd]
    assert len(set(keys)) == len(odd)
    assert all(0 < len(key) <= 48 and not set(key) & set("/,\n ") for key in keys)
    assert component_key("numeric:1") == "numeric:1"


def test_a_product_of_zero_counts_in_the_mean_of_the_combination():
    rows = [RewardRow(components_of(scored("product", [(value, 1.0, False)] * 2))) for value in (0.0, 0.0, 0.0, 1.0)]
    assert batch_numbers(rows)["rewards/combination/mean"] == batch_numbers(rows)["reward_mean"] == 0.25


def test_an_older_message_has_one_component_that_counts():
    old = Score(rollout_id="r", value=0.75, components={"a": 1.0, "b": 0.5})
    assert total(components_of(old)) == 0.75
    assert components_of(old)["combination"].value == 0.75


def row(components: dict[str, float], weights: dict[str, float], source: str, **shaping: float) -> RewardRow:
    value = sum(components.get(name, 0.0) * weight for name, weight in weights.items())
    score = Score(rollout_id="r", value=value, components=components, weights=weights)
    return RewardRow(components_of(score, shaping), source=source)
