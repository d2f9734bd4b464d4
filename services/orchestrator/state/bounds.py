"""Bounds on what callers report to the orchestrator: a token proves a caller's role, not that it works correctly.

Each check raises ContractError; nothing of a refused message is kept.
"""

import re

from headrace.wire.errors import ContractError
from headrace.wire.v1 import orchestrator_pb2 as pb

MOST_PEERS = 4096
"""Replicas, and environment workers, of a run."""
MOST_LIVES = 1000
"""Incarnations by which a trainer's journal may be ahead of what the orchestrator has given out."""
LAST_INCARNATION = 1_000_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ADDRESS = re.compile(r"(?!unix(?:-abstract)?:)[A-Za-z0-9._:%\[\]-]{0,255}|unix:/[^\x00-\x1f\x7f]{1,107}")
_MOST_WORDS = 100_000
"""Characters of all words in one report."""


def check_replica(request: pb.RegisterReplicaRequest) -> None:
    """A replica that registers."""
    _check_id("replica_id", request.replica_id)
    _check_peer(request.address, request.boot_id)


def check_worker(request: pb.ReportEpisodesRequest) -> None:
    """An environment worker that reports."""
    _check_id("worker_id", request.worker_id)
    words = sum(len(one.id) + len(one.kind) + len(one.waits_for) for one in request.episodes)
    if words + sum(map(len, request.notes)) > _MOST_WORDS:
        raise ContractError("too_long", f"the report of {request.worker_id} has more than {_MOST_WORDS:,} characters")


def check_trainer(request: pb.RegisterTrainerRequest, given_out: int) -> None:
    """A trainer that registers, where `given_out` is the highest incarnation that any trainer has had."""
    _check_peer(request.address, request.boot_id)
    most = min(given_out + MOST_LIVES, LAST_INCARNATION) if given_out else LAST_INCARNATION
    if request.journaled_incarnation > most:
        raise ContractError(
            "bad_incarnation",
            f"journaled_incarnation {request.journaled_incarnation} is far above {given_out}, the highest that was "
            "given out: this is no trainer of this run",
        )


def _check_id(what: str, found: str) -> None:
    if not _ID.fullmatch(found):
        raise ContractError("bad_id", f"{what} {found[:40]!r}: 1 to 128 letters, digits, '.', '_' and '-'")


def _check_peer(address: str, boot_id: str) -> None:
    if not _ADDRESS.fullmatch(address):
        raise ContractError("bad_address", f"address {address[:40]!r}: host:port (255 characters) or unix:PATH")
    if boot_id:
        _check_id("boot_id", boot_id)


def check_number(what: str, others: int) -> None:
    """Raises ContractError if one more than `others` is too many."""
    if others >= MOST_PEERS:
        raise ContractError("too_many", f"the run has {others} {what}, and takes no more than {MOST_PEERS}")
