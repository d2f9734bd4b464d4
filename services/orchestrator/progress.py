"""Where a publication is, and how it came there: for people."""

import time
from dataclasses import dataclass, field
from typing import Any

from services.orchestrator.routes import Proof
from wire.contracts import PolicyVersion


@dataclass(slots=True, kw_only=True)
class Phase:
    """When a phase was; monotonic seconds. `until` is 0 while it lasts."""

    name: str
    since: float
    until: float = 0.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """One publication: the phase it is in, and whom it waits for. Times are monotonic seconds."""

    id: str
    version: PolicyVersion
    began: float = field(default_factory=time.monotonic)
    phase: str = ""
    waiting_for: list[str] = field(default_factory=list)
    since: float = 0.0
    deadline_s: float = 0.0
    routes: dict[str, str] = field(default_factory=dict)
    """Replica -> how the weights come to it."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Replica -> why not the best way, where it is not."""
    members: list[str] = field(default_factory=list)
    committed: set[str] = field(default_factory=set)
    """Members that serve the version."""
    proofs: dict[str, Proof] = field(default_factory=dict)
    """Member -> what its weights were held against."""
    notes: dict[str, str] = field(default_factory=dict)
    """Member -> why the trainer's checksums do not prove it, where they should."""
    missed: dict[str, str] = field(default_factory=dict)
    """Member -> why the others went on without it."""
    phases: list[Phase] = field(default_factory=list)

    def note(self, replica_id: str, words: str) -> None:
        """Adds a reason why a member is not proven."""
        self.notes[replica_id] = "; ".join(filter(None, [self.notes.get(replica_id), words]))

    def begin(self, name: str, deadline_s: float, replicas: list[str]) -> Phase:
        """The next phase."""
        lasting = Phase(name=name, since=time.monotonic())
        self.phases.append(lasting)
        self.phase, self.since, self.deadline_s, self.waiting_for = name, lasting.since, deadline_s, replicas
        return lasting

    def timeline(self) -> dict[str, Any]:
        """JSON values: `began` is unix time, all else are seconds since then; what lasts ends now."""
        now = time.monotonic()
        return {
            "id": self.id,
            "version": self.version.version,
            "incarnation": self.version.incarnation,
            "began": round(time.time() - now + self.began, 3),
            "seconds": round(now - self.began, 3),
            "phases": [
                {
                    "phase": phase.name,
                    "from_s": round(phase.since - self.began, 3),
                    "to_s": round((phase.until or now) - self.began, 3),
                }
                for phase in self.phases
            ],
            "members": [
                {
                    "replica_id": replica_id,
                    "route": self.routes.get(replica_id, ""),
                    "route_reason": self.reasons.get(replica_id, ""),
                    "committed": replica_id in self.committed,
                    "reason": self.missed.get(replica_id, ""),
                    "proof": self.proofs.get(replica_id, ""),
                    "proof_note": self.notes.get(replica_id, ""),
                }
                for replica_id in self.members
            ],
        }
