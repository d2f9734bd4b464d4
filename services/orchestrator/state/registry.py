"""Registry of live replicas, with leases on a monotonic clock. Pure: clock values are passed in."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from headrace.services.orchestrator.state.bounds import MOST_PEERS, check_number, check_replica
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.codec import VERSION
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb

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
"""States of a replica that generates, or will once it has the weights."""
_OVERTAKEN_S = 1.0
"""For this long after a commit, or after a replica fell asleep, a heartbeat sent before it may still arrive: its state
and version are ignored."""
_SHARES_S = 1.0
"""For so long all heartbeats are answered from one table of shares: each would look at every replica otherwise."""
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
    beat: pb.HeartbeatRequest = field(default_factory=pb.HeartbeatRequest)
    """Its last report."""
    waiting_since: float = 0.0
    """When it first reported what it waits for."""
    tokens_per_second: float = 0.0
    dtype: str = ""
    routes: common_pb2.Routes = field(default_factory=common_pb2.Routes)
    groups: frozenset[int] = frozenset()
    """Indices of the training groups that it generates."""
    missed: int = 0
    """Publications missed since the last commit."""
    changed_at: float = -math.inf
    """When a commit or a GPU turn last changed its state."""
    first_verify_s: float = 0.0
    """Seconds it requests to verify its first weights, until it has some; 0 = the usual time."""
    refused: str = ""
    """Why the trainer refuses it a collective group; reset when either restarts."""
    proof: str = ""
    """`routes.ReplicaProof` of its newest commit; empty before it, and after a restart of the orchestrator."""
    proof_note: str = ""
    """Why the trainer's checksums do not prove its weights, where they should."""

    @property
    def distrust(self) -> str:
        """Why its next weights come from disk; empty if a collective may be used. Misses alternate between the two."""
        if self.state == pb.REPLICA_STATE_QUARANTINED:
            return "it is quarantined"
        if self.refused:
            return self.refused
        return "it missed the publication before" if self.missed % 2 else ""


def gpus_of(replicas: Sequence[Replica]) -> int:
    """Number of distinct accelerators used by the replicas; 0 if any of them has reported none."""
    if not all(replica.routes.devices for replica in replicas):
        return 0
    return len({device for replica in replicas for device in replica.routes.devices})


class Registry:
    """The table of replicas."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._replicas: dict[str, Replica] = {}
        self._shares: dict[str, float] = {}
        self._shares_of: tuple[float, Set[str]] = (-math.inf, frozenset())
        """When the shares were computed, and without which replicas."""

    def register(self, request: pb.RegisterReplicaRequest, now: float) -> None:
        """Registers a replica; a new boot replaces the old entry, a known boot updates it.

        The number of missed publications survives restarts: a replica that crashed in a transfer is next updated from
        disk. Raises ContractError for more than `MOST_PEERS` live ones, and for ids out of bounds.
        """
        check_replica(request)
        if request.replica_id not in self._replicas and len(self._replicas) >= MOST_PEERS:
            self._replicas = {name: one for name, one in self._replicas.items() if now - one.seen <= self.lease_s}
            check_number("replicas", len(self._replicas))
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
        """Renews a lease and records the report; False if this boot of the replica must register first."""
        known = self._replicas.get(beat.replica_id)
        if known is None or known.boot_id != beat.boot_id:
            return False
        seconds = now - known.seen
        tokens = beat.generated_tokens - known.beat.generated_tokens
        rate = tokens / seconds if seconds > 0 and tokens >= 0 else 0.0
        state: int = beat.state
        version = VERSION.from_pb(beat.version)
        if now - known.changed_at < _OVERTAKEN_S and state in PUBLISHABLE:
            state, version = known.state, known.version
        self._replicas[beat.replica_id] = replace(
            known,
            state=state,
            version=version,
            seen=now,
            beat=beat,
            waiting_since=known.waiting_since if beat.waiting_for == known.beat.waiting_for else now,
            groups=frozenset(beat.groups),
            tokens_per_second=0.5 * known.tokens_per_second + 0.5 * rate,
        )
        return True

    def committed(
        self, replica: Replica, version: PolicyVersion, now: float, proof: str = "", proof_note: str = ""
    ) -> None:
        """Records a commit without waiting for the next heartbeat; ignored if another boot has registered meanwhile."""
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
        """Records, without waiting for a heartbeat, that this boot of a replica sleeps and has no weights."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(
                known, version=_NO_VERSION, state=pb.REPLICA_STATE_SLEEPING, changed_at=now, groups=frozenset()
            )

    def knows(self, replica_id: str, boot_id: str) -> bool:
        """Whether this boot of a replica is registered."""
        known = self._replicas.get(replica_id)
        return known is not None and known.boot_id == boot_id

    def quarantined(self, replica_id: str, now: float) -> None:
        """Records, without waiting for a heartbeat, that a registered replica has to disown its weights."""
        known = self._replicas[replica_id]
        self._replicas[replica_id] = replace(
            known, version=_NO_VERSION, state=pb.REPLICA_STATE_QUARANTINED, changed_at=now
        )

    def missed(self, replica: Replica) -> None:
        """Records that this boot of a replica missed a publication."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(known, missed=known.missed + 1)

    def refuse(self, replica: Replica, reason: str) -> None:
        """Records that the trainer refuses a collective group to this boot of a replica."""
        known = self._replicas.get(replica.replica_id)
        if known is not None and known.boot_id == replica.boot_id:
            self._replicas[replica.replica_id] = replace(known, refused=reason)

    def forget_refusals(self) -> None:
        """Drops the refusals of an earlier incarnation of the trainer."""
        self._replicas = {name: replace(one, refused="") for name, one in self._replicas.items()}

    def alive(self, now: float) -> list[Replica]:
        """Replicas with a live lease that are neither draining nor gone, by id."""
        gone = (pb.REPLICA_STATE_GONE, pb.REPLICA_STATE_DRAINING)
        living = [r for r in self._replicas.values() if now - r.seen <= self.lease_s and r.state not in gone]
        return sorted(living, key=lambda r: r.replica_id)

    def overdue(self, now: float) -> list[Replica]:
        """Replicas whose lease expired without a report that they were draining or gone."""
        leaving = (pb.REPLICA_STATE_GONE, pb.REPLICA_STATE_DRAINING)
        return [r for r in self._replicas.values() if now - r.seen > self.lease_s and r.state not in leaving]

    def share(self, replica_id: str, now: float, *, without: Set[str] = frozenset()) -> float:
        """A replica's share of the issuable groups, by speed; 0 if it does not generate or is in `without`.

        Equal shares would make all replicas wait for the slowest. A replica without a measured speed counts as average.
        """
        at, left_out = self._shares_of
        if now - at >= _SHARES_S or left_out != without or replica_id not in self._shares:
            self._shares_of = now, without
            self._shares = self._speed_shares(now, without)
        return self._shares.get(replica_id, 0.0)

    def _speed_shares(self, now: float, without: Set[str]) -> dict[str, float]:
        alive = self.alive(now)
        producing = [one for one in alive if one.state in PRODUCING and one.replica_id not in without]
        known = [replica.beat.speed for replica in producing if replica.beat.speed > 0]
        mean = sum(known) / len(known) if known else 1.0
        speeds = {replica.replica_id: replica.beat.speed or mean for replica in producing}
        total = sum(speeds.values())
        return {one.replica_id: speeds.get(one.replica_id, 0.0) / total if speeds else 0.0 for one in alive}

    def places(self, now: float, *, without: Set[str] = frozenset()) -> pb.ReplicaList:
        """Where turns of episodes can be sampled, by id; replicas in `without` take none."""
        return pb.ReplicaList(
            replicas=[
                pb.ReplicaPlace(
                    replica_id=one.replica_id,
                    address=one.address,
                    version=VERSION.to_pb(one.version),
                    free_rows=one.beat.free_rows,
                    takes=one.state == pb.REPLICA_STATE_SERVING and one.replica_id not in without,
                )
                for one in self.alive(now)
            ],
            lease_s=self.lease_s,
        )

    def members(self, now: float) -> list[Replica]:
        """Replicas that a publication of the current version addresses."""
        return [replica for replica in self.alive(now) if replica.state in PUBLISHABLE]
