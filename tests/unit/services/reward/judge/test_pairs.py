"""Pairings are fair, and win shares are what was won."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.judge.pairs import round_robin, standings


@given(st.integers(0, 20), st.integers(1, 200))
def test_pairs_are_different_and_evenly_spread(players: int, most: int) -> None:
    pairs = round_robin(players, most)
    assert len(pairs) == len(set(pairs)) == min(most, players * (players - 1) // 2)
    assert all(0 <= first < second < players for first, second in pairs)
    met = Counter(player for pair in pairs for player in pair)
    counts = [met[player] for player in range(players)]
    assert not counts or max(counts) - min(counts) <= 2


@given(st.integers(2, 8), st.data())
def test_shares_sum_to_half_the_places(players: int, data: st.DataObject) -> None:
    results = {pair: data.draw(st.sampled_from([0.0, 0.5, 1.0])) for pair in round_robin(players, 1000)}
    shares = [standing.share for standing in standings(players, results)]
    assert sum(share or 0 for share in shares) == pytest.approx(players / 2)


def test_a_win_counts_one_and_a_tie_one_half() -> None:
    assert [each.share for each in standings(3, {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.0})] == [0.75, 0.0, 0.75]


def test_without_more_than_half_of_its_pairs_a_player_has_no_share() -> None:
    found = standings(3, {(0, 1): None, (0, 2): 1.0, (1, 2): None})
    assert [each.share for each in found] == [None, None, None]
    assert standings(1, {})[0].share is None
    assert [each.share for each in standings(4, {(0, 1): 1.0, (0, 2): 1.0, (0, 3): None})][:2] == [1.0, 0.0]
