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


def asks(*messages: tuple[str, Any]) -> str:
    return json.dumps([{"role": role, "content": content} for role, content in messages])


def test_with_a_template_all_messages_are_rendered() -> None:
    made = tokenizer(TEMPLATE)
    ids = ChatPrompts(made).token_ids(asks(("system", "1"), ("user", [{"type": "text", "text": "2+3"}])))
    assert ids.tolist() == made("1=2+3=", add_special_tokens=False)["input_ids"]


def test_without_one_the_only_message_is_the_prompt_as_in_training() -> None:
    made = tokenizer()
    assert ChatPrompts(made).token_ids(asks(("user", "2+3="))).tolist() == made("2+3=")["input_ids"]
    with pytest.raises(ContractError, match="no chat template: give one message"):
        ChatPrompts(made).token_ids(asks(("system", "1"), ("user", "2")))


def test_what_the_template_refuses_is_told_in_its_words() -> None:
    with pytest.raises(ContractError, match="no tools"):
        ChatPrompts(tokenizer(TEMPLATE)).token_ids(asks(("tool", "1")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "at least one"),
        ('{"role": "user"}', "must be a list"),
        ('["hello"]', r"messages\[0\]\.role"),
        ('[{"role": "boss", "content": "x"}]', "system, developer"),
        ('[{"role": "user", "content": [{"type": "image_url"}]}]', "must be text"),
        ('[{"role": "user"}]', "must be text"),
    ],
)
def test_messages_that_are_none_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        read_messages(text)


def test_a_prompt_without_a_token_is_refused() -> None:
    with pytest.raises(ContractError, match="no tokens"):
        ChatPrompts(tokenizer()).token_ids(asks(("user", "")))
