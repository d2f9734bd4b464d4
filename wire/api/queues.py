"""`/api/queues` and `/api/dead`."""

from headrace.wire.api.model import ApiModel


class QueueRow(ApiModel):
    """One stream."""

    name: str
    length: int
    pending: int
    undelivered: int
    oldest_pending_seconds: float


class QueueList(ApiModel):
    """Answer of `/api/queues`: the streams as of the last housekeeping pass."""

    streams: tuple[QueueRow, ...]
    dead: int
    """Dead letters."""


class DeadLetter(ApiModel):
    """One group that was given up: an entry of the stream `dead`, without its payload."""

    id: str
    """Id of the entry in the stream `dead`."""
    t: float
    """Unix seconds."""
    group_id: str
    group_index: int | None
    """None if not even the header can be decoded."""
    attempt: int
    purpose: str
    reason: str
    error: str
    service: str
    bytes: int
    prompt: str
    """First characters; empty if the body cannot be decoded."""
    sample_id: str


class DeadLetterRow(DeadLetter):
    """One group that was given up."""

    requeued: bool
    """Its prompt was issued again."""


class DeadLetterPage(ApiModel):
    """Answer of `/api/dead`, newest first."""

    total: int
    """All dead letters, those that are not kept for display included."""
    rows: tuple[DeadLetterRow, ...]
