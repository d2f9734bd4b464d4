"""Which completions become pairs, and what their ids and sides depend on."""

import json
from pathlib import Path
from typing import Any

from headrace.services.orchestrator.annotation.ballots import Ballots
from headrace.services.orchestrator.annotation.pair_store import PairStore
from headrace.services.orchestrator.annotation.pairs import CompletionPair, pairs_of_step
from tests.annotation import row, write_prompts, write_step

CHAT = [{"role": "user", "content": "hi"}]


def rows(*groups: list[str], step: int = 1) -> list[dict[str, Any]]:
    return [row(step, number, index, text) for number, texts in enumerate(groups) for index, text in enumerate(texts)]


def texts(pair: CompletionPair) -> set[str]:
    return {pair.left.text, pair.right.text}


def test_pairs_are_of_one_group_and_different_completions() -> None:
    pairs = pairs_of_step(rows(["a", "b", "a", "a"], ["c", "c"], ["c", " c\n"], ["c", "\n"], ["d", "e"]), {})
    assert [texts(pair) for pair in pairs] == [{"a", "b"}, {"d", "e"}]
    assert all(pair.left.rollout_index != pair.right.rollout_index for pair in pairs)


def test_groups_come_in_turn_and_no_completion_twice() -> None:
    pairs = pairs_of_step(rows(["a", "b", "c", "d", "e"], ["f", "g"]), {})
    assert [pair.group_id for pair in pairs] == ["g1-0", "g1-1", "g1-0"]
    assert len(texts(pairs[0]) | texts(pairs[2])) == 4


def test_pair_ids_derive_from_content_and_decide_the_sides() -> None:
    many = [[f"{number} one", f"{number} two"] for number in range(200)]
    pairs = pairs_of_step(rows(*many), {})
    assert [pair.pair_id for pair in pairs] == [pair.pair_id for pair in pairs_of_step(rows(*many), {})]
    assert len({pair.pair_id for pair in pairs}) == 200
    assert pairs == pairs_of_step(reversed(rows(*many)), {})[::-1]
    first_left = sum(pair.left.rollout_index == 0 for pair in pairs)
    assert 60 < first_left < 140
    (other,) = pairs_of_step(rows(["0 one", "0 three"]), {})
    assert other.pair_id != pairs[0].pair_id


def test_a_pair_survives_its_record_and_knows_the_messages() -> None:
    (pair,) = pairs_of_step(rows(["a", "b"]), {"s0": CHAT})
    assert pair.prompt == tuple(CHAT) and CompletionPair.from_record(pair.as_record()) == pair
    (plain,) = pairs_of_step(rows(["a", "b"]), {})
    assert plain.prompt == "prompt 0" and CompletionPair.from_record(plain.as_record()) == plain


def test_the_pair_store_lists_newest_steps_first_and_finds_texts_again(tmp_path: Path) -> None:
    for step in range(1, 8):
        write_step(tmp_path, step, [["a", "b"]])
    store = PairStore(tmp_path)
    ids = list(store.newest())
    assert [int(one.split("-")[0]) for one in ids] == [7, 6, 5, 4, 3, 2, 1]
    found = [store.pair(one) for one in ids]
    assert [pair and pair.pair_id for pair in found] == ids
    assert (
        store.pair("7-0000000000000000") is None
        and store.pair("../../x") is None
        and store.pair("99-" + "0" * 16) is None
    )


def test_a_rewritten_step_replaces_its_pairs(tmp_path: Path) -> None:
    write_step(tmp_path, 1, [["a", "b"]])
    store = PairStore(tmp_path)
    (old,) = store.newest()
    write_step(tmp_path, 1, [["a", "other"]])
    (new,) = store.newest()
    assert new != old and store.pair(new) is not None and store.pair(old) is None


def test_prompts_that_were_messages_are_shown_as_messages(tmp_path: Path) -> None:
    write_step(tmp_path, 1, [["a", "b"], ["c", "d"]])
    write_prompts(tmp_path, {"s0": CHAT, "s1": None})
    store = PairStore(tmp_path)
    assert [pair.prompt for one in store.newest() if (pair := store.pair(one))] == [tuple(CHAT), "prompt 1"]


def test_a_pair_of_episodes_shows_conversations_and_is_not_exported_for_training() -> None:
    def played(index: int, result: str) -> dict[str, Any]:
        messages = [
            {"role": "user", "content": "When?"},
            {"role": "assistant", "content": "<call>", "turn": 0},
            {"role": "tool", "name": "find", "content": result, "outcome": "returned"},
        ]
        return row(1, 0, index, "same", episode=json.dumps({"messages": messages}))

    (pair,) = pairs_of_step([played(0, "1815"), played(1, "1816")], {})
    assert pair.prompt == ({"role": "user", "content": "When?"},)
    assert texts(pair) == {f"assistant:\n  <call>\n\ntool find:\n  {year}" for year in ("1815", "1816")}
    assert CompletionPair.from_record(pair.as_record()) == pair
    (plain,) = pairs_of_step(rows(["a", "b"]), {})
    ballots = Ballots()
    for one in (pair, plain):
        ballots.apply({"kind": "pair", **one.as_record()})
        ballots.apply({"kind": "vote", "pair": one.pair_id, "annotator": "ann", "choice": "left"})
    assert [one["pair"] for one in ballots.ranked()] == [plain.pair_id]
