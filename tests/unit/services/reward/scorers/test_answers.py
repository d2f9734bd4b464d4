r"""Where a text states its answer, and what stands there: the contract of docs/rewards.md."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.scorers.answers.answers import find_answer, last_boxed
from headrace.services.reward.scorers.math.reading import read_key, read_said

FOUND: list[tuple[str, str | None, str]] = [
    # The order of places, and the last one of each.
    ("#### 1\n\\boxed{2}<answer>3</answer>", "3", "tag"),
    ("\\boxed{2} Answer: 5\n#### 1", "2", "box"),
    ("Answer: 5\n#### 1", "1", "mark"),
    ("Answer: 5\n7", "5", "label"),
    ("so be it\n7", "7", "line"),
    ("<answer>1</answer><answer>2</answer>", "2", "tag"),
    ("\\boxed{1} \\fbox{2}", "2", "box"),
    ("#### 1\n#### 2\nmore", "2", "mark"),
    ("Answer: 1\nThe final answer is 2", "2", "label"),
    (" \n", None, ""),
    # A tag is a border; what was cut off is no answer.
    ("<answer>\n\\boxed{42}\n</answer>", "42", "tag"),
    ("<answer>4", None, ""),
    ("7\n<answer>4", "7", "line"),
    ("\\boxed{41} and \\boxed{42", "41", "box"),
    ("42</answer>", "42", "line"),
    ("#### 18<|im_end|>", "18", "mark"),
    # What is written around an answer.
    ("**Answer:** $18$.", "18", "label"),
    ("**Final answer: 18**", "18", "label"),
    ("Answer:\n\n18", "18", "label"),
    ("answer is: \\(18\\)", "18", "label"),
    ("#### Final Answer: 18", "18", "mark"),
    ("#### Step 3: add\n18", "18", "line"),
    ("`18`", "18", "line"),
    (r"\boxed{\{1, 2\}} }", r"\{1, 2\}", "box"),
    (r"is \boxed 23.", "23", "box"),
    ("\\boxed{41, \\boxed{42}}", "41, \\boxed{42}", "box"),
    ("<Answer> The answer is 42 </ANSWER >", "42", "tag"),
    ("<answer>42<|im_end|></answer>", "42", "tag"),
    ("Answer: 42</s>", "42", "label"),
    ("Answer: 42<\uff5cend\u2581of\u2581sentence\uff5c>", "42", "label"),
    ("The answer is choice B", "B", "label"),
    # Other languages.
    ("\u7b54\u6848\u662fC", "C", "label"),
    ("\u7b54\u6848\uff1a\uff0842\uff09\u3002", "(42)", "label"),
    ("\u7b54\u3048\uff1a42\u3002", "42", "label"),
    ("\u6240\u4ee5\uff0c\u7b54\u6848\u662f42\u3002".replace("\u3002", ""), "42", "label"),
    ("\u7b54\u6848\uff1a42", "42", "label"),
    ("La respuesta es 42.", "42", "label"),
    ("La r\u00e9ponse est 42", "42", "label"),
    ("Die Antwort lautet: 42", "42", "label"),
    ("\u041e\u0442\u0432\u0435\u0442: 42", "42", "label"),
    ("\uc815\ub2f5: 42", "42", "label"),
]


@pytest.mark.parametrize(("text", "answer", "place"), FOUND, ids=lambda value: repr(value)[:30])
def test_an_answer_is_found_in_the_stated_order(text: str, answer: str | None, place: str) -> None:
    found = find_answer(text)
    assert (answer, place) == ((None, "") if found is None else (found.text, found.place))


def test_a_named_place_is_the_only_one() -> None:
    text = "Answer: 5\n\\boxed{2}\n#### 1\n7"
    assert [find_answer(text, place=place).text for place in ("box", "mark", "label", "line")] == ["2", "1", "5", "7"]  # type: ignore[union-attr]
    assert find_answer(text, place="tag") is None


def test_the_label_of_a_dialogue_is_an_option_where_options_are_asked_for() -> None:
    assert find_answer("A: 18").text == "18"  # type: ignore[union-attr]
    assert find_answer("A: 18", is_option=True).place == "line"  # type: ignore[union-attr]


def test_a_box_ends_at_its_own_brace() -> None:
    assert last_boxed(r"\boxed{a} \boxed{b") == "a"
    assert last_boxed(r"\fbox{3}") == "3"
    assert last_boxed("none") is None


KEYS = [
    "A",
    "B",
    "C",
    "41",
    "42",
    "-42",
    "1/2",
    "31/2",
    "3 1/2",
    "12",
    "1 2",
    "4241",
    "Paris",
    "London",
    "yes",
    "no",
    "5 km",
    "3:4",
    "2516_8",
    "1800",
]
JOINS = [
    " or ",
    " and ",
    ", ",
    ": is ",
    " is ",
    "/",
    " - ",
    " = ",
    "\n",
    "  ",
    ". ",
    " not ",
    " (",
    ":",
    ": ",
    "; ",
    "",
]
PLACES = [
    "\\boxed{%s}",
    "<answer>%s</answer>",
    "#### %s",
    "Answer: %s",
    "The answer is %s.",
    "%s",
    "A: %s",
    "\\fbox{$%s$}",
]


@given(st.sampled_from(KEYS), st.sampled_from(JOINS), st.sampled_from(KEYS), st.sampled_from(PLACES))
def test_no_text_is_right_for_two_different_keys(one: str, join: str, other: str, place: str) -> None:
    text = place.replace("%s", one + join + other)
    assert sum(read_said(text, read_key(key)).equal is True for key in KEYS) <= 1


@given(st.sampled_from(KEYS), st.sampled_from(PLACES[:-3]), st.text(alphabet="ab \n.=$", max_size=20))
def test_an_answer_in_its_place_counts_regardless_of_preceding_text(key: str, place: str, before: str) -> None:
    assert read_said(f"{before}\n{place.replace('%s', key)}", read_key(key)).equal is True


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 50_000, "answer is " * 30_000, "answer: " + "x = " * 70_000, "1" * 300_000, "1,111" * 60_000,
        "1 " * 150_000, "=" * 300_000, "*" * 300_000, "#### " * 60_000, "####" + " " * 300_000, "\\frac{" * 50_000,
        "x" * 300_000 + "= 3", "answer: " + "3+" * 100_000, "$" * 300_000, "A : " * 70_000, "a.\n" * 100_000,
        r"\boxed{" + "x(" * 700 + "= 3}", r"\boxed{" + "3*" * 700 + "}", "answer: " + "1 or " * 290, "</a" * 100_000,
        "<answer>" * 50_000, "</answer>" * 50_000, "1 000 " * 60_000, r"0.\overline" * 30_000, "5_" * 100_000,
        "answer: " + "1 " * 700, "answer: 1 " + "ab " * 480, "answer: " + "km " * 480, "<|" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_hostile_texts_cost_no_time(text: str) -> None:
    begin = time.process_time()
    for key in ("18", "x^2", "Paris", "C", "5 km", "3:4"):
        read_said(text, read_key(key), text[:2000])
    assert time.process_time() - begin < 5  # What grows with the square of the length takes minutes.
