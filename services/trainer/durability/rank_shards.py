"""The shards of a checkpoint that several ranks write: rank 0 learns their digests, or why a rank could not write.

Over a connection of its own to the ranks' store, never by a collective: the training thread runs those meanwhile. What
a rank says is signed with the trainer's token, as rank 0's commands are: the store has no password.
"""

import hmac
import json
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability.checkpoint import write_shards
from headrace.services.trainer.durability.host_copy import Files
from headrace.wire.access import process
from headrace.wire.errors import ContractError, DiskError, TransientError, WaitTimeoutError
from headrace.wire.host.disk_fault import disk_fault


class RankShards:
    """One rank's end. Used by its writing thread, one checkpoint after the other."""

    def __init__(self, ranks: Ranks) -> None:
        self._rank, self.ranks = ranks.rank, ranks.size
        self._store = ranks.side_store
        access = process.current()
        self._token = b"" if access is None else access.tokens().token.encode()

    def write(self, aside: Path, copied: Future[Files]) -> None:
        """Writes the shards of a rank above 0, durably, and tells rank 0; an error is rank 0's to raise."""
        assert self._store is not None
        try:
            told = {"sha256": write_shards(aside, copied.result(), rank=self._rank, ranks=self.ranks, durable=True)}
        except Exception as error:
            fault = disk_fault(error, aside)
            told = {"disk" if fault else "error": f"{fault or error}"}  # type: ignore[dict-item]
        key, text = _key(aside, self._rank), json.dumps(told)
        self._store.set(key, f"{self._signature(key, text)} {text}")

    def gather(self, aside: Path, limit_s: float) -> dict[str, str]:
        """On rank 0: file name -> hex sha256 of the others' shards, once all are durable.

        Raises DiskError and TransientError as another rank met them, WaitTimeoutError at the deadline.
        """
        found: dict[str, str] = {}
        for rank in range(1, self.ranks):
            assert self._store is not None
            key = _key(aside, rank)
            try:
                self._store.wait([key], timedelta(seconds=limit_s))
            except RuntimeError as error:
                if "timeout" not in str(error).lower():
                    raise TransientError(f"rank {rank} is lost while it writes its shard: {error}") from error
                raise WaitTimeoutError(f"rank {rank} to write its shard of {aside.name}", limit_s) from error
            signature, _, text = bytes(self._store.get(key)).decode().partition(" ")
            if not hmac.compare_digest(signature.encode(), self._signature(key, text).encode()):
                raise ContractError("not_signed", f"{key} lacks the signature of this run")
            self._store.delete_key(key)
            told = json.loads(text)
            if "disk" in told:
                raise DiskError(told["disk"])
            if "error" in told:
                raise TransientError(f"rank {rank} could not write its shard: {told['error']}")
            found |= told["sha256"]
        return found

    def _signature(self, key: str, text: str) -> str:
        return hmac.new(self._token, f"{key} {text}".encode(), "sha256").hexdigest()


def _key(aside: Path, rank: int) -> str:
    return f"checkpoint/{aside.name}/{rank}"
