"""The tree of an agent's turns: what stands for what was sampled, what begins a segment, and what is not trained."""

from typing import Any

import numpy as np

from headrace.services.environment.agent.tree import EpisodeTree, TreeTurn, message_key
from headrace.wire.contracts import FinishReason, PolicyVersion, Turn, VersionSpan, played_turns
from headrace.wire.rendering.chat_template import Seen

USER: dict[str, Any] = {"role": "user", "content": "q"}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def hears(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Played:
    """A tree over a template that writes one token a character of each message, and continues what was seen."""

    def __init__(self) -> None:
        self.tree, self.number = EpisodeTree(), 0

    def call(self, *messages: dict[str, Any], answer: str) -> TreeTurn:
        place = self.tree.take(messages)
        return self.answer(place, answer)

    def answer(self, place: Any, answer: str, *, before: str = "") -> TreeTurn:
        """`before`: what the template writes in front, where it does not go on from what was seen."""
        text = before + "".join(str(one["content"]) + "\n" for one in place.messages)
        context = np.array([ord(one) for one in text], np.int32)
        said = np.array([ord(one) for one in answer + "\n"], np.int32)
        version = PolicyVersion(incarnation=1, version=0)
        turn = Turn(
            context_ids=context,
            completion_ids=said,
            logprobs=np.full(len(said), -1.0, np.float32),
            finish_reason=FinishReason.STOP,
            spans=(VersionSpan(start=0, end=len(said), version=version, weights_digest="d"),),
        )
        seen = Seen(np.concatenate([context, said]), "")
        made = TreeTurn(
            number=self.number,
            place=place,
            turn=turn,
            seen=seen,
            said=says(answer),
            raw=says(f"raw {answer}"),
            text=f"raw {answer}",
        )
        self.number += 1
        self.tree.add(made)
        return made

    def trained(self) -> tuple[list[str], int]:
        """Answers in the order of training, and segments; each sampled token is there once."""
        turns = [one.turn for one in self.tree.trained()]
        joined = played_turns(turns)
        assert joined.loss_mask.sum() == sum(len(one.completion_ids) for one in turns)
        return [str(one.said["content"]) for one in self.tree.trained()], len(joined.segments)


def test_a_continued_conversation_is_one_segment_of_sampled_tokens() -> None:
    it = Played()
    first = it.call(USER, answer="a")
    second = it.call(USER, says("a"), hears("x"), answer="b")
    assert second.place.rendered() == [USER, says("raw a"), hears("x")]
    assert (first.begins, second.begins) == ("first", "") and first.used and not second.used
    assert it.trained() == (["a", "b"], 1)


def test_an_answer_is_known_by_content_reasoning_and_calls_with_arguments_as_json() -> None:
    def call(arguments: str, name: str = "add", number: str = "1") -> dict[str, Any]:
        made = {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
        return says("", tool_calls=[made])

    same = message_key(call('{"a": 1, "b": 2}'))
    assert message_key({**call('{"b":2,"a":1}', number="2"), "content": None, "refusal": None}) == same
    for other in (call('{"a": 1, "b": 3}'), call('{"a": 1, "b": 2}', "sub"), says(""), call('{"a": 1')):
        assert message_key(other) != same
    assert message_key(says("a")) != message_key(says("a", reasoning_content="hm"))


def test_an_edited_answer_begins_a_segment_and_the_answer_stays_trained_once() -> None:
    it = Played()
    it.call(USER, answer="a ")
    second = it.call(USER, says("a"), hears("x"), answer="b")
    assert second.begins == "edited" and second.place.parent is None
    assert it.trained() == (["a ", "b"], 2)


def test_a_history_cut_in_its_front_is_edited_and_a_new_conversation_is_opened() -> None:
    it = Played()
    it.call(USER, answer="a")
    it.call(USER, says("a"), hears("x"), answer="b")
    assert it.call(hears("sum"), says("b"), hears("y"), answer="c").begins == "edited"
    assert it.call(hears("sub-agent"), answer="d").begins == "opened"
    assert it.trained() == (["a", "b", "c", "d"], 3)


def test_a_request_repeated_before_its_answer_is_used_has_that_answer() -> None:
    it = Played()
    first = it.call(USER, answer="a")
    assert it.tree.repeated(it.tree.take([USER])) is first
    assert it.tree.repeated(it.tree.take([USER], ["tool"])) is None
    it.call(USER, says("a"), hears("x"), answer="b")
    assert it.tree.repeated(it.tree.take([USER])) is None


def test_an_abandoned_leaf_is_dropped_and_the_end_of_a_path_is_kept() -> None:
    it = Played()
    it.call(USER, answer="a")
    it.call(USER, says("a"), hears("x"), answer="b")
    again = it.call(USER, answer="other")
    assert not again.dropped and it.trained() == (["a", "b", "other"], 2)
    it.call(USER, says("a"), hears("x"), says("b"), hears("y"), answer="c")
    assert again.dropped and it.trained() == (["a", "b", "c"], 1)


def test_an_answer_left_out_of_the_history_is_dropped_also_if_it_comes_late() -> None:
    for late in (False, True):
        it = Played()
        place = it.tree.take([USER])
        if not late:
            it.answer(place, "a")
        it.call(USER, hears("say it again"), answer="b")
        if late:
            it.answer(place, "a")
        assert [one.dropped for one in it.tree.turns if one.said["content"] == "a"] == [True]
        assert it.trained() == (["b"], 1)


def test_branches_are_trained_depth_first_with_each_token_once() -> None:
    it = Played()
    it.call(USER, answer="a")
    one, two = hears("1"), hears("2")
    it.call(USER, says("a"), one, answer="b1")
    branched = it.call(USER, says("a"), two, answer="b2")
    it.call(USER, says("a"), one, says("b1"), hears("x"), answer="c1")
    it.call(USER, says("a"), two, says("b2"), hears("x"), answer="c2")
    assert branched.begins == "branched"
    assert it.trained() == (["a", "b1", "c1", "b2", "c2"], 2)
    last = it.tree.last()
    assert last is not None and last.said["content"] == "c2"


def test_the_branch_that_continues_a_turn_follows_it_even_if_opened_later() -> None:
    it = Played()
    it.call(USER, answer="a")
    rendered_anew = it.answer(it.tree.take([USER, says("a"), hears("1")]), "b1", before="no thoughts\n")
    assert rendered_anew.begins == "template"
    it.call(USER, says("a"), hears("2"), answer="b2")
    assert it.trained() == (["a", "b2", "b1"], 2)


def test_a_branch_takes_the_place_of_one_that_was_dropped() -> None:
    it = Played()
    it.call(USER, answer="a")
    one, two = hears("1"), hears("2")
    it.call(USER, says("a"), one, answer="b1")
    it.call(USER, says("a"), one, two, answer="c")
    it.call(USER, says("a"), two, answer="b2")
    assert it.trained() == (["a", "c", "b2"], 2)
