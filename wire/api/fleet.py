"""`/api/fleet`: replicas, trainer, and the last publications."""

from headrace.wire.api.model import ApiModel
from headrace.wire.api.status import ReplicaStatus, TrainerStatus


class PhaseSpan(ApiModel):
    """One phase of a publication; times are seconds since its beginning."""

    phase: str
    from_s: float
    to_s: float


class PublicationMember(ApiModel):
    """A replica in a publication."""

    replica_id: str
    route: str
    """Backend of its weights; empty if it got none."""
    route_reason: str = ""
    """Why that is not the best backend; empty if it is."""
    committed: bool
    """Serves the version."""
    reason: str
    """Phase and reason of a miss; else empty."""
    proof: str = ""
    """`proven`, `compared` or `canary`; empty without a commit."""
    proof_note: str = ""


class PublicationTimeline(ApiModel):
    """One publication, in progress or read from the event log."""

    id: str | int | None = None
    version: int | None = None
    incarnation: int | None = None
    began: float | None = None
    """Unix seconds."""
    seconds: float
    """Since its beginning."""
    phases: tuple[PhaseSpan, ...]
    members: tuple[PublicationMember, ...]
    ended: bool


class Fleet(ApiModel):
    """Answer of `/api/fleet`."""

    replicas: tuple[ReplicaStatus, ...]
    trainer: TrainerStatus
    publications: tuple[PublicationTimeline, ...]
    """Newest first, at most 50."""
