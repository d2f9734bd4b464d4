"""`/api/annotation/...`: pairs to judge, votes, and the annotators' agreement."""

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
    waiting: int


class VoteRecorded(ApiModel):
    """Answer to a vote."""

    recorded: bool
    """False: it was recorded already."""
    next: AnnotationTurn


class VoteWithdrawn(ApiModel):
    """Answer to an undo."""

    undone: bool
    """False: there was no vote."""
    next: AnnotationTurn


class PairCounts(ApiModel):
    """Pairs with verdicts."""

    judged: int
    ranked: int
    """Those with a strict majority for one side."""


class AnnotatorCounts(ApiModel):
    """What one annotator did."""

    name: str
    judged: int
    skipped: int


class Agreement(ApiModel):
    """Agreement of annotators; None if no pair was judged twice."""

    pairs: int
    """Pairs with at least two verdicts."""
    percent: float | None
    """Share of annotator pairs with equal verdicts, 0 to 1."""
    alpha: float | None
    """Krippendorff's alpha."""


class AnnotationSummary(ApiModel):
    """Answer of `/api/annotation/summary`."""

    votes: int
    choices: dict[str, int]
    """Choice -> votes."""
    pairs: PairCounts
    annotators: tuple[AnnotatorCounts, ...]
    agreement: Agreement
