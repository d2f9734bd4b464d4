"""The run's state survives, repeats change nothing, and it can be rebuilt."""

import random
import sqlite3
from pathlib import Path

import pytest

from headrace.services.orchestrator.state.store import OpenGroup, Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def issued(*indices: int, attempt: int = 0) -> list[OpenGroup]:
    return [OpenGroup(group_index=index, attempt=attempt) for index in indices]


def test_issued_groups_are_open_until_they_have_a_fate(path: Path) -> None:
    store = Store(path)
    store.issue(issued(0, 1, 2))
    assert len(store.end([(1, 4, ""), (2, 0, "stale")])) == 2
    assert store.open_groups() == issued(0)
    assert store.counts() == {"open": 1, "trained": 1, "stale": 1}
    assert store.next_index() == 3


def test_the_first_fate_counts(path: Path) -> None:
    store = Store(path)
    store.issue(issued(0))
    assert store.end([(0, 4, "")]) == [(0, 4, "")]
    assert store.end([(0, 0, "stale")]) == []
    assert store.counts() == {"trained": 1}


def test_a_group_with_a_fate_is_not_opened_by_a_late_issue(path: Path) -> None:
    store = Store(path)
    store.end([(0, 1, "")])
    store.issue(issued(0, attempt=1))
    assert store.open_groups() == []


def test_a_fate_missing_from_the_journal_is_reverted(path: Path) -> None:
    store = Store(path)
    store.issue(issued(0, 1, 2))
    store.end([(0, 1, ""), (1, 2, "")])
    assert store.keep_only([0]) == 1
    assert store.open_groups() == issued(1, 2)
    assert store.last_step() == 1


def test_the_store_keeps_everything_across_a_restart(path: Path) -> None:
    before = Store(path)
    before.issue(issued(0, 1))
    before.issue(issued(1, attempt=1))
    before.set_int("version", 7)
    before.keep_evaluated(0, 3, b"first")
    before.keep_evaluated(0, 3, b"second")
    del before
    after = Store(path)
    assert after.open_groups() == [*issued(0), *issued(1, attempt=1)]
    assert after.get_int("version") == 7
    assert after.evaluated(0, 3) == b"first" and after.evaluated_prompts(0) == {3}
    assert not after.forget_evaluated(but=0)
    assert after.forget_evaluated() and not after.forget_evaluated()
    assert not after.evaluated_prompts(0)


def test_a_store_rebuilt_from_fates_knows_which_indices_it_lost(path: Path) -> None:
    store = Store(path)
    store.end([(0, 1, ""), (1, 1, ""), (4, 2, "")])
    assert store.next_index() == 5
    assert store.gaps() == [2, 3]


def test_a_failed_transaction_leaves_nothing(path: Path) -> None:
    store = Store(path)
    with pytest.raises(AttributeError):
        store.issue([*issued(0), None])  # type: ignore[list-item]
    assert store.open_groups() == []


def test_counts_in_memory_always_match_the_table(path: Path) -> None:
    chance, store = random.Random(7), Store(path)
    for _ in range(400):
        some = chance.sample(range(60), chance.randint(0, 6))
        match chance.randrange(6):
            case 0:
                store.issue(issued(*some, attempt=chance.randint(0, 2)))
            case 1:
                first = store.next_index()
                store.issue_new(store.gaps()[:2], range(first, first + chance.randint(0, 3)))
            case 2 | 3:
                store.end([(index, chance.randint(0, 2), chance.choice(["stale", "poison"])) for index in some])
            case 4 if chance.random() < 0.2:
                store.keep_only(some)
            case 5 if chance.random() < 0.1:
                store.close()
                store = Store(path)
        with sqlite3.connect(path) as table:
            rows = table.execute("SELECT step, reason FROM groups").fetchall()
        fates = ["open" if step is None else "trained" if step else reason for step, reason in rows]
        assert store.counts() == {fate: fates.count(fate) for fate in fates}
        assert store.num_open == len(store.open_groups()) == fates.count("open")
    assert len(fates) > 50
