"""A completion in two: what the policy thought, and what it answers; for scorers and judges. Pure."""

from collections.abc import Mapping, Sequence

Tags = tuple[str, ...]
"""The tag that opens a thought and the one that closes it; none: the model has no thoughts."""
TAGS: Tags = ("<think>", "</think>")


def opened_by(prompt: str, messages: object, tags: Tags) -> str:
    """The tag, where the prompt leaves a thought open; else nothing.

    A template may write the tag after the last message, and an assistant's beginning that is continued may hold it.
    `messages` are those of the prompt, None for a prompt of text.
    """
    if not tags:
        return ""
    last = messages[-1] if isinstance(messages, Sequence) and messages else None
    begun = last.get("content") if isinstance(last, Mapping) and last.get("role") == "assistant" else None
    if isinstance(begun, Sequence) and not isinstance(begun, str):
        begun = "".join(str(part.get("text", "")) for part in begun if isinstance(part, Mapping))
    is_open = isinstance(begun, str) and begun.rfind(tags[0]) > begun.rfind(tags[1])
    return tags[0] if is_open or prompt.rstrip().endswith(tags[0]) else ""


def answer_start(completion: str, tags: Tags, *, opened: bool) -> int | None:
    """Characters of the completion that are thoughts: those up to the last closing tag.

    None where a thought was opened, in the prompt or in the completion, and never closed: there is no answer.

    >>> answer_start("<think>4</think>42", TAGS, opened=False)
    16
    >>> answer_start("It is 42", TAGS, opened=True) is None
    True
    """
    if not tags:
        return 0
    closed = completion.rfind(tags[1])
    if completion.rfind(tags[0]) > closed or (opened and closed < 0):
        return None
    return closed + len(tags[1]) if closed >= 0 else 0
