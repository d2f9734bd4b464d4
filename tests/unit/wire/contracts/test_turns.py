"""Turns of a conversation become sequences that the engine really saw."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.contracts import (
    FinishReason,
    PolicyVersion,
    Turn,
    VersionSpan,
    join_turns,
)
from headrace.wire.errors import ContractError

TOKENS = st.lists(st.integers(0, 50), min_size=1, max_size=5)


def ids(values: list[int]) -> Any:
    return np.array(values, np.int32)


def span(start: int, end: int, version: int = 0) -> VersionSpan:
    return VersionSpan(start=start, end=end, version=PolicyVersion(incarnation=1, version=version), weights_digest="d")


def turn(context: list[int], completion: list[int], *, version: int = 0, logprob: float = -0.5) -> Turn:
    return Turn(
        context_ids=ids(context),
        completion_ids=ids(completion),
        logprobs=np.full(len(completion), logprob, np.float32),
        finish_reason=FinishReason.STOP,
        spans=(span(0, len(completion), version),),
    )


def conversation(prompt: list[int], rounds: list[tuple[list[int], list[int]]]) -> list[Turn]:
    """Each round is what the policy says and what is said to it then."""
    turns, context = [], prompt
    for number, (said, heard) in enumerate(rounds):
        turns.append(turn(context, said, version=number // 2, logprob=-1.0 - number))
        context = [*context, *said, *heard]
    return turns


ROUNDS = st.lists(st.tuples(TOKENS, st.lists(st.integers(0, 50), max_size=4)), min_size=1, max_size=5)


def test_two_turns_join_with_masked_tool_tokens_between_them() -> None:
    first = turn([1, 2], [3, 4], version=1)
    (joined,) = join_turns([first, turn([1, 2, 3, 4, 9, 9], [5], version=2, logprob=-0.25)])
    assert joined.prompt_ids.tolist() == [1, 2]
    assert joined.completion_ids.tolist() == [3, 4, 9, 9, 5]
    assert joined.loss_mask.tolist() == [True, True, False, False, True]
    assert joined.logprobs.tolist() == [-0.5, -0.5, 0, 0, -0.25]
    assert joined.spans == (span(0, 4, 1), span(4, 5, 2)) and joined.turns == 2


def test_weights_that_stay_are_one_span_and_weights_that_change_within_a_turn_are_two() -> None:
    later = replace(turn([1, 2, 9], [3, 4]), spans=(span(0, 1), span(1, 2, 1)))
    (joined,) = join_turns([turn([1], [2]), later])
    assert joined.spans == (span(0, 3), span(3, 4, 1))


@pytest.mark.parametrize(
    "context",
    [
        [1, 2, 3, 8, 9],  # The border was merged otherwise: 4 and 9 have become 8 and 9.
        [1, 2, 4, 9],  # A template that drops the reasoning of earlier turns.
        [1, 2, 3],  # Less than what was there.
        [7, 2, 3, 4, 9],  # Another system prompt.
    ],
)
def test_a_context_that_differs_from_the_history_begins_a_new_sequence(context: list[int]) -> None:
    one, two = join_turns([turn([1, 2], [3, 4]), turn(context, [5])])
    assert one.completion_ids.tolist() == [3, 4] and one.loss_mask.all()
    assert two.prompt_ids.tolist() == context and two.completion_ids.tolist() == [5]


@given(TOKENS, ROUNDS)
def test_turns_that_continue_one_another_are_one_sequence_with_every_token_at_its_place(
    prompt: list[int], rounds: list[tuple[list[int], list[int]]]
) -> None:
    turns = conversation(prompt, rounds)
    (joined,) = join_turns(turns)
    last = turns[-1]
    whole = [*last.context_ids.tolist(), *last.completion_ids.tolist()]
    assert [*joined.prompt_ids.tolist(), *joined.completion_ids.tolist()] == whole
    said = [token for each in turns for token in each.completion_ids.tolist()]
    assert joined.completion_ids[joined.loss_mask].tolist() == said
    assert joined.logprobs[joined.loss_mask].tolist() == [x for each in turns for x in each.logprobs.tolist()]
    versions = np.concatenate([np.full(each.end - each.start, each.version.version) for each in joined.spans])
    wanted = [number // 2 for number, (text, _) in enumerate(rounds) for _ in text]
    assert versions[joined.loss_mask].tolist() == wanted
    assert {each.version.version for each in joined.spans} == set(wanted)


@given(TOKENS, ROUNDS.filter(lambda rounds: len(rounds) > 1), st.data())
def test_a_changed_token_splits_exactly_where_the_contexts_part(
    prompt: list[int], rounds: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    turns = conversation(prompt, rounds)
    number = data.draw(st.integers(1, len(turns) - 1))
    before, drifted = turns[number - 1], turns[number]
    known = len(before.context_ids) + len(before.completion_ids)
    place = data.draw(st.integers(0, known - 1))
    # From here on the conversation is rendered with another token at this place.
    for later in range(number, len(turns)):
        changed = turns[later].context_ids.copy()
        changed[place] += 1
        turns[later] = replace(turns[later], context_ids=changed)
    one, two = join_turns(turns)
    assert (one.turns, two.turns) == (number, len(turns) - number)
    assert two.prompt_ids.tolist() == turns[number].context_ids.tolist() != drifted.context_ids.tolist()
    said = np.concatenate([each.completion_ids for each in turns])
    trained = np.concatenate([part.completion_ids[part.loss_mask] for part in (one, two)])
    assert trained.tolist() == said.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"context_ids": ids([])},
        {"completion_ids": ids([])},
        {"completion_ids": ids([-1, 2])},
        {"logprobs": np.zeros(1, np.float32)},
        {"logprobs": np.array([0.5, 0], np.float32)},
        {"spans": (span(0, 1),)},
    ],
)
def test_a_bad_turn_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        replace(turn([1], [2, 3]), **changes)
