"""Messages of a chat as the model gets them."""

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import character_tokenizer
from headrace.services.rollout.chat.chat_prompt import ChatPrompts, read_messages
from headrace.wire.errors import ContractError

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}={% endfor %}"
    "{% if messages[0].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
)


def tokenizer(template: str | None = None) -> Any:
    made = PreTrainedTokenizerFast(tokenizer_object=character_tokenizer(CHARACTERS))
    made.chat_template = template
    return made


def prompts(made: Any, context_length: int = 64) -> ChatPrompts:
    return ChatPrompts(made, context_length=context_length)


def asks(*messages: tuple[str, Any]) -> str:
    return json.dumps([{"role": role, "content": content} for role, content in messages])


def test_with_a_template_all_messages_are_rendered() -> None:
    made = tokenizer(TEMPLATE)
    ids = prompts(made).token_ids(asks(("system", "1"), ("user", [{"type": "text", "text": "2+3"}])))
    assert ids.tolist() == made("1=2+3=", add_special_tokens=False)["input_ids"]


def test_an_assistants_message_at_the_end_is_continued() -> None:
    made = tokenizer(TEMPLATE)
    ids = prompts(made).token_ids(asks(("user", "2+3"), ("assistant", "1")))
    assert ids.tolist() == made("2+3=1", add_special_tokens=False)["input_ids"]


def test_without_a_template_the_only_message_is_the_prompt_as_in_training() -> None:
    made = tokenizer()
    assert prompts(made).token_ids(asks(("user", "2+3="))).tolist() == made("2+3=")["input_ids"]
    with pytest.raises(ContractError, match="no chat template: give one message"):
        prompts(made).token_ids(asks(("system", "1"), ("user", "2")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "at least one"),
        ('{"role": "user"}', "must be a list"),
        ('["hello"]', "message 1: a message is an object"),
        ('[{"role": "boss", "content": "x"}]', "system, developer"),
        ('[{"role": "user", "content": [{"type": "image_url"}]}]', "text"),
        ('[{"role": "user"}]', "text"),
    ],
)
def test_invalid_messages_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        read_messages(text)


class Counted:
    """A tokenizer that keeps how many characters it has been given at once."""

    def __init__(self, made: Any) -> None:
        self.made, self.most = made, 0

    def __call__(self, text: str, **options: Any) -> Any:
        self.most = max(self.most, len(text))
        return self.made(text, **options)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.made.get_vocab())


@pytest.mark.parametrize("size", [64 * 6 + 1, 64 * 16, 4_000_000])
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized_whole(size: int) -> None:
    counted = Counted(tokenizer())
    with pytest.raises(
        ContractError, match=rf"a prompt of {size} characters leaves no room in a context of 64"
    ) as raised:
        prompts(counted).token_ids(asks(("user", "1" * size)))
    assert raised.value.code == "context_overflow" and counted.most <= 64 * 6
