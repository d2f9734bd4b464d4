"""A line of `evals.jsonl` holds one evaluation set without a name or several with names; one measure heads them."""

import pytest

from headrace.wire.rundir.evals import headline, named, progress_in_words, sets_of

NUMBERS = {"accuracy": 0.5, "reward_mean": 0.4, "rewards/math/mean": 0.4}


@pytest.mark.parametrize("names", [("",), ("a",), ("b", "a.1-x")])
def test_the_numbers_of_each_set_are_found_again(names: tuple[str, ...]) -> None:
    row = {"version": 3, "t": 1.5}
    for name in names:
        row |= named(name, NUMBERS)
    assert sets_of(row) == dict.fromkeys(names, NUMBERS) and [*sets_of(row)] == [*names]


def test_the_headline_is_the_first_set_of_the_last_line_and_skips_lines_without_it() -> None:
    rows = [
        {"version": 0, "a/accuracy": 0.1, "a/prompts": 3},
        {"version": 2, "b/reward_mean": 9.0},
        {"version": 3, "a/accuracy": None, "a/prompts": 0},
        {"version": 4, "a/reward_mean": 0.2, "a/accuracy": 0.25, "b/accuracy": 0.75},
    ]
    found = headline(rows)
    assert (found.title, found.values, found.known) == ("accuracy", [0.1, None, 0.25], [0.1, 0.25])
    assert headline(rows[:2]) == headline([{"version": 2, "b/reward_mean": 9.0}])
    assert (headline(rows[1:2]).title, headline([]).title, headline([]).known) == ("reward", "accuracy", [])
    assert progress_in_words(rows) == "a accuracy 10.0% -> 25.0%, b accuracy 75.0%"
    assert (progress_in_words([]), progress_in_words([{"version": 0, "prompts": 0}])) == ("", "")
