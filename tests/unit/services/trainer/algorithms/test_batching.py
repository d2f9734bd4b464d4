import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.algorithms.batching import Share, micro_batches, shared_micro_batches


def padded(lengths, batches):
    return sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)


def test_rows_of_like_length_go_together():
    assert micro_batches([5, 100, 6, 99], token_budget=1000, overhead_tokens=10) == [[1, 3], [2, 0]]


def test_a_row_beyond_the_budget_is_alone():
    assert micro_batches([50, 3, 3], token_budget=10, overhead_tokens=0) == [[0], [1, 2]]
    assert micro_batches([], token_budget=10) == []


@given(lengths=st.lists(st.integers(1, 60), max_size=25), budget=st.integers(1, 200), overhead=st.integers(0, 50))
def test_every_row_once_within_the_budget_longest_first(lengths, budget, overhead):
    batches = micro_batches(lengths, token_budget=budget, overhead_tokens=overhead)
    rows = [row for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    assert all(len(batch) == 1 or padded(lengths, [batch]) <= budget for batch in batches)


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=7), overhead=st.integers(0, 30))
def test_no_other_cut_of_the_sorted_rows_costs_less(lengths, overhead):
    ordered = sorted(lengths, reverse=True)
    budget = 60

    def best(rest):
        if not rest:
            return 0
        ends = [end for end in range(1, len(rest) + 1) if end == 1 or rest[0] * end <= budget]
        return min(rest[0] * end + overhead + best(rest[end:]) for end in ends)

    batches = micro_batches(lengths, token_budget=budget, overhead_tokens=overhead)
    assert padded(lengths, batches) + overhead * len(batches) == best(ordered)


def test_lognormal_lengths_waste_little():
    draw = random.Random(1)
    lengths = [min(512, max(1, int(draw.lognormvariate(3.7, 1)))) for _ in range(64)]
    batches = micro_batches(lengths, token_budget=4096)
    assert padded(lengths, batches) < 1.2 * sum(lengths)
    assert padded(lengths, batches) < 0.4 * 64 * max(lengths)


def test_one_rank_has_the_micro_batches_of_one_process():
    lengths = [5, 100, 6, 99, 7]
    (shares,) = shared_micro_batches(lengths, ranks=1, token_budget=200, overhead_tokens=10)
    assert [list(share.rows) for share in shares] == micro_batches(lengths, token_budget=200, overhead_tokens=10)


def test_a_micro_batch_is_halved_before_a_rank_idles():
    assert shared_micro_batches([4, 4, 4, 4], ranks=2, token_budget=100) == [[Share((0, 1))], [Share((2, 3))]]


def test_rows_that_do_not_suffice_are_filled_up_with_dummies_of_the_shortest():
    shared = shared_micro_batches([9, 3], ranks=3, token_budget=100)
    assert shared == [[Share((0,))], [Share((1,))], [Share((1,), counts=False)]]
    assert shared_micro_batches([], ranks=2, token_budget=10) == [[], []]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=25),
    ranks=st.integers(1, 4),
    budget=st.integers(1, 200),
)
def test_every_row_counts_once_and_all_ranks_have_equally_many_within_the_budget(lengths, ranks, budget):
    shared = shared_micro_batches(lengths, ranks=ranks, token_budget=budget)
    assert len(shared) == ranks and len({len(shares) for shares in shared}) == 1
    counted = [row for shares in shared for share in shares if share.counts for row in share.rows]
    assert sorted(counted) == list(range(len(lengths)))
    rows = [list(share.rows) for shares in shared for share in shares]
    assert all(len(batch) == 1 or padded(lengths, [batch]) <= budget for batch in rows)
    dummies = sum(not share.counts for shares in shared for share in shares)
    assert dummies < ranks


@given(lengths=st.lists(st.integers(1, 60), min_size=8, max_size=25), ranks=st.integers(2, 4))
def test_sharing_wastes_no_more_than_one_process(lengths, ranks):
    alone = padded(lengths, micro_batches(lengths, token_budget=100))
    shared = shared_micro_batches(lengths, ranks=ranks, token_budget=100)
    assert padded(lengths, [share.rows for shares in shared for share in shares if share.counts]) <= alone


@given(
    units=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), min_size=1, max_size=20),
    budget=st.integers(1, 300),
    ranks=st.integers(1, 3),
)
def test_rows_that_stay_together_are_within_the_budget_together(units, budget, ranks):
    lengths, parts = [length for length, _ in units], [count for _, count in units]
    shared = shared_micro_batches(lengths, ranks=ranks, token_budget=budget, parts=parts)
    counted = [share.rows for shares in shared for share in shares if share.counts]
    assert sorted(row for rows in counted for row in rows) == list(range(len(units)))
    for rows in counted:
        size = max(lengths[row] for row in rows) * sum(parts[row] for row in rows)
        assert len(rows) == 1 or size <= budget
