"""Where rows lie: live ones first, longest class first, and as few moves as possible."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.rollout.engines.torch.order import EDGES, arrange, row_blocks

ROWS = st.lists(st.tuples(st.integers(1, 1500), st.booleans()), min_size=1, max_size=40)


def classes(lengths: np.ndarray) -> np.ndarray:
    return np.searchsorted(EDGES, lengths)


@given(rows=ROWS)
def test_live_rows_come_first_in_order_of_class_and_none_is_lost(rows: list[tuple[int, bool]]) -> None:
    lengths = np.array([length for length, _ in rows])
    alive = np.array([live for _, live in rows])
    moves = arrange(lengths, alive)
    after = np.arange(len(rows))
    after[moves.targets] = moves.sources
    first = after[: moves.count]
    assert sorted(first.tolist()) == np.flatnonzero(alive).tolist()
    assert (np.diff(classes(lengths[first])) <= 0).all()


@given(rows=ROWS)
def test_rows_in_order_are_not_moved(rows: list[tuple[int, bool]]) -> None:
    lengths = np.array(sorted((length for length, _ in rows), reverse=True))
    assert not len(arrange(lengths, np.ones(len(rows), dtype=bool)).sources)


@given(lengths=st.lists(st.integers(1, 1500), min_size=1, max_size=70))
def test_segments_cover_all_rows_and_are_long_enough(lengths: list[int]) -> None:
    ordered = np.array(sorted(lengths, reverse=True))
    parts = row_blocks(ordered)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(ordered)
    assert all(part.length >= ordered[part.start : part.end].max() for part in parts)


def test_many_short_rows_do_not_pay_for_a_long_one() -> None:
    parts = row_blocks(np.array([500, *[40] * 30]))
    assert [(part.start, part.end, part.length) for part in parts] == [(0, 1, 512), (1, 31, 64)]
