import dataclasses

import numpy as np
import pytest

from headrace.services.trainer.durability.staleness import (
    UNBOUNDED,
    fresh,
    lags,
    length_metrics,
    oldest_trained,
    toll,
)
from headrace.wire.contracts import PolicyVersion, VersionSpan
from tests.unit.services.trainer.builders import scored_group


def spanned(scored, *parts):
    """The group with rollouts made of (version, tokens) each."""
    rollouts = []
    for rollout, own in zip(scored.group.rollouts, parts, strict=True):
        spans, start = [], 0
        for version, tokens in own:
            at = PolicyVersion(incarnation=1, version=version)
            spans.append(VersionSpan(start=start, end=start + tokens, version=at, weights_digest="d"))
            start += tokens
        ids, logprobs = np.ones(start, np.int32), np.zeros(start, np.float32)
        rollouts.append(dataclasses.replace(rollout, token_ids=ids, logprobs=logprobs, spans=tuple(spans)))
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, rollouts=tuple(rollouts)))


@pytest.fixture
def group():
    """Two rollouts of 9 tokens: of versions 1 (4 tokens), 2 and 3; of version 3 alone."""
    return spanned(scored_group(0, size=2, longest=9, rewards=[1, 0]), [(1, 4), (2, 2), (3, 3)], [(3, 9)])


def test_a_token_is_as_old_as_its_span(group):
    assert lags(group.group.rollouts[0], 3).tolist() == [2, 2, 2, 2, 1, 1, 0, 0, 0]
    assert fresh(group.group.rollouts[0], 3, 1).tolist() == [False] * 4 + [True] * 5
    assert fresh(group.group.rollouts[0], 3, UNBOUNDED).all()
    assert [oldest_trained(group, 3, bound) for bound in (UNBOUNDED, 1, 0)] == [2, 1, 0]
    assert oldest_trained(group, 9, 1) is None


def test_length_metrics_distinguish_trained_from_arrived_tokens(group):
    assert length_metrics([group], version=3, bound=UNBOUNDED)["trained_length_mean"] == 9
    found = length_metrics([group], version=3, bound=1)
    assert (found["trained_length_mean"], found["trained_length_max"]) == (7, 9)
    assert length_metrics([group], version=9, bound=1) == dict.fromkeys(
        ("trained_length_mean", "trained_length_p95", "trained_length_max"), 0.0
    )


def test_the_toll_counts_masked_tokens_and_dropped_groups(group):
    found = toll([group], (), version=3, bound=1)
    assert (found["groups_stale"], found["stale_tokens_share"], found["arrived_length_mean"]) == (1, 4 / 18, 9)
    found = toll([group], [(20, 16), ()], version=3, bound=UNBOUNDED)
    assert (found["groups_stale"], found["stale_tokens_share"]) == (2, 36 / 54)
    assert (found["arrived_length_mean"], found["arrived_length_max"]) == (13.5, 20)
    assert toll([group], (), version=3, bound=UNBOUNDED)["stale_tokens_share"] == 0
