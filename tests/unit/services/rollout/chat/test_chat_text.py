"""What of a growing answer may be said."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.rollout.chat.answer_text import AnswerText

TEXTS = st.text("ab\n", max_size=24)


def said(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    answer, found = AnswerText(stops), []
    for count in range(1, len(pieces) + 1):
        found.append(answer.take("".join(pieces[:count]), last=count == len(pieces)))
        if answer.stopped:
            break
    return found, answer.stopped


@given(st.lists(TEXTS, min_size=1, max_size=6), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3))
def test_streamed_pieces_concatenate_to_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    places = [whole.find(stop) for stop in stops if stop in whole]
    found, stopped = said(pieces, stops)
    assert stopped == bool(places)
    if not places:
        assert "".join(found) == whole
    elif len(found) == len(pieces):
        assert "".join(found) == whole[: min(places)]
    assert whole.startswith("".join(found))
    assert not any(stop in "".join(found) for stop in stops)


def test_a_possible_stop_text_is_held_back_until_it_is_decided() -> None:
    answer = AnswerText(["</end>"])
    assert answer.take("so it is </e", last=False) == "so it is "
    assert answer.take("so it is </em>", last=False) == "</em>"
    assert answer.take("so it is </em> x</end> and more", last=False) == " x"
    assert answer.stopped


def test_a_partial_character_is_not_streamed() -> None:
    answer = AnswerText([])
    assert answer.take("caf\ufffd", last=False) == "caf"
    assert answer.take("caf\u00e9", last=False) == "\u00e9"
    assert answer.take("caf\u00e9\ufffd", last=True) == "\ufffd"
