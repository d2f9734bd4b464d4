"""Progress and timeline of a publication, for status displays."""

import time
from dataclasses import dataclass, field

from headrace.services.orchestrator.publication.routes import ReplicaProof
from headrace.wire.api.fleet import PhaseSpan, PublicationMember, PublicationTimeline
from headrace.wire.contracts import PolicyVersion


@dataclass(slots=True, kw_only=True)
class Phase:
    """Start and end of a phase, in monotonic seconds. `until` is 0 while it lasts."""

    name: str
    since: float
    until: float = 0.0


@dataclass(slots=True, kw_only=True)
class PublicationProgress:
    """One publication: its current phase, and the replicas it waits for. Times are monotonic seconds."""

    id: str
    version: PolicyVersion
    began: float = field(default_factory=time.monotonic)
    phase: str = ""
    waiting_for: list[str] = field(default_factory=list)
    since: float = 0.0
    deadline_s: float = 0.0
    routes: dict[str, str] = field(default_factory=dict)
    """Replica -> route of the weights."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Replica -> why it does not use the best route, if it does not."""
    members: list[str] = field(default_factory=list)
    committed: set[str] = field(default_factory=set)
    """Members that serve the version."""
    proofs: dict[str, ReplicaProof] = field(default_factory=dict)
    """Member -> how its weights were verified."""
    notes: dict[str, str] = field(default_factory=dict)
    """Member -> why the trainer's checksums do not prove its weights, where they should."""
    missed: dict[str, str] = field(default_factory=dict)
    """Member -> why it was left out."""
    phases: list[Phase] = field(default_factory=list)

    def note(self, replica_id: str, words: str) -> None:
        """Adds a reason why a member is not proven."""
        self.notes[replica_id] = "; ".join(filter(None, [self.notes.get(replica_id), words]))

    def begin(self, name: str, deadline_s: float, replicas: list[str]) -> Phase:
        """Starts the next phase."""
        lasting = Phase(name=name, since=time.monotonic())
        self.phases.append(lasting)
        self.phase, self.since, self.deadline_s, self.waiting_for = name, lasting.since, deadline_s, replicas
        return lasting

    def timeline(self, *, ended: bool) -> PublicationTimeline:
        """The publication until now; an unfinished phase ends now."""
        now = time.monotonic()
        return PublicationTimeline(
            id=self.id,
            version=self.version.version,
            incarnation=self.version.incarnation,
            began=round(time.time() - now + self.began, 3),
            seconds=round(now - self.began, 3),
            phases=tuple(self._span(phase, now) for phase in self.phases),
            members=tuple(map(self._member, self.members)),
            ended=ended,
        )

    def _span(self, phase: Phase, now: float) -> PhaseSpan:
        return PhaseSpan(
            phase=phase.name,
            from_s=round(phase.since - self.began, 3),
            to_s=round((phase.until or now) - self.began, 3),
        )

    def _member(self, replica_id: str) -> PublicationMember:
        return PublicationMember(
            replica_id=replica_id,
            route=self.routes.get(replica_id, ""),
            route_reason=self.reasons.get(replica_id, ""),
            committed=replica_id in self.committed,
            reason=self.missed.get(replica_id, ""),
            proof=self.proofs.get(replica_id, ""),
            proof_note=self.notes.get(replica_id, ""),
        )
