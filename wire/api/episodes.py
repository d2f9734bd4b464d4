"""An episode as a conversation: what the dashboard, `headrace explain` and `headrace generate` show of it."""

from headrace.wire.api.model import ApiModel


class SegmentView(ApiModel):
    """Tokens [start, end) of the completion, which the engine saw behind a context of their own."""

    start: int
    end: int
    context_tokens: int
    context_text: str | None
    """None without a tokenizer."""


class MessageView(ApiModel):
    """One message: of the policy (it has a turn), of a tool (it has an outcome), or of the environment."""

    role: str
    content: str
    """A tool's is its result as the policy reads it; empty where there is none."""
    name: str = ""
    """Name of the tool."""
    turn: int | None = None
    """Number of the policy's turn, from 0."""
    segment: int | None = None
    """Number of the turn's segment, from 0."""
    read_from: int | None = None
    """Tokens [read_from, start) of the completion were read before the turn, and are not trained."""
    start: int | None = None
    end: int | None = None
    """Tokens [start, end) of the completion were sampled in the turn, its stop token included."""
    versions: tuple[str, ...] = ()
    """`incarnation.version` of each policy that sampled the turn."""
    replica_id: str = ""
    reward: float | None = None
    """The environment's reward of the turn."""
    arguments: str = ""
    """The call's arguments as a JSON object; empty for a call that could not be read."""
    outcome: str = ""
    """How the call ended: `returned`, `raised`, `refused`, `malformed`, or `unanswered` (the episode ended in it)."""
    cut: int = 0
    """Characters of the result that the policy does not read."""
    seconds: float | None = None
    """Duration of the turn, from the question to the answer, or of the call."""


class EpisodeView(ApiModel):
    """One episode."""

    messages: tuple[MessageView, ...]
    segments: tuple[SegmentView, ...]
    turns: int
    sampled_tokens: int
    read_tokens: int
    """Those between turns; the contexts of segments are beside them."""
    reward: float | None
    """The environment's; None: it gave none."""
    components: dict[str, float]
    metrics: dict[str, float]
    error: str
    """What ended it, where the finish reason is an error or a time limit."""
