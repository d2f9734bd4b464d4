"""By which way a replica gets the weights. Pure."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wire.v1.common_pb2 import Routes

DISK = "disk"


@dataclass(frozen=True, slots=True)
class Route:
    """A collective backend, or the disk."""

    backend: str
    reason: str = ""
    """Why not the best one."""


def choose_route(trainer: Routes, replica: Routes, *, distrust: str = "") -> Route:
    """The best way from the trainer to a replica; `distrust` says why no collective is to be tried now."""
    if distrust:
        return Route(DISK, distrust)
    common = [backend for backend in trainer.backends if backend in replica.backends]
    if not common:
        return Route(DISK, "trainer and replica have no collective backend in common")
    if common[0] != "nccl":
        lacks = "nccl" in trainer.backends
        return Route(common[0], "the replica tells of no NCCL, or of no GPU" if lacks else "")
    # Second best is gloo: through the host memory of both ends, never through a file.
    second = next((backend for backend in common if backend != "nccl"), DISK)
    shared = sorted(set(trainer.devices) & set(replica.devices))
    if shared:
        return Route(second, f"NCCL refuses two ranks on one device ({shared[0]})")
    if not trainer.nccl_version or trainer.nccl_version != replica.nccl_version:
        versions = f"trainer {trainer.nccl_version or 'unknown'}, replica {replica.nccl_version or 'unknown'}"
        return Route(second, f"unequal NCCL versions hang ({versions})")
    return Route("nccl")


@dataclass(frozen=True, slots=True)
class Proved:
    """The checksum of one replica's weights, as its engine keeps them."""

    replica_id: str
    layout: str
    """Only replicas of one layout can be compared."""
    checksum: str
    """Empty: it was proved by digests, or, with `unknown`, has none."""
    unknown: int = 0
    """Tensors of which the trainer could not tell what they hash to."""


class Proof(StrEnum):
    """What says that a replica's weights are the trainer's, beside the canary."""

    PROVEN = "proven"
    """All that it holds equals what the trainer computed: digests, or the engine's own checksums."""
    COMPARED = "compared"
    """The trainer cannot compute some of its checksums; all of them equal those of another replica."""
    CANARY = "canary"
    """As `compared`, but there is no other replica of its layout."""


def proofs(found: Sequence[Proved], known: Container[str]) -> dict[str, Proof]:
    """Replica -> what its weights were held against. `known` are layouts of which another serves this version."""
    layouts = Counter(one.layout for one in found if one.checksum)
    made: dict[str, Proof] = {}
    for one in found:
        if not one.unknown:
            made[one.replica_id] = Proof.PROVEN
        else:
            alone = not one.checksum or (layouts[one.layout] == 1 and one.layout not in known)
            made[one.replica_id] = Proof.CANARY if alone else Proof.COMPARED
    return made


def disagreeing(
    found: Iterable[Proved], known: Mapping[str, str], stale: Container[tuple[str, str]] = ()
) -> dict[str, str]:
    """Who does not hold what the others of its layout hold: replica -> why.

    `known` are checksums (by layout) of replicas that serve this version already. Without them the majority is right;
    where there is none, nobody can be believed. `stale` are (layout, checksum) of an older version with other weights:
    who still has those has taken nothing in, whatever it answers.
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
