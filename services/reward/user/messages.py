"""What a user's function gets of a conversation: messages in OpenAI's form. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.services.reward.conversation import Conversation, Message
from headrace.services.reward.scorer import Sample
from headrace.services.reward.user.scorer import PROMPT_MESSAGES


@dataclass(frozen=True, slots=True)
class ChatMessages:
    """A conversation in two parts, as messages of OpenAI's form."""

    asked: list[Message]
    """Messages before the policy's first."""
    said: list[Message]
    """The policy's first message and all that follow it."""


def chat_of(sample: Sample) -> ChatMessages | None:
    """The conversation of an episode, or of a prompt that was messages; None for a prompt of plain text."""
    conversation = sample.conversation
    if conversation is not None:
        return ChatMessages(conversation.asked, conversation.said)
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


def with_call_ids(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The messages with an id for each call, which the call's result names; `arguments` are JSON text.

    A result belongs to the first call of its name that has none yet in the message before it; a result without a name
    to the first call of all. A result of no call has an empty id.
    """
    found: list[dict[str, object]] = []
    unanswered: list[tuple[str, str]] = []
    for place, message in enumerate(messages):
        calls = message.get("tool_calls")
        if message["role"] == "assistant":
            asked = [one["function"] for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
            named = [(f"call_{place}_{number}", one) for number, one in enumerate(asked) if isinstance(one, dict)]
            unanswered = [(name, str(one["name"])) for name, one in named]
            flat = [{"id": name, "name": one["name"], "arguments": _as_text(one["arguments"])} for name, one in named]
            found.append({**message, "tool_calls": flat or None})
        elif message["role"] == "tool":
            answered = next((one for one in unanswered if message.get("name", one[1]) == one[1]), None)
            if answered is not None:
                unanswered.remove(answered)
            found.append({**message, "tool_call_id": answered[0] if answered else ""})
        else:
            found.append(dict(message))
    return found


def tokens_of(sample: Sample, conversation: Conversation) -> list[dict[str, object]]:
    """Token ids of each message from the policy's first on, with `mask` (True = sampled) and `usage` (read, sampled).

    What was read between two turns stands before the sampled ids of the second, as `verifiers` has it where a renderer
    gives no spans of messages: one after the other, the ids are those that the engine saw. An episode of several
    segments is not one sequence: each of its turns has only its sampled ids. Others' messages have none.
    """
    found: list[dict[str, object]] = []
    whole = sample.episode is not None and len(sample.episode.segments) == 1 and _is_in_order(sample, conversation)
    for turn in conversation.turns[conversation.first :]:
        found.append(_of_turn(sample, turn, whole=whole) if turn is not None else {})
    return found


def _is_in_order(sample: Sample, conversation: Conversation) -> bool:
    turns = [one for one in conversation.turns if one is not None]
    return sample.episode is not None and turns == list(range(len(sample.episode.turn_ends)))


def _of_turn(sample: Sample, turn: int, *, whole: bool) -> dict[str, object]:
    episode, ids, mask = sample.episode, sample.completion_ids, sample.loss_mask
    if episode is None or ids is None or not 0 <= turn < len(episode.turn_ends):
        return {}
    begin, end = episode.turn_ends[turn - 1] if turn else 0, episode.turn_ends[turn]
    # The last tokens of a turn are sampled: what was read stands before them.
    sampled = end - begin if mask is None else int(mask[begin:end].sum())
    segment = next(one for one in reversed(episode.segments) if one.start < end)
    read = ids[begin : end - sampled].tolist() if whole else []
    if whole and begin == segment.start:
        read = segment.context_ids.tolist()
    return {
        "token_ids": [*read, *ids[end - sampled : end].tolist()],
        "mask": [False] * len(read) + [True] * sampled,
        "usage": (len(segment.context_ids) + end - sampled - segment.start, sampled),
    }


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
