"""What a user's function gets of a conversation: messages in OpenAI's form. Pure."""

import contextlib
from collections.abc import Mapping

from headrace.services.reward.scorer import Sample
from headrace.services.reward.user.scorer import PROMPT_MESSAGES
from headrace.wire.contracts.transcript import ChatMessages, read_chat


def chat_of(sample: Sample) -> ChatMessages | None:
    """The conversation of an episode, or of a prompt that was messages; None for a prompt of plain text."""
    if sample.episode is not None:
        with contextlib.suppress(ValueError):
            return read_chat(sample.episode.messages_json)
    messages = sample.columns.get(PROMPT_MESSAGES)
    if not isinstance(messages, list) or not messages:
        return None
    asked = [dict(one) for one in messages if isinstance(one, Mapping)]
    return ChatMessages(asked, [{"role": "assistant", "content": sample.completion}])


def messages_of(sample: Sample) -> list[dict[str, object]]:
    """All messages; a prompt of plain text is one of the user's."""
    chat = chat_of(sample)
    if chat is None:
        chat = ChatMessages(
            [{"role": "user", "content": sample.prompt}], [{"role": "assistant", "content": sample.completion}]
        )
    return [dict(one) for one in (*chat.asked, *chat.said)]
