"""Votes are kept once, survive crashes, can be taken back, and become ranked pairs by their majority."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.services.orchestrator.annotation.votes import OtherVoteError, UnknownPairError, VoteStore
from headrace.wire.errors import ConfigError
from tests.annotation import write_run, write_step


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def judge(store: VoteStore, name: str, *choices: str) -> list[str]:
    """Pair ids in the order in which they were asked."""
    asked = []
    for choice in choices:
        pair = store.turn(name).pair.id
        store.vote(name, pair, choice)
        asked.append(pair)
    return asked


def ranked(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "annotations" / "pairs.jsonl").read_text().splitlines()]


def test_an_annotator_gets_every_pair_once_from_the_newest_step_down(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    asked = judge(store, "ann", "left", "skip", "tie", "right", "left", "left")
    assert len(set(asked)) == 6 and [one[0] for one in asked] == ["2"] * 3 + ["1"] * 3
    turn = store.turn("ann")
    assert turn.pair is None and turn.judged == 6
    write_step(run_dir, 3, [["new", "newer"]])
    assert store.turn("ann").pair.step == 3
    store.close()


def test_the_same_vote_again_changes_nothing_and_another_is_refused(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    (pair,) = judge(store, "ann", "left")
    assert store.vote("ann", pair, "left").judged == 1
    with pytest.raises(OtherVoteError, match="has already voted 'left'"):
        store.vote("ann", pair, "right")
    with pytest.raises(UnknownPairError):
        store.vote("ann", "9-0123456789abcdef", "left")
    store.close()
    kinds = [json.loads(line)["kind"] for line in (run_dir / "annotations" / "votes.jsonl").read_text().splitlines()]
    assert kinds == ["pair", "vote"]


def test_undo_asks_the_same_pair_again_and_is_idempotent(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    first, second = judge(store, "ann", "left", "right")
    assert store.turn("ann").undo == second
    undone = store.undo("ann", second)
    assert undone.pair.id == second and undone.undo == first
    assert store.undo("ann", second) == undone
    store.vote("ann", second, "tie")
    assert store._ballots.seen("ann") == {first: "left", second: "tie"}
    store.close()


def test_votes_outlive_the_process_and_the_rollouts(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    asked = judge(store, "ann", "left", "right", "skip")
    store._log.close()  # As a kill does it: nothing is written at the end.
    for path in (run_dir / "rollouts").iterdir():
        path.unlink()
    again = VoteStore(run_dir)
    assert again._ballots.seen("ann") == dict(zip(asked, ("left", "right", "skip"), strict=True))
    assert again.undo("ann", asked[0]).judged == 2
    again.close()
    assert len(ranked(run_dir)) == 1


def test_a_torn_last_line_is_cut(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    judge(store, "ann", "left", "right")
    store.close()
    votes = run_dir / "annotations" / "votes.jsonl"
    whole = votes.read_bytes()
    votes.write_bytes(whole[:-5])
    again = VoteStore(run_dir)
    assert again.turn("ann").judged == 1
    judge(again, "ann", "right")
    again.close()
    kinds = [json.loads(line)["kind"] for line in votes.read_text().splitlines()]
    assert kinds == ["pair", "vote", "pair", "vote"]


def test_a_second_process_is_refused(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    with pytest.raises(ConfigError, match="already served"):
        VoteStore(run_dir)
    store.close()


def test_the_majority_ranks_and_ties_are_left_out(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    pairs = judge(store, "ann", "left", "left", "tie", "left", "skip")
    for name, choices in {"bob": ("left", "right", "left", "tie"), "cat": ("right", "right", "tie", "left")}.items():
        for pair, choice in zip(pairs, choices, strict=False):
            store.vote(name, pair, choice)
    shown = {pair: store._pair(pair) for pair in pairs}
    store.close()
    rows = {found["pair"]: found for found in ranked(run_dir)}
    assert rows.keys() == {pairs[0], pairs[1], pairs[3]}
    assert rows[pairs[0]]["chosen"] == shown[pairs[0]].left.text
    assert rows[pairs[1]]["chosen"] == shown[pairs[1]].right.text
    assert rows[pairs[3]]["votes"] == {"chosen": 2, "rejected": 0, "tie": 1}
