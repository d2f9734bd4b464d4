"""Chooses the route of the weights to a replica, and compares replicas' checksums. Pure."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.wire.v1.common_pb2 import Routes

DISK = "disk"


@dataclass(frozen=True, slots=True)
class Route:
    """A collective backend, or the disk."""

    backend: str
    reason: str = ""
    """Why it is not the best route; empty if it is."""


def choose_route(trainer: Routes, replica: Routes, *, distrust: str = "") -> Route:
    """The best route from the trainer to a replica; `distrust` is a reason to use no collective now."""
    if distrust:
        return Route(DISK, distrust)
    common = [backend for backend in trainer.backends if backend in replica.backends]
    if not common:
        return Route(DISK, "trainer and replica have no collective backend in common")
    if common[0] != "nccl":
        lacks = "nccl" in trainer.backends
        return Route(common[0], "the replica reports no NCCL, or no GPU" if lacks else "")
    # Second best is gloo: through host memory on both ends, never through a file.
    second = next((backend for backend in common if backend != "nccl"), DISK)
    shared = sorted(set(trainer.devices) & set(replica.devices))
    if shared:
        return Route(second, f"NCCL refuses two ranks on one device ({shared[0]})")
    if not trainer.nccl_version or trainer.nccl_version != replica.nccl_version:
        versions = f"trainer {trainer.nccl_version or 'unknown'}, replica {replica.nccl_version or 'unknown'}"
        return Route(second, f"unequal NCCL versions hang ({versions})")
    if trainer.nccl_cumem != replica.nccl_cumem:
        values = f"trainer {trainer.nccl_cumem or 'unknown'}, replica {replica.nccl_cumem or 'unknown'}"
        return Route(second, f"with unequal NCCL_CUMEM_ENABLE two GPUs of a machine cannot exchange weights ({values})")
    return Route("nccl")


@dataclass(frozen=True, slots=True)
class Proved:
    """The checksum of one replica's weights, in its engine's layout."""

    replica_id: str
    layout: str
    """Only replicas of one layout can be compared."""
    checksum: str
    """Empty if it was proved by digests, or, with `unknown`, has none."""
    unknown: int = 0
    """Number of tensors for which the trainer has no checksum."""


class ReplicaProof(StrEnum):
    """Evidence, besides the canary, that a replica's weights are the trainer's."""

    PROVEN = "proven"
    """All tensors match what the trainer computed: digests, or the engine's own checksums."""
    COMPARED = "compared"
    """The trainer cannot compute some of its checksums, but all equal those of another replica."""
    CANARY = "canary"
    """As `compared`, but no other replica has its layout, or it has no checksum."""


def proofs(found: Sequence[Proved], known: Container[str]) -> dict[str, ReplicaProof]:
    """Replica -> evidence for its weights. `known` are layouts of replicas that serve this version already."""
    layouts = Counter(one.layout for one in found if one.checksum)
    made: dict[str, ReplicaProof] = {}
    for one in found:
        if not one.unknown:
            made[one.replica_id] = ReplicaProof.PROVEN
        else:
            alone = not one.checksum or (layouts[one.layout] == 1 and one.layout not in known)
            made[one.replica_id] = ReplicaProof.CANARY if alone else ReplicaProof.COMPARED
    return made


def disagreeing(
    found: Iterable[Proved], known: Mapping[str, str], stale: Container[tuple[str, str]] = ()
) -> dict[str, str]:
    """Replicas whose weights differ from the others of their layout: replica -> reason.

    `known` maps layout -> checksum of replicas that serve this version already. Without it the majority is right; if
    there is no majority, no replica of the layout is trusted. `stale` are (layout, checksum) of an older version with
    other weights: a replica that still has those has installed nothing, regardless of its answer.
    """
    by_layout: dict[str, list[Proved]] = {}
    for one in found:
        if one.checksum:
            by_layout.setdefault(one.layout, []).append(one)
    wrong: dict[str, str] = {}
    for layout, replicas in by_layout.items():
        for one in list(replicas):
            if (layout, one.checksum) in stale:
                wrong[one.replica_id] = "it has kept its old weights"
                replicas.remove(one)
    for layout, replicas in by_layout.items():
        sums = [one.checksum for one in replicas]
        right = known.get(layout) or next((each for each in sums if 2 * sums.count(each) > len(sums)), "")
        for one in replicas:
            if one.checksum != right:
                wrong[one.replica_id] = f"its weights are not those of the other replicas (layout {layout})"
    return wrong
