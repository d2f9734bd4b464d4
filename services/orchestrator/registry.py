"""Who is alive: replicas with leases on a monotonic clock. Pure but for the clock value passed in."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from wire.contracts import PolicyVersion
from wire.v1 import common_pb2
from wire.v1 import orchestrator_pb2 as pb

STATE_NAMES: dict[int, str] = {
    int(number): name.removeprefix("REPLICA_STATE_").lower() for name, number in pb.ReplicaState.items()
}
PUBLISHABLE = frozenset(
    {
        pb.REPLICA_STATE_PENDING_WEIGHTS,
        pb.REPLICA_STATE_SERVING,
        pb.REPLICA_STATE_UPDATING,
        pb.REPLICA_STATE_QUARANTINED,
        pb.REPLICA_STATE_SLEEPING,
    }
)
"""States in which a replica takes part in a publication."""
PRODUCING = PUBLISHABLE - {pb.REPLICA_STATE_QUARANTINED}
"""States of a replica that generates, or will as soon as it has the weights."""
_OVERTAKEN_S = 1.0
"""So long after a commit, or a replica's falling asleep, a heartbeat may arrive that was sent before it: what it says
of the weights is ignored."""
_NO_VERSION = PolicyVersion(incarnation=0, version=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What the orchestrator knows of one replica. Times are monotonic seconds."""

    replica_id: str
    boot_id: str
    address: str
    engine: str
    state: int
    version: PolicyVersion
    seen: float
    in_flight_groups: int = 0
    in_flight_rollouts: int = 0
    waiting_share: float = 0.0
    waiting_for: str = ""
    waiting_since: float = 0.0
    """When it first said that it waits for this."""
    generated_tokens: int = 0
    tokens_per_second: float = 0.0
    speed: float = 0.0
    """Tokens a second of one rollout; 0 = not known yet."""
    dtype: str = ""
    routes: common_pb2.Routes = field(default_factory=common_pb2.Routes)
    groups: frozenset[int] = frozenset()
    """Training groups that it generates."""
    missed: int = 0
    """Publications missed since the last commit."""
    changed_at: float = -math.inf
    """When a publication or a turn on the GPU last changed its state."""
    first_verify_s: float = 0.0
    """Seconds that it asks for to verify its first weights, as long as it has none; 0 = no more than for others."""
    refused: str = ""
    """Why the trainer opens no collective group to it any more; until a new life of either."""
    proof: str = ""
    """Of its newest commit, see `routes.Proof`; empty before it, and after a restart of the orchestrator."""
    proof_note: str = ""
    """Why the trainer's checksums do not prove it, where they should."""

    @property
    def distrust(self) -> str:
        """Why the next weights come from the disk; after a miss over the disk a collective is tried again."""
        if self.state == pb.REPLICA_STATE_QUARANTINED:
            return "it is quarantined"
        if self.refused:
            return self.refused
        return "it missed the publication before" if self.missed % 2 else ""


def gpus_of(replicas: Sequence[Replica]) -> int:
    """Accelerators under some replicas together; 0 if one of them has none, or has not said which."""
    if not all(replica.routes.devices for replica in replicas):
        return 0
    return len({device for replica in replicas for device in replica.routes.devices})


class Registry:
    """The table of replicas."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._replicas: dict[str, Replica] = {}

    def register(self, request: pb.RegisterReplicaRequest, now: float) -> None:
        """Takes a replica in; a new boot of a known one replaces it, the same boot only says where it is.

        What it has missed stays known over its lives: one that broke in a transfer comes back over the disk.
        """
        known = self._replicas.get(request.replica_id)
        if known is not None and known.boot_id == request.boot_id:
            self._replicas[request.replica_id] = replace(
                known,
                address=request.address,
                routes=request.routes,
                first_verify_s=request.first_verify_s,
                seen=now,
            )
            return
        self._replicas[request.replica_id] = Replica(
            replica_id=request.replica_id,
            boot_id=request.boot_id,
            address=request.address,
            engine=request.engine,
            state=pb.REPLICA_STATE_STARTING,
            version=_NO_VERSION,
            seen=now,
            dtype=request.dtype,
            routes=request.routes,
            first_verify_s=request.first_verify_s,
            missed=known.missed if known is not None else 0,
        )

    def heartbeat(self, beat: pb.HeartbeatRequest, now: float) -> bool:
        """Renews a lease; False if this boot of the replica is unknown and must register."""
        known = self._replicas.get(beat.replica_id)
        if known is None or known.boot_id != beat.boot_id:
            return False
        seconds = now - known.seen
        tokens = beat.generated_tokens - known.generated_tokens
        rate = tokens / seconds if seconds > 0 and tokens >= 0 else 0.0
        state: int = beat.state
        version = PolicyVersion(incarnation=beat.version.incarnation, version=beat.version.version)
        if now - known.changed_at < _OVERTAKEN_S and state in PUBLISHABLE:
            state, version = known.state, known.version
        self._replicas[beat.replica_id] = replace(
            known,
            state=state,
            version=version,
            seen=now,
            in_flight_groups=beat.in_flight_groups,
            in_flight_rollouts=beat.in_flight_rollouts,
            waiting_share=beat.waiting_share,
            waiting_for=beat.waiting_for,
            waiting_since=known.waiting_since if beat.waiting_for == known.waiting_for else now,
            generated_tokens=beat.generated_tokens,
            speed=beat.speed,
            groups=frozenset(beat.groups),
            tokens_per_second=0.5 * known.tokens_per_second + 0.5 * rate,
        )
        return True

    def committed(
        self, replica: Replica, version: PolicyVersion, now: float, proof: str = "", proof_note: str = ""
    ) -> None:
        """Notes a commit at once, not with the next heartbeat; not for a next life that has registered meanwhile."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(
                known,
                version=version,
                state=pb.REPLICA_STATE_SERVING,
                missed=0,
                changed_at=now,
                first_verify_s=0.0,
                proof=proof or known.proof,
                proof_note=proof_note if proof else known.proof_note,
            )

    def slept(self, replica: Replica, now: float) -> None:
        """Notes at once that this boot of a replica sleeps: it has no weights any more."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(
                known, version=_NO_VERSION, state=pb.REPLICA_STATE_SLEEPING, changed_at=now, groups=frozenset()
            )

    def missed(self, replica: Replica) -> None:
        """Notes that this boot of a replica did not get through a publication."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(known, missed=known.missed + 1)

    def refuse(self, replica: Replica, reason: str) -> None:
        """Notes that the trainer opens no collective group to this boot of a replica."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(known, refused=reason)

    def forget_refusals(self) -> None:
        """What an earlier life of the trainer has refused."""
        self._replicas = {name: replace(one, refused="") for name, one in self._replicas.items()}

    def alive(self, now: float) -> list[Replica]:
        """Replicas with a live lease that are not on their way out, by id."""
        gone = (pb.REPLICA_STATE_GONE, pb.REPLICA_STATE_DRAINING)
        living = [r for r in self._replicas.values() if now - r.seen <= self.lease_s and r.state not in gone]
        return sorted(living, key=lambda r: r.replica_id)

    def overdue(self, now: float) -> list[Replica]:
        """Replicas whose lease ran out without a farewell."""
        leaving = (pb.REPLICA_STATE_GONE, pb.REPLICA_STATE_DRAINING)
        return [r for r in self._replicas.values() if now - r.seen > self.lease_s and r.state not in leaving]

    def share(self, replica_id: str, now: float, *, without: Set[str] = frozenset()) -> float:
        """A replica's part, by speed, of what may be issued; 0 if it does not generate, or is among those `without`.

        An even part for each makes everybody wait for the slowest. One that is not measured yet counts as average.
        """
        producing = [one for one in self.alive(now) if one.state in PRODUCING and one.replica_id not in without]
        known = [replica.speed for replica in producing if replica.speed > 0]
        mean = sum(known) / len(known) if known else 1.0
        speeds = {replica.replica_id: replica.speed or mean for replica in producing}
        return speeds.get(replica_id, 0.0) / sum(speeds.values()) if speeds else 0.0

    def members(self, now: float) -> list[Replica]:
        """Replicas that a publication of the current version addresses."""
        return [replica for replica in self.alive(now) if replica.state in PUBLISHABLE]
