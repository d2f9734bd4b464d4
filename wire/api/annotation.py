"""`/api/annotation/...`: pairs to judge, and votes."""

from headrace.wire.api.model import ApiModel


class PromptMessage(ApiModel):
    """One message of a prompt; the role of a prompt that is plain text is `prompt`."""

    role: str
    content: str


class AnnotatedSide(ApiModel):
    """One of the two completions."""

    text: str
    truncated: bool
    """Cut off by the token limit."""


class AnnotatedPair(ApiModel):
    """A pair as an annotator sees it: without rewards and rollout indices."""

    id: str
    step: int
    prompt: tuple[PromptMessage, ...]
    left: AnnotatedSide
    right: AnnotatedSide


class AnnotationTurn(ApiModel):
    """The next pair for an annotator, and their progress."""

    pair: AnnotatedPair | None
    """None: no pair is left."""
    undo: str | None
    """The pair of their last vote; None without one."""
    judged: int
