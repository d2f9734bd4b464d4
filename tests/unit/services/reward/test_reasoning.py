"""Where thoughts end and the answer begins."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.rubric.reasoning import TAGS, answer_start, opened_by


def answer(completion: str, *, opened: bool = False, tags: tuple[str, ...] = TAGS) -> str | None:
    start = answer_start(completion, tags, opened=opened)
    return None if start is None else completion[start:]


def test_text_up_to_the_last_closing_tag_is_reasoning() -> None:
    assert answer("<think>4</think>42") == "42"
    assert answer("a</think>b</think>c") == "c"
    assert answer("I think 42.</think>") == ""
    assert answer("42") == "42"


def test_a_thought_that_never_closes_has_no_answer() -> None:
    assert answer("<think>42") is None
    assert answer("<think>1</think>2<think>3") is None
    assert answer("42", opened=True) is None
    assert answer("4</think>42", opened=True) == "42"


def test_reasoning_tags_come_from_the_run() -> None:
    assert answer("[THINK]4[/THINK]42", tags=("[THINK]", "[/THINK]")) == "42"
    assert answer("<think>4</think>42", tags=()) == "<think>4</think>42"


@given(st.lists(st.sampled_from(["<think>", "</think>", "42", "\n"]), max_size=8))
def test_an_answer_holds_no_tag(pieces: list[str]) -> None:
    found = answer("".join(pieces))
    assert found is None or not any(tag in found for tag in TAGS)


def test_a_prompt_can_open_reasoning_at_its_end_or_in_a_given_answer_prefix() -> None:
    assert opened_by("<|assistant|><think>\n", None, TAGS) == "<think>"
    assert opened_by("Use <think> and </think>.", None, TAGS) == ""
    begun = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "<think>\nOkay"}]
    assert opened_by("?<think>\nOkay", begun, TAGS) == "<think>"
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "<think>"}, {"type": "text", "text": "Okay"}]}]
    assert opened_by("?<think>Okay", parts, TAGS) == "<think>"
    assert opened_by("?", [{"role": "user", "content": "<think>"}], TAGS) == ""
